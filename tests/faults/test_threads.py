# Threads end in the middle while others allocate and free, also when a call fails under them: nobody
# waits for ever for a thread that is gone, and nothing crashes.

import concurrent.futures
import os
import re
import subprocess

from faults import Case, current_blocks, main, preloaded, program, run, some

SETTINGS = ({'ALLOGRAFT_POLICY': 'pool'}, {'ALLOGRAFT_POLICY': 'managed'},
            {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_FREE': 'ordered'},
            {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_CACHE': '64KiB', 'ALLOGRAFT_PENDING': '0'})
SCHEDULERS = ('adversarial', 'eager', 'thread')
SYMBOLS = ('cuMemAlloc_v2', 'cuMemFree_v2', 'cuMemAllocFromPoolAsync', 'cuMemFreeAsync',
           'cuEventRecord', 'cuEventSynchronize', 'cuStreamSynchronize', 'cuCtxRecordEvent',
           'cuCtxWaitEvent', 'cuCtxGetCurrent', 'cuStreamCreate', 'cuEventCreate', 'cuMemPoolCreate',
           'cuStreamWaitEvent')
JOBS = int(os.environ.get('TEST_JOBS', '2'))
THREADS, STEPS = '8', '120'


def start(settings, seed):
    return preloaded([program('faults_threads'), THREADS, STEPS, seed],
                     dict(settings, SIM_VIOLATION='abort'))


class Threads(Case):
    def ends_well(self, result, fault):
        self.assertEqual(result.out, 'violations: 0\n', result.err)
        self.assertEqual(result.status, 3, result.err)
        failed = int(re.search(r'^failed calls: (\d+)$', result.err, re.M).group(1))
        self.assertLessEqual(failed, 1 if fault else 0, result.err)
        # Threads give back what they hold, however they end.
        self.assertEqual(current_blocks(result.report()), 0)

    def test_native(self):
        for scheduler in SCHEDULERS:
            result = run([program('faults_threads'), THREADS, STEPS],
                         {'SIM_SCHED': scheduler, 'SIM_VIOLATION': 'abort'})
            self.assertEqual((result.out, result.status), ('violations: 0\n', 3), result.err)

    def test_without_fault(self):
        for settings in SETTINGS:
            for scheduler in SCHEDULERS:
                for seed in some(('1', '2')):
                    with self.subTest(settings=settings, scheduler=scheduler, seed=seed):
                        self.ends_well(start(dict(settings, SIM_SCHED=scheduler), seed), False)

    def test_with_faults(self):
        every = [(settings, '%s:%d:%d' % (symbol, n, code))
                 for i, settings in enumerate(SETTINGS) for j, symbol in enumerate(SYMBOLS)
                 for n, code in some(((1, 999), (3, 2), (10 + i + j, 1), (40 + 3 * j, 999)))]
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            results = list(pool.map(
                lambda trial: self.try_one(dict(trial[0], SIM_FAIL=trial[1])), every))
        for (settings, fault), result in zip(every, results):
            with self.subTest(settings=settings, fault=fault):
                self.assertIsNotNone(result, 'hangs')
                if result.out == 'no start\n':
                    continue
                self.ends_well(result, True)

    def try_one(self, settings):
        try:
            return start(settings, '1')
        except subprocess.TimeoutExpired:
            return None


if __name__ == '__main__':
    main()
