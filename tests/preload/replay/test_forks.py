# Forks over several streams, launched as one graph (ALLOGRAFT_GRAPH_FORKS): every kernel finds of the others' work what
# it finds natively, and nobody waits for what natively he would not.

from harness import SEEDS, Case, but_under_tsan, main, program, some

EAGER = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_FORKS': '1', 'ALLOGRAFT_GRAPH_WARMUP': '1',
         'ALLOGRAFT_GRAPH_PROFIT': '0'}
HELD = dict(EAGER, ALLOGRAFT_GRAPH_HOLD_US='60000000')  # longer than anything here waits
HURRIED = dict(EAGER, ALLOGRAFT_GRAPH_HOLD_US='10')
SHORT = dict(HELD, ALLOGRAFT_GRAPH_SEGMENT='4')
WHOLE = dict(HELD, ALLOGRAFT_GRAPH_SEGMENT='4096', ALLOGRAFT_POLICY='pool')
PLAIN = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_FORKS': '1'}
VERIFIED = dict(HELD, ALLOGRAFT_GRAPH_VERIFY='1')
ALL = [HELD, HURRIED, SHORT, WHOLE, PLAIN, VERIFIED]

# Of each part, the branches that are launched in graphs at least, under HELD.
PARTS = {'waited': 120, 'unwaited': 120, 'mixed': 120, 'stuck-before': 40, 'stuck-behind': 20, 'let-on': 20,
         'handed-on': 0, 'asked-elsewhere': 15, 'queried': 15, 'waited-for': 15, 'timed': 15, 'reused': 15,
         'stolen': 15, 'strays': 60, 'renewed': 30}
SIMULATED = {'SIM_IDLE_MS': '1'}


class Forks(Case):
    def part(self, *words, variants=ALL, **more):
        return self.same([program('preload_forks')] + list(words), variants=variants, settings=SIMULATED, **more)

    def test_same(self):
        for name, least in PARTS.items():
            for variant, result in self.part(name):
                replay = result.report()['replay']
                with self.subTest(part=name):
                    self.assertEqual(replay['withheld'], replay['replayed'] + replay['released'])
                    self.assertEqual((replay['graph_launches_failed'], replay['late_errors']), (0, 0))
                    if variant == HELD:
                        self.assertGreaterEqual(replay['branches'], least)

    @but_under_tsan
    def test_other_seeds(self):
        for name in PARTS:
            self.part(name, variants=[HELD, HURRIED], seeds=SEEDS[1:])

    def test_off(self):
        for _, result in self.part('waited', variants=[dict(HELD, ALLOGRAFT_GRAPH_FORKS='0')]):
            self.assertEqual(result.report()['replay']['branches'], 0)

    def test_random(self):
        seeds, branches = list(some(range(1, 121))), 0
        for seed in seeds:
            for _, result in self.part('random', str(seed), variants=[(HELD, HURRIED, SHORT, WHOLE)[seed % 4]]):
                branches += result.report()['replay']['branches']
        self.assertGreaterEqual(branches, 5 * len(seeds) if len(seeds) > 100 else 0)

    def test_never_joined(self):
        """Such streams have graphs of their own, as without forks."""
        for _, result in self.part('handed-on', variants=[HELD]):
            replay = result.report()['replay']
            self.assertGreater(replay['replayed'], replay['operations'] / 2)

    def test_one_graph_a_turn(self):
        for _, result in self.part('waited', variants=[WHOLE]):
            replay = result.report()['replay']
            self.assertLess(replay['graph_launches'], 70)
            self.assertGreater(replay['replayed'], 60 * 28)


main()
