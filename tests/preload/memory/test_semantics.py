# Return codes, ranges, attributes, figures and bytes are the native run's, under every policy.

import unittest

from harness import EMULATED, EVERY, EXACT, POLICIES, SEEDS, Case, main, program


def unless_managed(pattern):
    """Managed memory says truthfully that it is managed: those lines differ."""
    return lambda variant: pattern if variant.get('ALLOGRAFT_POLICY') == 'managed' else None


class Semantics(Case):
    def test_edges(self):
        self.same(program('preload_edges'))

    def test_ranges(self):
        # What managed memory takes from the device shows when it gets there.
        self.same(program('preload_ranges'), drop=unless_managed(r'^64 MiB taken'))

    def test_attributes(self):
        self.same(program('preload_attributes'), drop=unless_managed(r'^kind:'))

    def test_buffer_id(self):
        self.same(program('preload_buffer_id'))

    @unittest.skipIf(EMULATED, 'host memory lies within 256 MiB of device memory, where the ledger alone cannot tell')
    def test_questions_are_one_call_each(self):
        self.same([program('preload_attributes'), 'calls'], variants=EVERY)

    def test_threads(self):
        self.same(program('preload_threads'), variants=EVERY, seeds=SEEDS)

    def test_threads_that_wait_for_the_same_frees(self):
        bounded = {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_CACHE': '0', 'ALLOGRAFT_SLAB': '0',
                   'ALLOGRAFT_PENDING': '64K'}
        for _, result in self.same(program('preload_threads'), variants=[bounded]):
            self.assertLess(result.report()['frees']['pending_peak_bytes'], 1 << 30)

    def test_after_an_error(self):
        self.same([program('preload_edges'), 'broken'], settings={'SIM_VIOLATION': 'count'}, quiet=False)

    def test_full(self):
        """Nobody waits for the device where natively nobody does."""
        limited = {'ALLOGRAFT_LIMIT': '8MiB'}
        for when in ('full', 'full-in-capture'):
            self.same([program('preload_edges'), when],
                      variants=[dict(limited, ALLOGRAFT_OOM=oom, ALLOGRAFT_POLICY=policy)
                                for oom in ('spill', 'error') for policy in ('auto', 'pool', 'managed')])

    def test_contexts(self):
        self.same(program('preload_contexts'), EXACT + [{'ALLOGRAFT_POLICY': 'managed', 'ALLOGRAFT_MANAGED_BACKEND': 'plain'}])
        self.same([program('preload_contexts'), 'relieved'], seeds=SEEDS)
        self.same([program('preload_contexts'), 'beside'], EXACT + [{'ALLOGRAFT_LIMIT': '1GiB'}, {'ALLOGRAFT_CACHE': 'max'}])
        self.same([program('preload_contexts'), 'captured'], variants=EVERY)
        self.same([program('preload_contexts'), 'unspilled'], variants=[
            {'ALLOGRAFT_LIMIT': '16MiB', 'ALLOGRAFT_OOM': 'spill', 'ALLOGRAFT_UNSPILL': '1'}])
        self.same([program('preload_contexts'), 'aside'], variants=[{'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_FREE': 'ordered'}],
                  settings={'SIM_STALL': '2'}, says='violations: 0\n')
        # It can be refused for each of the contexts that end with work under way.
        for n in range(1, 4):
            self.same(program('preload_contexts'), variants=POLICIES, settings={'SIM_FAIL': 'cuCtxPushCurrent_v2:%d' % n})

    def test_peers(self):
        # A copy into a pool that is not open to the other device succeeds, and copies nothing.
        for refused in ('cuMemPoolSetAccess:1', 'cuMemPoolSetAccess:2', 'cuDeviceCanAccessPeer:1', 'cuDeviceGetCount:1'):
            self.same([program('preload_contexts'), 'peers'], settings={'SIM_DEVICES': '2', 'SIM_FAIL': refused}, quiet=False)

    def test_threads_retain_the_primary_context(self):
        for part in ('both', 'neither', 'anew'):
            self.same([program('preload_retains'), part], variants=EVERY)
        self.same([program('preload_retains'), 'often'], variants=EVERY, seeds=SEEDS)
        # The work of the first stream runs last, unless the second one's waits for it.
        self.same([program('preload_retains'), 'second'], settings={'SIM_SCHED': 'lazy'})


if __name__ == '__main__':
    main()
