# Threads of SCHED_FIFO: whoever waits for an ordinary thread on the same core must let it have the processor,
# and threads of our own must not be of that class, or bound to that core.

import os
import unittest

from hostile import EVERYTHING, Case, main, often, preloaded, program, run

EAGER = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0'}


class Realtime(Case):
    def setUp(self):
        if run([program('hostile_realtime'), 'pairs', '1']).status == 77:
            self.skipTest('SCHED_FIFO may not be had here')

    def for_a_while(self, name, settings):
        """What is said does not depend on how long it takes; that natively nobody is kept waiting shows soon. Every
        second the kernel lets ordinary threads have a little of the processor: it takes longer than one."""
        native = run([program('hostile_realtime'), name, '200'], {'SIM_IDLE_MS': '1'})
        self.sane(native)
        result = preloaded([program('hostile_realtime'), name, str(often(3000 if EVERYTHING else 1500))],
                           dict(settings, SIM_IDLE_MS='1'))
        self.assertEqual((result.status, result.out, result.err), (native.status, native.out, native.err))

    def test_allocations(self):
        self.for_a_while('pairs', {})

    def test_launches(self):
        self.for_a_while('launches', EAGER)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, 'a thread that polls leaves no core to others')
    def test_polling(self):
        for _, result in self.same([program('hostile_realtime'), 'poll', str(often(20))], variants=[EAGER],
                                   settings={'SIM_IDLE_MS': '1'}):
            self.assertGreater(result.report()['replay']['withheld'], 0)


if __name__ == '__main__':
    main()
