# Runs a program natively and preloaded under every policy, and compares what came out.

import atexit
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

sys.path[:0] = [os.path.join(os.environ['TEST_ROOT'], *folder) for folder in (('tests', 'tools'), ('tools',))]
import stats_schema  # noqa: E402
from json_schema import problems  # noqa: E402: it lies beside the tests of the report

LIBRARY = os.environ['TEST_LIBRARY']
PROGRAMS = os.environ['TEST_PROGRAMS']
SIM = os.environ['TEST_SIM']
ROOT = os.environ['TEST_ROOT']
# What a run takes that hangs. Tests share a core, and it may be a busy one.
SECONDS = float(os.environ.get('TEST_SECONDS', '180'))

# Settings of one preloaded run. What the host can tell apart is promised for `auto` and `sync`;
# the forced `ordered` promises the device's order only.
POLICIES = [{'ALLOGRAFT_POLICY': p} for p in ('pool', 'native', 'managed', 'auto')]
FORCED = [{'ALLOGRAFT_POLICY': p, 'ALLOGRAFT_FREE': f}
          for p, f in (('pool', 'sync'), ('pool', 'ordered'), ('managed', 'sync'), ('auto', 'sync'))]
UNCACHED = [{'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_CACHE': '0'}]
DISABLED = [{'ALLOGRAFT_DISABLE': '1'}]
EVERY = POLICIES + FORCED + UNCACHED + DISABLED
EXACT = [v for v in EVERY if v.get('ALLOGRAFT_FREE') != 'ordered']

SCHEMA = stats_schema.schema_of(os.path.join(ROOT, 'tools', 'allograft-stats.schema.json.in'),
                                os.path.join(ROOT, 'interpose', 'core', 'report', 'stats.def'))

SEEDS = ('1', '2', '3')

# "some": where a run takes ten times as long (tests/tools/meson.build), every part of a program runs, natively
# and preloaded, but under a few of the variants, other ones for each part. The plain build runs half of them, "all" all.
SOME = os.environ.get('TEST_EFFORT') == 'some'
EVERYTHING = os.environ.get('TEST_EFFORT') == 'all'

# Under an emulator (tests/arm/emulated.sh) the machine's own programs, such as shells, are of another kind than the
# library, and their loader says so, of each library that it is to preload or that is to audit it.
EMULATED = os.environ.get('TEST_EMULATED') == 'yes'
NOT_LOADED = re.compile(r"^ERROR: ld\.so: object '[^']*' (?:from LD_PRELOAD cannot be preloaded|cannot be loaded as audit "
                        r"interface).*\n", re.M)


def without_loader(err):
    """What is said on stderr but for that."""
    return NOT_LOADED.sub('', err) if EMULATED else err


# Counters of killed programs lie here and not among the user's own.
COUNTERS = tempfile.mkdtemp(prefix='counters-', dir='/dev/shm' if os.path.isdir('/dev/shm') else None)
atexit.register(shutil.rmtree, COUNTERS, ignore_errors=True)


class Result:
    """How a run ended, what it printed, and the reports it left, by process id."""

    def __init__(self, status, out, err, folder):
        self.status = status
        self.out = out
        self.err = without_loader(err)
        self.files = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding='utf-8', errors='replace') as f:
                self.files[name] = f.read()

    def reports(self):
        """All JSON reports of the run, each held against the schema."""
        found = [json.loads(text) for name, text in self.files.items() if name.endswith('.json')]
        for report in found:
            wrong = problems(report, SCHEMA, closed=True)
            if wrong:
                raise AssertionError('against the schema: %s' % wrong)
        return found

    def report(self):
        """The one report of the run."""
        found = self.reports()
        if len(found) != 1:
            raise AssertionError('%d reports instead of one: %s; stderr: %s'
                                 % (len(found), sorted(self.files), self.err))
        return found[0]


def program(name):
    return os.path.join(PROGRAMS, name)


def sanitizer_runtime():
    """A library built with a sanitizer needs its runtime loaded before it."""
    listed = subprocess.run(['ldd', LIBRARY], stdout=subprocess.PIPE,
                            universal_newlines=True).stdout
    return re.findall(r'lib[at]san\S* => (\S+)', listed)


RUNTIME = sanitizer_runtime()
UNDER_TSAN = any('libtsan' in runtime for runtime in RUNTIME)
# What one thread of a program does, and others only show again, is AddressSanitizer's and the plain build's to run.
but_under_tsan = unittest.skipIf(UNDER_TSAN, 'one thread of the program')


def clean_environment():
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(('ALLOGRAFT_', 'SIM_', 'TEST_')) and k != 'LD_PRELOAD'}
    env['LD_LIBRARY_PATH'] = os.pathsep.join(filter(None, [SIM, env.get('LD_LIBRARY_PATH')]))
    env['XDG_STATE_HOME'] = '/dev/null'  # nothing is remembered from one test to another
    if RUNTIME:
        # A dlsym that passes on by a jump and programs killed on purpose leave no time for leaks.
        env['ASAN_OPTIONS'] = 'detect_leaks=0:verify_asan_link_order=0:handle_sigill=1'
    return env


def ended(process, seconds):
    """Its exit status; without waking up for each line that it writes, or looking whether it has ended."""
    try:
        fd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # an older machine
        return process.wait(seconds)
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        if not poller.poll(seconds * 1000):
            raise subprocess.TimeoutExpired(process.args, seconds)
        return process.wait()
    finally:
        os.close(fd)


def output_of(command, env):
    """(status, stdout, stderr) of a process that leaves none behind to write."""
    with open(os.memfd_create('out'), 'w+b') as out, open(os.memfd_create('err'), 'w+b') as err:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            status = ended(process, SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        out.seek(0)
        err.seek(0)
        return status, out.read(), err.read()


def run(command, settings=None, preload=(), stats='stats.%p.json', alone=False):
    """Runs command (path or list) with the given variables; stats is where the report goes, inside
    a folder of the run's own, None for leaving ALLOGRAFT_STATS alone. `alone`: no child of it outlives it,
    which is cheaper to watch."""
    folder = tempfile.mkdtemp(prefix='preload-')
    try:
        env = clean_environment()
        env['ALLOGRAFT_COUNTERS'] = COUNTERS
        if stats is not None and LIBRARY in preload:
            env['ALLOGRAFT_STATS'] = os.path.join(folder, stats)
        env.update({k: v.replace('@FOLDER@', folder) for k, v in (settings or {}).items()})
        if preload:
            env['LD_PRELOAD'] = ':'.join(RUNTIME + list(preload))
        command = command if isinstance(command, list) else [command]
        if alone:
            status, out, err = output_of(command, env)
        else:
            done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=SECONDS)
            status, out, err = done.returncode, done.stdout, done.stderr
        return Result(status, out.decode('utf-8', 'replace'), err.decode('utf-8', 'replace'), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def preloaded(command, settings=None, **more):
    return run(command, settings, preload=more.pop('preload', (LIBRARY,)), **more)


turn = 0


def some(sequence, n=1):
    """All of the sequence; or where that takes too long n of it, the next ones each time."""
    global turn
    sequence = list(sequence)
    if not SOME or n >= len(sequence):
        return sequence
    turn += n
    return [sequence[(turn + i) % len(sequence)] for i in range(n)]


def share(sequence):
    """Of what takes long and is alike one half for each of the builds without and with a sanitizer; all of it in
    tools/test.sh --full."""
    sequence = list(sequence)
    return sequence if EVERYTHING else sequence[SOME::2]


def half(sequence):
    """Of more than two one half, the other one each time; all of it in tools/test.sh --full."""
    global turn
    sequence = list(sequence)
    if EVERYTHING or len(sequence) <= 2:
        return sequence
    turn += 1
    return sequence[turn % 2::2]


def every_other_time(sequence):
    """One of them, another one each time, or none."""
    global turn
    turn += 1
    return [sequence[turn // 2 % len(sequence)]] if sequence and turn % 2 else []


def chosen(variants, first):
    """The variants to run under one seed: the first of them, which tests look into, is always among those of
    the first seed. Of the others one half; with a sanitizer one every other time."""
    variants, few = list(variants), some if SOME else half
    others = every_other_time if RUNTIME else few
    return variants[:1] + others(variants[1:]) if first else few(variants)


def title(settings):
    return ' '.join('%s=%s' % item for item in sorted(settings.items())) or 'default'


natives = {}  # what was run, by command and settings


def native_run(command, settings, says=None):
    """The native run that others are compared with, once for all comparisons of a test's script; under a sanitizer
    what it is known to say, if it is."""
    if RUNTIME and says is not None:
        return types.SimpleNamespace(status=0, out=says, err='')
    key = repr((command, sorted(settings.items())))
    if key not in natives:
        natives[key] = run(command, settings)
    return natives[key]


class Case(unittest.TestCase):
    maxDiff = None

    def same(self, command, variants=None, drop=None, seeds=SEEDS[:1], settings=None, quiet=True,
             signal=False, preload=(LIBRARY,), says=None):
        """The run under each variant ends and prints as the native one does. Lines that match
        `drop` (a pattern, or a function of the variant that gives one or None) are left out;
        `signal`: the program is meant to be ended by one; `says`: all that the program prints natively.
        Returns the preloaded results as (variant, result)."""
        results, seeds = [], some(seeds)
        for seed in seeds:
            common = dict(settings or {}, SIM_SEED=seed)
            native = native_run(command, common, says)
            self.sane(native, signal)
            if says is not None:
                self.assertEqual(native.out, says)
            for variant in chosen(EXACT if variants is None else variants, seed == seeds[0]):
                pattern = drop(variant) if callable(drop) else drop
                with self.subTest(variant=title(variant), seed=seed):
                    result = preloaded(command, dict(common, **variant), preload=preload)
                    self.assertEqual(lines(native.out, pattern), lines(result.out, pattern),
                                     result.err)
                    self.assertEqual(native.status, result.status, result.err)
                    if quiet:
                        self.assertEqual(native.err, result.err)
                    results.append((variant, result))
        return results

    def sane(self, native, signal=False):
        """A native run that does not do what the program was written for compares nothing."""
        self.assertEqual(native.status < 0, signal, native.out + native.err)
        self.assertNotIn(native.status, (86, 97, 98, 99), native.out + native.err)
        self.assertNotEqual(native.out, '', native.err)


def lines(text, pattern):
    return [line for line in text.splitlines() if not (pattern and re.search(pattern, line))]


def main():
    result = unittest.main(module='__main__', exit=False, verbosity=1).result
    sys.exit(0 if result.wasSuccessful() else 1)
