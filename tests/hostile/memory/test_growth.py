# What comes and goes leaves nothing behind; and more of a thing than anybody has use for is as natively.

import re
import unittest

from hostile import EVERYTHING, RUNTIME, Case, main, often, preloaded, program, run

REPLAY = {'ALLOGRAFT_GRAPH': 'all'}
ORDERED = {'ALLOGRAFT_FREE': 'ordered'}


class Growth(Case):
    def grown(self, result):
        self.assertEqual(result.status, 0, result.out + result.err)
        return int(re.fullmatch(r'grew by (-?\d+) KiB\n', result.out).group(1))

    # A sanitizer keeps what was freed for a while, which is what it is for.
    @unittest.skipIf(RUNTIME, 'resident memory says nothing under a sanitizer')
    def bounded(self, part, n, bytes_each, settings=({}, REPLAY)):
        """Made n times, it leaves no more than so many bytes each time behind, beside what the simulated driver
        leaves of the streams and events that we make of it."""
        command = [program('hostile_growth'), part, str(n)]
        native = self.grown(run(command))
        for each in settings:
            with self.subTest(part=part, settings=each):
                grown = self.grown(preloaded(command, each))
                self.assertLess(grown, native + 256 + n * bytes_each / 1024)

    def test_contexts_come_and_go(self):
        for part in ('context', 'lone_context', 'reset', 'release'):
            self.bounded(part, often(600), 4096)

    def test_green_contexts_come_and_go(self):
        self.bounded('green', often(600), 2048)

    def test_threads_come_and_go(self):
        self.bounded('thread', often(500), 2048)

    def test_pairs(self):
        self.bounded('pair', often(1000000 if EVERYTHING else 300000), 0, settings=({}, ORDERED))

    def test_contexts_come_and_go_beside_others(self):
        self.same([program('hostile_visits'), str(often(60))],
                  variants=[{}, ORDERED, REPLAY, dict(ORDERED, **REPLAY)])

    def test_more_contexts_than_rows(self):
        for n in (65, 100, 300):
            self.same([program('hostile_crowds'), 'contexts', str(n)],
                      variants=[{}, ORDERED, REPLAY] if n == 65 else [{}])

    def test_blocks(self):
        count = often(20000 if RUNTIME else 100000)
        self.same([program('hostile_crowds'), 'blocks', str(count)], variants=[{}, ORDERED],
                  settings={'SIM_SCHED': 'eager'})


if __name__ == '__main__':
    main()
