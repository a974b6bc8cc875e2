# Replay makes calls that the program does not make. Whatever of them fails, the program sees what it
# sees natively: what a graph could not take was submitted one by one, nothing of it twice.

import concurrent.futures
import os
import re

from faults import SOME, UNCOUNTED, Case, main_but_under_tsan, preloaded, run, some, stderr_problem

PROGRAM = os.path.join(os.environ['TEST_PROGRAMS'], os.pardir, 'preload', 'preload_replay')
PARTS = ('exactly', 'diverging', 'uploads', 'pinned', 'legacy', 'events', 'streams', 'host',
         'contexts')
COMMON = {'SIM_IDLE_MS': '1', 'SIM_VIOLATION': 'abort'}
HELD = dict(COMMON, ALLOGRAFT_GRAPH='all', ALLOGRAFT_POLICY='native', ALLOGRAFT_GRAPH_WARMUP='1',
            ALLOGRAFT_GRAPH_PROFIT='0', ALLOGRAFT_GRAPH_HOLD_US='60000000')
VERIFIED = dict(HELD, ALLOGRAFT_GRAPH_VERIFY='2')
CODES = (2, 1, 999)
# Of these an invalid value is the answer to a question past the last parameter.
ENDING = ('cuFuncGetParamInfo', 'cuKernelGetParamInfo')
# Without these replay does not begin, or is off: test_calls.py has them.
OTHERS = ('cuDriverGetVersion', 'cuGetErrorName')
CALL = re.compile(r'^sim: \[\d+\] (cu[A-Z]\w*)', re.M)
MOST = 4 if os.environ.get('TEST_EFFORT') == 'all' else 1
JOBS = int(os.environ.get('TEST_JOBS', '2'))


def called(result):
    """How often each symbol reached the driver."""
    counts = {}
    for symbol in CALL.findall(result.err):
        counts[symbol] = counts.get(symbol, 0) + 1
    return counts


def chosen(count):
    """The first call, one in the middle, and the last; the first four in tools/test.sh --full."""
    return sorted(set(range(1, min(MOST, count) + 1)) | {count // 2 + 1, count})


class Replay(Case):
    def faults(self, part, settings):
        """Every call chosen of the symbols that only we call, with an error each."""
        ours = called(preloaded([PROGRAM, part], dict(settings, SIM_LOG='1'), alone=True))
        theirs = called(run([PROGRAM, part], dict(COMMON, SIM_LOG='1'), alone=True))
        for symbol in sorted(set(ours) - set(theirs) - set(OTHERS)):
            for i, n in enumerate(some(chosen(ours[symbol]))):
                code = CODES[(i + n) % len(CODES)]
                yield '%s:%d:%d' % (symbol, n, 2 if code == 1 and symbol in ENDING else code)

    def problem(self, part, settings, fault, native):
        result = preloaded([PROGRAM, part], dict(settings, SIM_FAIL=fault, **UNCOUNTED), alone=True)
        if (result.out, result.status) != (native.out, native.status):
            return 'ended with %d, and printed\n%s%s' % (result.status, result.out, result.err)
        return stderr_problem(result, native)

    def hold(self, settings, parts, least):
        n = 0
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            for part in parts:
                native = run([PROGRAM, part], COMMON, alone=True)
                runs = [(fault, pool.submit(self.problem, part, settings, fault, native))
                        for fault in self.faults(part, settings)]
                for fault, problem in runs:
                    n += 1
                    with self.subTest(part=part, SIM_FAIL=fault):
                        self.assertIsNone(problem.result())
        self.assertGreater(n, least)

    # Where it takes too long, each part in one of the two ways.
    def test_held(self):
        self.hold(HELD, PARTS[::2] if SOME else PARTS, 25 if SOME else 100)

    def test_verified(self):
        self.hold(VERIFIED, PARTS[1::2] if SOME else PARTS, 25 if SOME else 100)


if __name__ == '__main__':
    main_but_under_tsan('each run takes seconds')
