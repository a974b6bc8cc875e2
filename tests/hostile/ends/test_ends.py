# However a process ends, it ends: within a bound where natively nobody would have waited.

import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from hostile import RUNTIME, Case, main, often, preloaded, program, run

# What the host sees of a forced ordered free is not promised in general, but the wait at the end is.
ORDERED = {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_FREE': 'ordered'}
# Of memory that is ordered when it is freed, from the first time on.
POOL = {'ALLOGRAFT_POLICY': 'pool'}
REPLAYED = {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_GRAPH': 'all'}
PENDING = [{}, POOL, ORDERED, REPLAYED, {'ALLOGRAFT_FREE': 'sync'}]


class Ends(Case):
    def ends_alike(self, cases, status, out, schedule='eager'):
        """Each (program, argument ..., settings) ends natively and preloaded with that status and output. Most of
        their time they wait, so all of them do at once."""
        def each(how, case):
            return how([program(case[0])] + list(case[1:-1]), dict(case[-1], SIM_SCHED=schedule))
        with ThreadPoolExecutor(12) as pool:
            both = [(pool.submit(each, run, case), pool.submit(each, preloaded, case)) for case in cases]
            results = [(native.result(), result.result()) for native, result in both]
        for case, (native, result) in zip(cases, results):
            with self.subTest(case=case):
                self.assertEqual((native.status, native.out), (status, out), native.err)
                self.assertEqual((result.status, result.out), (status, out), result.err)
        return [result for _, result in results]

    def test_handler_inside_the_driver(self):
        cases = [('hostile_ends_inside', what, settings) for what in ('free', 'pool') for settings in PENDING]
        self.ends_alike(cases + [('hostile_ends_inside', 'free unblocked', {})], 7, 'it begins\n')

    def test_handler_anywhere(self):
        self.ends_alike([('hostile_ends_inside', 'anywhere', settings)
                         for settings in ({}, {'ALLOGRAFT_GRAPH': 'all'}) for _ in range(often(4))],
                        7, 'it begins\n')

    def test_kernel_that_never_ends(self):
        cases = [('hostile_ends_never', '_exit', POOL), ('hostile_ends_never', 'exit', ORDERED),
                 ('hostile_ends_never', 'quick_exit', POOL), ('hostile_ends_never', 'exec', ORDERED),
                 ('hostile_ends_never', 'signal', POOL), ('hostile_ends_never', 'signal', ORDERED)]
        for result in self.ends_alike(cases, 5, 'it begins\n'):
            self.assertEqual(result.report()['frees']['late_waits'].get('given_up'), 1)

    def test_what_is_pending(self):
        """Who is waited for natively is waited for; and the thread that freed waits for longer than any bound."""
        cases = [('hostile_ends_pending', who, '700', ORDERED)
                 for who in ('main', 'worker', 'main_after_worker', 'handler', '_exit', 'exec')]
        cases.append(('hostile_ends_pending', 'main', '5500', ORDERED))
        # Its free needs no fence of its own, but waits for the kernel all the same.
        cases.append(('hostile_ends_pending', 'main_frees_after_worker', '5500',
                      {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_CACHE': '0'}))
        results = self.ends_alike(cases, 4, 'the kernel has ended\n', 'adversarial')
        for result in results:
            self.assertEqual(result.report()['frees']['late_waits'].get('exit'), 1)

    def test_exec_in_vain(self):
        """It leaves no trace: one report, at the end, and frees are ordered as before."""
        with tempfile.TemporaryDirectory() as folder:
            for settings, way in ((POOL, 'watched'), (REPLAYED, 'null_stream')):
                for _, result in self.same([program('hostile_ends_not'), folder], [settings]):
                    frees = result.report()['frees']
                    self.assertEqual((frees['drained'], frees[way]), (0, 200))
            told = preloaded([program('hostile_ends_not'), folder], {'ALLOGRAFT_STATS': 'stderr'})
            self.assertEqual(told.err.count('(process '), 1, told.err)

    def test_no_threads(self):
        """Nobody could wait at the end, so nothing is left pending: frees wait for the device."""
        for settings in (POOL, ORDERED, REPLAYED):
            for _, result in self.same([program('hostile_no_threads')], [settings], quiet=False):
                frees = result.report()['frees']
                self.assertEqual((frees['drained'], frees['drain_reasons']['no_thread']), (10, 10))

    def test_jump_out_of_a_wait(self):
        """A call that is left so is over: those after it are served as before."""
        for settings, way in ((POOL, 'watched'), (REPLAYED, 'context_fence')):
            for _, result in self.same([program('hostile_jumps_out')], [settings]):
                self.assertEqual(result.report()['coverage']['hooks']['cuMemFree_v2'], 40)
                self.assertEqual(result.report()['frees']['native'], 0)
                self.assertEqual(result.report()['frees'][way], 40)

    @unittest.skipIf(RUNTIME, "a sanitizer's own end asks for more")
    def test_filter_of_system_calls(self):
        """With the settings that docs/guarantees.md names, the end asks the kernel for getpid alone."""
        if run(program('hostile_ends_filtered')).status == 77:
            self.skipTest('no filter of system calls can be set here')
        quiet = {'ALLOGRAFT_STATS': 'off', 'ALLOGRAFT_COUNTERS': 'off', 'ALLOGRAFT_FREE': 'sync'}
        self.ends_alike([('hostile_ends_filtered', quiet)], 3, 'locked in\n')


if __name__ == '__main__':
    main()
