# What a batch copies from and to pageable memory is done when a free is.

from harness import EXACT, POLICIES, SEEDS, Case, main, program

FUNCTIONS = [name + version + stream for name in ('cuMemcpyBatchAsync', 'cuMemcpy3DBatchAsync')
             for version in ('', '_v2') for stream in ('', '_ptsz')]
STREAM, DURING_API_CALL, ANY = ORDERS = '1', '2', '3'


class Batches(Case):
    def waited(self, *words, seeds=SEEDS):
        """How often the program's frees waited for pageable memory, with a pool."""
        results = self.same([program('preload_batches'), *words], variants=EXACT, seeds=seeds)
        return [result.report()['frees']['drain_reasons']['pageable_memory_access']
                for variant, result in results if variant == POLICIES[0]]

    def test_the_host_writes_what_a_free_waited_for(self):
        for function in FUNCTIONS:
            with self.subTest(function=function):
                self.assertGreaterEqual(min(self.waited(function, ANY, 'from', seeds=SEEDS[:1])), 10)

    def test_the_host_reads_what_a_free_waited_for(self):
        for function in FUNCTIONS:
            with self.subTest(function=function):
                self.assertGreaterEqual(min(self.waited(function, ANY, 'to', seeds=SEEDS[:1])), 10)

    def test_whatever_the_order_is(self):
        for order in ORDERS:
            with self.subTest(order=order):
                self.assertGreaterEqual(min(self.waited(FUNCTIONS[2], order, 'from')), 10)

    def test_a_copy_that_no_host_sees(self):
        for function in (FUNCTIONS[2], FUNCTIONS[6]):
            with self.subTest(function=function):
                self.assertEqual(max(self.waited(function, ANY, 'within')), 0)


if __name__ == '__main__':
    main()
