# What a kernel prints comes out before what the host prints after a free, whatever hides that it prints.

from harness import EXACT, POLICIES, SEEDS, Case, main, program


class Prints(Case):
    def waited(self, way):
        """How often the program's frees waited for kernels that print, with a pool."""
        results = self.same([program('preload_prints'), way], variants=EXACT, seeds=SEEDS)
        return [result.report()['frees']['drain_reasons']['device_printf']
                for variant, result in results if variant == POLICIES[0]]

    def test_compressed_ptx(self):
        self.assertGreaterEqual(min(self.waited('ptx')), 10)

    def test_a_cubin_that_does_not_print(self):
        self.assertEqual(max(self.waited('cubin')), 0)


if __name__ == '__main__':
    main()
