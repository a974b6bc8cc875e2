# More of everything than graph replay has places for, and the same things for long: the same bytes in the
# same order, and no more memory after the thousandth time than after the hundredth.

import re
import unittest

from hostile import RUNTIME, SEEDS, Case, main, often, preloaded, program, run

EAGER = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0'}
HELD = dict(EAGER, ALLOGRAFT_GRAPH_HOLD_US='60000000')  # longer than anything here waits
PLAIN = {'ALLOGRAFT_GRAPH': 'all'}
SETTINGS = [HELD, EAGER, PLAIN,
            dict(EAGER, ALLOGRAFT_GRAPH_HOLD_US='10'),
            dict(HELD, ALLOGRAFT_GRAPH_SEGMENT='4', ALLOGRAFT_POLICY='native'),
            dict(HELD, ALLOGRAFT_GRAPH_SEGMENT='4096'),
            dict(HELD, ALLOGRAFT_GRAPH_GRAPHS='2')]

MIB = 1024  # KiB
# What is repeated, how often, and how much more than natively may be resident late than early, in KiB. Of
# sequences and shapes so many are kept; the others leave nothing.
GROWTH = [('stream', 500, 2 * MIB), ('stream-with-graphs', 500, 2 * MIB), ('module', 800, 2 * MIB),
          ('attribute', 1500, 2 * MIB), ('thread', 500, 2 * MIB), ('thread-with-graphs', 300, 2 * MIB),
          ('sequence', 40000, 12 * MIB), ('shape', 80000, 8 * MIB)]


class Crowds(Case):
    def crowd(self, part, many, settings=None, says=None):
        # Contexts are memory of the card.
        return self.same([program('hostile_replay_crowd'), part, str(many)], variants=[HELD, EAGER, PLAIN],
                         settings=dict({'SIM_MEMORY': '64GiB', 'SIM_IDLE_MS': '1'}, **(settings or {})), says=says)

    def test_streams(self):
        # 512 streams: all have one, the last of those that look has none, and nobody but the first ones has.
        for part in ('legacy-looks', 'copies', 'blocking-looks'):
            for many in (10, 512, 600):
                self.crowd(part, many)

    def test_stream_without_a_state_is_not_marked(self):
        for _, result in self.crowd('legacy-looks', 600):
            self.assertEqual(result.report()['replay']['streams_marked'], 512)

    def test_attribute_without_a_state(self):
        for many, replayed in ((600, False), (10, False)):
            for variant, result in self.crowd('attribute', many):
                if variant == HELD:
                    self.assertEqual(result.report()['replay']['withheld'] > 0, replayed)

    def test_threads(self):
        self.crowd('threads', 600, says=''.join(
            'beside threads: %s: 600 steps, looks that came too early: 0 and 0\n' % what for what in ('a kernel', 'copies')))

    def test_contexts(self):
        self.crowd('contexts', 70, says=''.join(
            'context %d: 600 steps, looks that came too early: 0 and 0\n' % i for i in range(70)))

    def test_captures(self):
        self.crowd('captures', 70)

    def test_capture_that_nobody_knows_of(self):
        self.same([program('hostile_replay_future')], variants=SETTINGS)

    def test_patterns(self):
        self.same([program('hostile_replay_patterns'), str(often(60))], variants=SETTINGS, seeds=SEEDS[:2])


@unittest.skipIf(RUNTIME, 'a sanitizer keeps what is freed')
class Growth(Case):
    def grown(self, result):
        self.assertEqual(result.status, 0, result.out + result.err)
        early, late = (int(n) for n in re.findall(r'resident \w+: (\d+) KiB', result.out))
        return late - early

    def test_growth(self):
        for part, n, most in GROWTH:
            command = [program('hostile_replay_growth'), part, str(often(n))]
            with self.subTest(part=part):
                native, result = run(command), preloaded(command, EAGER)
                self.assertGreaterEqual(result.report()['replay']['operations'], n)
                self.assertLess(self.grown(result), self.grown(native) + most)


if __name__ == '__main__':
    main()
