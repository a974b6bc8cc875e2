# Fails one driver call at a time, each call a program leads to, its own and those we make for it.
#
# A run in which a call fails must end, and print either what the native run prints (we did without
# the call) or what the native run prints in which the program's own call of that symbol fails. An
# error of a call that the program did not make reaches it only if it is one that no later call can
# escape (a broken context). The report's count of blocks is what the program says it holds.
#
# --exhaustive: every call, every code, under every setting; else the first calls of each symbol and the
# last, with another code under each setting. AddressSanitizer's build and the plain one share these out.

import concurrent.futures
import functools
import os
import re
import subprocess
import sys
import zlib

from faults import (SOME, UNCOUNTED, Case, main_but_under_tsan, native_run, preloaded, program,
                    report_problems, stderr_problem)

CODES = (1, 2, 4, 100, 201, 400, 700, 719, 801, 900, 999)
# After these the context, or the driver, is gone: whatever call comes next may say so.
BROKEN = (4, 700, 719)
# What a free in a capture may say.
IN_CAPTURE = range(900, 908)

# A violation ends the process at once, so that none of our handlers runs inside the simulation.
PROGRAMS = [(name, dict(settings, SIM_VIOLATION='abort')) for name, settings in (
    ('mix', {}), ('contexts', {}), ('release', {}), ('capture', {}), ('queries', {}),
    ('tight', {'SIM_MEMORY': '16MiB'}), ('pending', {}))]
SETTINGS = ({}, {'ALLOGRAFT_POLICY': 'pool'},
            {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_CACHE': '0', 'ALLOGRAFT_PENDING': '0'},
            {'ALLOGRAFT_POLICY': 'managed'},
            {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_FREE': 'ordered'},
            {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_FREE': 'sync'})

# What concerns pools of the program alone.
POOLS = ('pools', {'SIM_VIOLATION': 'abort'})
POOL_SETTINGS = ({'ALLOGRAFT_POLICY': 'pool'},
                 {'ALLOGRAFT_APP_POOL_KEEP': 'max', 'ALLOGRAFT_POLICY': 'native'},
                 {'ALLOGRAFT_RULES': '*:async=managed', 'ALLOGRAFT_APP_POOL_KEEP': '10%'},
                 {'ALLOGRAFT_LIMIT': '512MiB'})
# What guards ask of the driver, in programs that allocate most.
GUARDED = ('mix', 'contexts', 'capture', 'release')
GUARD_SETTINGS = ({'ALLOGRAFT_GUARD': 'canary'}, {'ALLOGRAFT_GUARD': 'poison', 'ALLOGRAFT_POLICY': 'pool'},
                  {'ALLOGRAFT_GUARD': 'page'})
MIXTURES = ([(name, common, settings) for name, common in PROGRAMS for settings in SETTINGS] +
            [POOLS + (settings,) for settings in POOL_SETTINGS] +
            [(name, common, settings) for name, common in PROGRAMS if name in GUARDED
             for settings in GUARD_SETTINGS])

# What ends a context takes its memory along before the driver is asked. If the driver then refuses, the
# program has lost it: only that nothing crashes or hangs is asked of these.
ENDING = ('cuCtxDestroy_v2', 'cuDevicePrimaryCtxRelease_v2', 'cuDevicePrimaryCtxReset_v2')
# Without an answer to these we do not know whose memory it is, and keep no account of it.
UNKNOWING = ('cuCtxGetCurrent', 'cuCtxGetDevice', 'cuDeviceTotalMem_v2')

STEP = re.compile(r'^(\w+) (\d+): (\d+)$')
# The first call of a symbol, and its last. The first four are in tools/test.sh --full.
MOST = 4 if os.environ.get('TEST_EFFORT') == 'all' else 1
EXHAUSTIVE = '--exhaustive' in sys.argv
JOBS = int(os.environ.get('TEST_JOBS', '2'))


def first_difference(lines, others):
    for i, line in enumerate(lines):
        if i >= len(others) or others[i] != line:
            return line
    return None


def judge(name, common, settings, fault):
    """Runs the program with that fault, and says what is wrong with it, or None."""
    symbol, n, code = fault
    native = native_run(name, common)
    try:
        result = preloaded([program('faults_program'), name],
                           dict(common, SIM_FAIL='%s:%d:%d' % fault, **UNCOUNTED, **settings), alone=True)
    except subprocess.TimeoutExpired:
        return 'hangs'
    if symbol in ENDING:
        return None if result.status in (native.status, -6) else 'status %d' % result.status
    if 'sim: violation' in result.err:
        return 'violation: ' + result.err.splitlines()[0]
    if result.out != native.out:
        line = first_difference(result.out.splitlines(), native.out.splitlines())
        step = STEP.match(line or '')
        if not step:
            return 'ends after other lines: %r, status %d' % (line, result.status)
        if int(step.group(3)) != code:
            return 'another error: %r' % line
        legal = code in BROKEN or (code in IN_CAPTURE and name == 'capture')
        if step.group(1) != symbol and not legal:
            return 'an error of ours reached the program: %r' % line
        native = native_run(name, dict(common, SIM_FAIL='%s:%s:%d' % (step.group(1),
                                                                    step.group(2), code)))
    if result.out != native.out:
        return 'prints %r, natively %r' % (
            first_difference(result.out.splitlines(), native.out.splitlines()),
            first_difference(native.out.splitlines(), result.out.splitlines()))
    if result.status != native.status:
        return 'status %d, natively %d' % (result.status, native.status)
    return stderr_problem(result, native) or report_problems(
        result, uncounted=1 if symbol in UNKNOWING else 0)


def faults_of(name, calls, salt):
    """(symbol, n, code) for the calls of one run; a part of them unless all are wanted."""
    for symbol, count in sorted(calls.items()):
        for n in range(1, count + 1):
            if EXHAUSTIVE:
                for code in CODES:
                    yield symbol, n, code
            elif n <= MOST or n == count:
                yield symbol, n, CODES[(zlib.crc32((name + symbol).encode()) + n + 4 * salt)
                                       % len(CODES)]


def once(function):
    """Of its arguments, which are not hashable, their text says which they are."""
    known = {}

    @functools.wraps(function)
    def remembered(*args):
        key = repr(args)
        if key not in known:
            known[key] = function(*args)
        return known[key]
    return remembered


@once
def clean_run(name, common, settings):
    """Without a fault, and with a list of the calls that were made."""
    return preloaded([program('faults_program'), name], dict(common, STEP_CALLS='@FOLDER@/calls', **settings))


def is_ours(symbol, salt):
    """Each symbol fails in each program under an eighth of its settings with sanitizers, and under three other eighths
    without; under all of them in tools/test.sh --full."""
    eighth = (zlib.crc32(symbol.encode()) + salt) % 8
    return EXHAUSTIVE or MOST > 1 or (eighth == 0 if SOME else 1 <= eighth <= 3)


def trials(name, common, settings):
    """What to fail in one program under some settings: the calls of a run without fault."""
    clean = clean_run(name, common, settings)
    calls = dict((line.split()[0], int(line.split()[1]))
                 for line in clean.files['calls'].splitlines())
    salt = (*SETTINGS, *POOL_SETTINGS, *GUARD_SETTINGS).index(settings)
    return [(name, common, settings, fault) for fault in faults_of(name, calls, salt) if is_ours(fault[0], salt)]


def title(trial):
    name, _, settings, fault = trial
    return '%s %s SIM_FAIL=%s:%d:%d' % (
        (name, ' '.join('%s=%s' % s for s in sorted(settings.items()))) + fault)


class Calls(Case):
    def test_without_fault(self):
        for name, common, settings in MIXTURES:
            with self.subTest(program=name, settings=settings):
                native = native_run(name, common)
                clean = clean_run(name, common, settings)
                self.assertEqual(native.out, clean.out)
                self.assertEqual((native.status, native.err), (clean.status, clean.err))
                self.assertIsNone(report_problems(clean))

    def test_every_call_may_fail(self):
        every = [trial for mixture in MIXTURES for trial in trials(*mixture)]
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            problems = list(pool.map(lambda trial: judge(*trial), every))
        wrong = ['%s: %s' % (title(trial), problem)
                 for trial, problem in zip(every, problems) if problem]
        print('%d faults in %d programs' % (len(every), len(PROGRAMS) + 1))
        self.assertGreater(len(every), 200 if SOME else 500)
        self.assertEqual(len(wrong), 0, '\n'.join(wrong))


if __name__ == '__main__':
    sys.argv = [a for a in sys.argv if a != '--exhaustive']
    main_but_under_tsan('programs of one thread')
