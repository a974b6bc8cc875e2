# What graphs of a program copy from pageable memory is done when a free is, and what they copy to it with the launch.

from harness import EXACT, POLICIES, SEEDS, Case, main, program

WAYS = ('added', 'added-any-type', 'in-a-child', 'set', 'set-any-type', 'exec-set', 'exec-set-any-type', 'captured',
        'captured-any', 'captured-rectangle', 'captured-box', 'captured-last')


class GraphCopies(Case):
    def waited(self, way, seeds):
        """How often the program's frees waited for pageable memory, with a pool."""
        results = self.same([program('preload_graph_copies'), way], variants=EXACT, seeds=seeds)
        return [result.report()['frees']['drain_reasons']['pageable_memory_access']
                for variant, result in results if variant == POLICIES[0]]

    def test_the_host_writes_what_a_free_waited_for(self):
        for way in WAYS:
            with self.subTest(way=way):
                self.assertGreaterEqual(min(self.waited(way + '-from', SEEDS[:1])), 10)

    def test_the_host_sees_what_a_launch_waited_for(self):
        for way in WAYS:
            with self.subTest(way=way):
                self.assertEqual(max(self.waited(way, SEEDS[:1])), 0)

    def test_a_copy_that_no_host_sees(self):
        for way in ('within', 'captured-within'):
            with self.subTest(way=way):
                self.assertEqual(max(self.waited(way, SEEDS)), 0)


if __name__ == '__main__':
    main()
