# A free blocks the thread that it natively blocks, and for as long, and no other.

from harness import EXACT, POLICIES, SEEDS, Case, main, program

REPLAYED = [{'ALLOGRAFT_GRAPH': 'all'}]


class Others(Case):
    def test_the_kernel_waits_for_another_thread(self):
        for part in ('', 'asks', 'calls', 'again'):
            self.same([program('preload_others')] + part.split(), variants=EXACT + REPLAYED)

    def test_the_first_thread_leaves_the_work_to_another(self):
        for variant, result in self.same([program('preload_others'), 'leaves'], variants=EXACT + REPLAYED, seeds=SEEDS):
            if variant == POLICIES[0]:
                frees = result.report()['frees']
                with self.subTest(settings=variant):
                    # Those of the second time wait, since the first thread has come back.
                    self.assertGreaterEqual(frees['drain_reasons']['several_threads'], 200)
                    self.assertGreaterEqual(frees['watched'], 150)

    def test_who_frees_waits_for_as_long_as_natively(self):
        self.same([program('preload_others'), 'long'], variants=EXACT + REPLAYED)


main()
