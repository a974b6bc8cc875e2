# Threads of SCHED_FIFO: whoever waits for an ordinary thread on the same core must let it have the processor,
# and threads of our own must not be of that class, or bound to that core.

import os
import unittest

from hostile import Case, main, often, program, run

EAGER = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0'}


class Realtime(Case):
    def setUp(self):
        if run([program('hostile_realtime'), 'pairs', '1']).status == 77:
            self.skipTest('SCHED_FIFO may not be had here')

    def part(self, name, n, variants):
        return self.same([program('hostile_realtime'), name, str(n)], variants=variants,
                         settings={'SIM_IDLE_MS': '1'})

    def test_allocations(self):
        self.part('pairs', often(3000), [{}])

    def test_launches(self):
        self.part('launches', often(3000), [EAGER])

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, 'a thread that polls leaves no core to others')
    def test_polling(self):
        for _, result in self.part('poll', often(20), [EAGER]):
            self.assertGreater(result.report()['replay']['withheld'], 0)


if __name__ == '__main__':
    main()
