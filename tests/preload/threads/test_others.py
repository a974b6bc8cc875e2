# What other threads ask goes on beside a free, as natively, and who frees waits for as long as natively.

from harness import EXACT, POLICIES, SEEDS, Case, main, program

REPLAYED = [{'ALLOGRAFT_GRAPH': 'all'}]


class Others(Case):
    def test_other_threads_ask_meanwhile(self):
        for part in ('asks', 'again'):
            self.same([program('preload_others'), part], variants=EXACT + REPLAYED)

    def test_the_first_thread_leaves_the_work_to_another(self):
        for variant, result in self.same([program('preload_others'), 'leaves'], variants=EXACT + REPLAYED, seeds=SEEDS):
            if variant == POLICIES[0]:
                frees = result.report()['frees']
                with self.subTest(settings=variant):
                    # Each time some frees wait until the first thread counts no more.
                    self.assertGreaterEqual(frees['drain_reasons']['several_threads'], 16)
                    self.assertLessEqual(frees['drain_reasons']['several_threads'], 40)
                    self.assertGreaterEqual(frees['watched'], 350)

    def test_threads_that_only_allocate_do_not_wait(self):
        for variant, result in self.same([program('preload_others'), 'allocates'], variants=EXACT + REPLAYED):
            if variant == POLICIES[0]:
                self.assertEqual(result.report()['frees']['drained'], 0)

    def test_who_frees_waits_for_as_long_as_natively(self):
        self.same([program('preload_others'), 'long'], variants=EXACT + REPLAYED)


main()
