# Launches compute the same bytes whether or not they are watched; what they use is brought to the
# device before them, once.

import os
import re

from harness import EVERY, SEEDS, SIM, Case, lines, main, preloaded, program, run, some

MANAGED = {'ALLOGRAFT_POLICY': 'managed', 'ALLOGRAFT_PREFETCH': 'launch'}
PLAIN = dict(MANAGED, ALLOGRAFT_MANAGED_BACKEND='plain')
POOL = dict(MANAGED, ALLOGRAFT_MANAGED_BACKEND='pool')
UNCACHED = dict(MANAGED, ALLOGRAFT_CACHE='0')
BY_RULE = {'ALLOGRAFT_POLICY': 'pool',
           'ALLOGRAFT_RULES': 'size>=4MiB:managed,prefetch=launch,backend=plain'}
WATCHED = [MANAGED, PLAIN, POOL, UNCACHED, BY_RULE, {'ALLOGRAFT_PREFETCH': 'launch'}]
PARTS = ('kinds', 'per-thread', 'refused', 'unloaded', 'captures', 'reset', 'peers', 'threads')
BYTES = 4 << 20


def without_residency(result):
    return lines(result.out, '^resident')


class Launches(Case):
    def part(self, name, settings):
        result = preloaded([program('preload_launches'), name], settings)
        self.assertEqual(result.status, 0, result.out + result.err)
        return result, [int(n) for n in re.findall(r'^resident: (\d+)$', result.out, re.MULTILINE)]

    def test_same(self):
        for name in PARTS:
            with self.subTest(part=name):
                self.same([program('preload_launches'), name], variants=EVERY + WATCHED,
                          drop='^resident', seeds=SEEDS if name == 'threads' else SEEDS[:1],
                          settings={'SIM_DEVICES': '2'})

    def test_nothing_is_prefetched_otherwise(self):
        for settings in EVERY:
            if settings.get('ALLOGRAFT_DISABLE'):
                continue
            result, _ = self.part('kinds', settings)
            managed = result.report()['managed']
            with self.subTest(settings=settings):
                self.assertEqual(managed['launches_looked_at'], 0)
                self.assertEqual(managed['launch_prefetches'], 0)
                self.assertNotIn('cuLaunchKernel', result.report()['coverage']['hooks'])

    def test_what_a_kernel_uses_is_there_before_it(self):
        for settings in (PLAIN, BY_RULE, POOL):
            result, resident = self.part('kinds', settings)
            managed = result.report()['managed']
            with self.subTest(settings=settings):
                self.assertEqual(resident, [BYTES] * 6, result.out)
                self.assertEqual(managed['launch_prefetches'], 5)
                self.assertGreaterEqual(managed['launch_prefetch_bytes'], 5 * BYTES)
                self.assertEqual(managed['launch_prefetches_failed'], 0)
                self.assertEqual(managed['launches_of_unknown_layout'], 0)
                self.assertEqual(result.report()['coverage']['hooks']['cuLaunchKernel'], 4)

    def test_per_thread_streams(self):
        result, resident = self.part('per-thread', dict(PLAIN, ALLOGRAFT_CACHE='0'))
        self.assertEqual(resident, [BYTES] * 3, result.out)
        self.assertEqual(result.report()['managed']['launch_prefetches'], 3)

    def test_cached_blocks_are_there_already(self):
        kept = self.part('per-thread', PLAIN)[0].report()['managed']
        self.assertEqual(kept['launch_prefetches'], 1)

    def test_nothing_of_a_capture_is_touched(self):
        result, resident = self.part('captures', UNCACHED)
        managed = result.report()['managed']
        self.assertEqual(managed['launch_prefetches_failed'], 0)
        # Not while a capture is open; afterwards, before the launch that comes first.
        self.assertEqual(managed['launch_prefetches'], 3, result.out)
        self.assertEqual(resident, [BYTES] * 3, result.out)

    def test_code_that_goes(self):
        result, resident = self.part('unloaded', dict(PLAIN, ALLOGRAFT_CACHE='0'))
        managed = result.report()['managed']
        # Two blocks a turn, each seen where the kernel's own layout has it.
        self.assertEqual(managed['launch_prefetches'], 24, result.out)
        self.assertEqual(resident, [BYTES] * 24)

    def test_after_a_reset(self):
        result, resident = self.part('reset', dict(PLAIN, ALLOGRAFT_CACHE='0'))
        self.assertEqual(resident, [BYTES] * 8, result.out)
        self.assertEqual(result.report()['managed']['launch_prefetches'], 8)

    def test_each_device_gets_it(self):
        result, resident = self.part('peers', dict(PLAIN, SIM_DEVICES='2'))
        # On its own device, and after a launch on the other one: gone from the first, on the other.
        self.assertEqual(resident, [BYTES, 0, BYTES] * 3, result.out)
        self.assertEqual(result.report()['managed']['launch_prefetches'], 6)

    def test_refused_calls_of_ours(self):
        for name in ('kinds', 'threads'):
            native = run([program('preload_launches'), name])
            for symbol in ('cuMemPrefetchAsync_v2', 'cuFuncGetParamInfo', 'cuKernelGetParamInfo',
                           'cuStreamIsCapturing', 'cuCtxGetCurrent'):
                for n, code in some((('1', '1'), ('2', '719'), ('5', '400'))):
                    with self.subTest(symbol=symbol, n=n):
                        settings = dict(PLAIN, SIM_FAIL='%s:%s:%s' % (symbol, n, code))
                        result, _ = self.part(name, settings)
                        self.assertEqual(without_residency(native), without_residency(result))
                        failed = result.report()['managed']['launch_prefetches_failed']
                        if symbol != 'cuMemPrefetchAsync_v2':
                            self.assertEqual(failed, 0)
                        elif name == 'kinds' or n == '1':  # threads may need fewer than five
                            self.assertEqual(failed, 1)

    def test_old_drivers(self):
        for version, knows in (('12020', False), ('12040', True)):
            old = {'LD_LIBRARY_PATH': os.path.join(SIM, 'age', version)}
            native = run([program('preload_launches'), 'kinds'], old)
            result, _ = self.part('kinds', dict(PLAIN, **old))
            managed = result.report()['managed']
            with self.subTest(version=version):
                self.assertEqual(without_residency(native), without_residency(result))
                self.assertEqual('does not tell the parameters' in result.err, not knows)
                self.assertEqual(managed['launches_of_unknown_layout'] > 0, not knows)
                # What is in a packed buffer is seen without being told.
                self.assertEqual(managed['launch_prefetches'], 5 if knows else 1)


if __name__ == '__main__':
    main()
