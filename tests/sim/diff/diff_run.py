#!/usr/bin/env python3
# diff-run: random programs natively and under every policy: the same bytes and codes, and no leak.
#
# Exit status: 0 no difference, 1 differences (each with the command that shows it), 2 bad usage.

import argparse
import collections
import concurrent.futures
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import diff_policies

HERE = os.path.dirname(os.path.abspath(__file__))

STEPS = ('over_limit', 'caches_emptied', 'trimmed', 'retried', 'other_calls', 'native', 'spilled',
         'refused', 'unspilled', 'unspilled_bytes', 'waits_in_vain')
CHUNK = 25  # seeds
JOBS = min(os.cpu_count() or 1, 8)


class Run:
    """One line of diff-program --batch."""

    def __init__(self, words):
        self.skipped = words[2] == 'skip'
        if not self.skipped:
            self.status, self.n_ops = int(words[2]), int(words[3])
            self.full, self.soft = words[4], words[5]
            self.left, self.marks_missing = int(words[6]), int(words[7])
            # What to compare with instead of the native run: the same program, refused the same.
            self.twin = Run(words[:2] + words[8:12] + ['0', '0']) if len(words) > 8 else None


# What programs may have more of: options of diff-program, of tests/sim/replay, and ours.
KINDS = ('ipc', 'iterations', 'pageable', 'large', 'graphs', 'pools', 'arrays')


class Runner:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.lock = threading.Lock()
        self.n_seeds = self.n_runs = self.n_operations = 0
        self.differences = []
        self.steps = collections.Counter()  # the library's counters of some groups

    def kinds(self):
        """The options that say what the programs have."""
        return ['--' + kind for kind in KINDS if getattr(self.args, kind)]

    def command(self, *more):
        options = ['--threads', str(self.args.threads)]
        options += self.kinds()
        if self.args.lookup:
            options += ['--lookup', self.args.lookup]
        return [self.args.program] + options + list(more)

    def environment(self, preloaded):
        env = {k: v for k, v in os.environ.items() if not k.startswith(('ALLOGRAFT_', 'SIM_'))}
        env['LD_LIBRARY_PATH'] = self.args.sim
        if not preloaded:
            env.pop('DIFF_HANG', None)
        if preloaded:
            env['LD_PRELOAD'] = ':'.join(sanitizer_runtime(self.args.library) + [self.args.library])
            # A file of counters for each of thousands of processes costs as much as many a program.
            env.update(ALLOGRAFT_LOG='off', ALLOGRAFT_STATS='off', ALLOGRAFT_COUNTERS='off')
        if 'ASAN_OPTIONS' in env or sanitizer_runtime(self.args.library):
            env['ASAN_OPTIONS'] = 'detect_leaks=0:verify_asan_link_order=0:handle_sigill=1'
        return env

    def batch(self, first, last, variants, preloaded):
        more = ['--batch', '%d-%d' % (first, last)]
        if preloaded and self.args.stats:
            more += ['--stats', os.path.join(self.folder, 'stats-%d.json' % threading.get_ident())]
            more += ['--count'] if self.args.steps or self.args.need or self.args.none else []
        for name, settings in variants.items():
            more += ['--variant', '%s:%s' % (name, settings)]
        done = subprocess.run(self.command(*more), env=self.environment(preloaded),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        runs = {}
        for line in done.stdout.splitlines():
            words = line.split()
            if words[0] == '#':
                with self.lock:
                    self.steps[words[1]] += int(words[2])
                continue
            runs[int(words[0]), words[1]] = Run(words)
        if done.returncode or len(runs) != (last - first + 1) * len(variants):
            raise SystemExit('diff-program failed: status %d\n%s%s'
                             % (done.returncode, done.stdout[-500:], done.stderr[-2000:]))
        return runs

    def chunk(self, first, last):
        native = self.batch(first, last, {'plain': ''}, False)
        runs = self.batch(first, last, self.args.variants, True)
        found = []
        for seed in range(first, last + 1):
            plain = native[seed, 'plain']
            if plain.status != 0 or plain.marks_missing:
                found.append((seed, 'plain', 'the program or the simulation is wrong: natively '
                              'status %d, %d marks missing'
                              % (plain.status, plain.marks_missing)))
                continue
            for name, settings in self.args.variants.items():
                wrong = compare(plain, runs[seed, name], diff_policies.is_soft(settings) or self.args.soft)
                if wrong:
                    found.append((seed, name, wrong))
        with self.lock:
            self.n_seeds += last - first + 1
            self.n_runs += sum(not run.skipped for run in runs.values())
            self.n_operations += sum(run.n_ops for run in runs.values() if not run.skipped)
            self.differences += found
            if self.args.progress:
                for seed, name, wrong in found:
                    print('seed %d, policy %s: %s' % (seed, name, wrong), flush=True)
        return found

    def progress(self, ended):
        """A line now and then, until the event."""
        began = time.monotonic()
        while not ended.wait(self.args.progress):
            print('%s %d s: %d seeds, %d runs, %d operations, %d differences'
                  % (time.strftime('%H:%M:%S'), time.monotonic() - began, self.n_seeds, self.n_runs,
                     self.n_operations, len(self.differences)), flush=True)

    def missed(self):
        """What no run has counted, and should have."""
        need = (STEPS if self.args.steps else ()) + tuple(filter(None, (self.args.need or '').split(',')))
        return [step for step in need if not self.steps[step]]

    def unwanted(self):
        """What some run has counted, and none should have."""
        return [step for step in (self.args.none or '').split(',') if self.steps[step]]

    def run(self, first, last, seconds):
        """Chunks on all workers until seeds or seconds are used up, or enough has gone wrong."""
        until = time.monotonic() + seconds if seconds else None
        size = 5 if self.args.iterations else CHUNK  # such programs take longer
        starts = iter(range(first, last + 1, size))
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            waiting = set()
            while True:
                while len(waiting) < self.args.jobs and not (until and time.monotonic() > until) \
                        and len(self.differences) < self.args.most:
                    start = next(starts, None)
                    if start is None:
                        break
                    waiting.add(pool.submit(self.chunk, start, min(start + size - 1, last)))
                if not waiting:
                    # Which thread comes first is not in the seed: a few more may show what is needed.
                    if self.missed() and last < 4 * self.args.last:
                        starts = iter(range(last + 1, last + self.args.last + 1, size))
                        last += self.args.last
                        continue
                    return
                done, waiting = concurrent.futures.wait(
                    waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    future.result()

    # --- one seed in words ---

    def log(self, seed, settings, preloaded):
        env = self.environment(preloaded)
        env.update(dict(item.split('=', 1) for item in settings.split('|') if item))
        done = subprocess.run(self.command(str(seed)), env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors='replace',
                              universal_newlines=True)
        return done.stdout.splitlines(), done.stderr

    def explain(self, seed, name, wrong):
        print('seed %d, policy %s: %s' % (seed, name, wrong))
        plain, plain_err = self.log(seed, '', False)
        other, err = (plain, plain_err) if name == 'plain' else \
            self.log(seed, self.args.variants[name], True)
        if '--- its twin' in other:
            cut = other.index('--- its twin')
            other, plain = other[:cut], other[cut + 1:]
        if diff_policies.is_soft(self.args.variants.get(name, '')) or self.args.soft:
            plain, other = ([line for line in log if ' attr ' not in line]
                            for log in (plain, other))
        for i in range(max(len(plain), len(other))):
            a, b = (log[i] if i < len(log) else '(nothing)' for log in (plain, other))
            if a != b:
                print('  line %d natively: %s\n  line %d here:     %s' % (i + 1, a, i + 1, b))
                break
        for line in err.splitlines()[:6]:
            print('  | ' + line)
        print('  to see it: tests/sim/replay %s%d %s' % (self.replay_options(), seed, name))

    def replay_options(self):
        text = '--threads %d ' % self.args.threads if self.args.threads > 1 else ''
        return text + ''.join(kind + ' ' for kind in self.kinds())


def compare(plain, run, soft):
    """What is wrong with a run, None when nothing is."""
    if run.skipped:
        return None
    plain = run.twin or plain
    if run.status != plain.status:
        return 'status %d instead of %d%s' % (run.status, plain.status, {
            134: ' (a violation)', 142: ' (it hangs)', 139: ' (a crash)'}.get(run.status, ''))
    if run.n_ops != plain.n_ops or (run.soft != plain.soft if soft else run.full != plain.full):
        return 'what the program saw is not the same'
    if run.marks_missing:
        return '%d kernels that had to run before the end did not' % run.marks_missing
    if run.left < 0:
        return 'there is no report'
    if run.left > 0:
        return 'the report says %d bytes are still in use' % run.left
    return None


@functools.lru_cache(maxsize=None)
def sanitizer_runtime(library):
    listed = subprocess.run(['ldd', library], stdout=subprocess.PIPE,
                            universal_newlines=True).stdout
    return re.findall(r'lib[at]san\S* => (\S+)', listed)


def read_arguments(words):
    parser = argparse.ArgumentParser(prog='diff-run', description=__doc__)
    parser.add_argument('--program', default=os.environ.get('DIFF_PROGRAM'), help='diff-program')
    parser.add_argument('--library', default=os.environ.get('DIFF_LIBRARY'), help='what to preload')
    parser.add_argument('--sim', default=os.environ.get('DIFF_SIM'), help="the simulation's folder")
    parser.add_argument('--seeds', default='1-1000000', help='A-B')
    parser.add_argument('--policies',
                        help=', '.join(diff_policies.POLICIES) + ', any1-9 (which are drawn); else all that suit')
    parser.add_argument('--seconds', type=float, default=0,
                        help='begin nothing after that; DIFF_SECONDS instead of --seeds and --jobs, '
                        'DIFF_SHARE for that many percent of the seeds')
    parser.add_argument('--threads', type=int, default=1, help='host threads of each program')
    parser.add_argument('--ipc', action='store_true', help='programs with a second process')
    parser.add_argument('--iterations', action='store_true', help='programs that go round in loops')
    parser.add_argument('--pageable', action='store_true',
                        help="programs that copy from and to the host's memory all the time")
    parser.add_argument('--large', action='store_true',
                        help='programs with blocks of some MiB, and kernels that find pointers in memory')
    parser.add_argument('--graphs', action='store_true', help='programs that build graphs by hand, and change them')
    parser.add_argument('--pools', action='store_true',
                        help='programs that say what pools keep, and where managed memory is to lie')
    parser.add_argument('--arrays', action='store_true', help='programs with arrays, and calls that few programs make')
    parser.add_argument('--need', help='counters of the reports, with commas: each was counted')
    parser.add_argument('--none', help='counters of the reports, with commas: none was counted')
    parser.add_argument('--lookup', help='linked, dlsym or get-proc; else as the seed says')
    parser.add_argument('--without', help='traits that no program has (program.c), with commas')
    parser.add_argument('--steps', action='store_true',
                        help='all together must have taken every step of the out-of-memory ladder')
    parser.add_argument('--jobs', type=int, default=JOBS)
    parser.add_argument('--progress', type=float, default=0,
                        help='say every so many seconds how far it is, and each difference at once')
    parser.add_argument('--show', type=int, default=5, help='differences to explain')
    parser.add_argument('--most', type=int, default=20, help='differences after which to stop')
    args = parser.parse_args(words)
    if args.without:
        os.environ['DIFF_WITHOUT'] = args.without
    if not (args.program and args.library and args.sim):
        parser.error('--program, --library and --sim are needed')
    if not args.policies:
        args.policies = ','.join(name for name, settings in diff_policies.POLICIES.items()
                                 if ('_GRAPH=' in settings) == args.iterations)
    try:
        drawn = ((name, diff_policies.settings(name)) for name in diff_policies.names(args.policies))
        # An upload waits for such memory (docs/guarantees.md).
        args.variants = {name: settings for name, settings in drawn
                         if not (args.pageable and name.startswith('any') and diff_policies.prefers_host(settings))}
        args.first, args.last = (int(n) for n in (args.seeds + '-' + args.seeds).split('-')[:2])
    except (KeyError, ValueError) as error:
        parser.error('not understood: %s' % error)
    if 'DIFF_SHARE' in os.environ:
        n = args.last - args.first + 1
        args.last = args.first + max(n * int(os.environ['DIFF_SHARE']) // 100, 1) - 1
        if int(os.environ['DIFF_SHARE']) < 100:
            args.steps = args.need = None  # there may be too few for each
    if 'DIFF_SECONDS' in os.environ:
        args.seconds, args.last, args.jobs = float(os.environ['DIFF_SECONDS']), 1000000, JOBS
        args.steps = args.need = None  # there may be too little time for each
    args.soft, args.stats = False, True
    return args


def main():
    args = read_arguments(sys.argv[1:])
    folder = tempfile.mkdtemp(prefix='diff-', dir='/dev/shm' if os.path.isdir('/dev/shm') else None)
    began, ended = time.monotonic(), threading.Event()
    try:
        runner = Runner(args, folder)
        if args.progress:
            threading.Thread(target=runner.progress, args=(ended,), daemon=True).start()
        runner.run(args.first, args.last, args.seconds)
        ended.set()
        for seed, name, wrong in sorted(runner.differences)[:args.show]:
            runner.explain(seed, name, wrong)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print('%d seeds x %d policies%s: %d runs, %d operations, %d differences, %.0f s'
          % (runner.n_seeds, len(args.variants),
             ', %d threads' % args.threads if args.threads > 1 else '', runner.n_runs,
             runner.n_operations, len(runner.differences), time.monotonic() - began))
    if args.steps or args.need:
        print('counted: ' + ', '.join('%s %d' % step for step in sorted(runner.steps.items())))
    if runner.missed():
        print('never taken: ' + ', '.join(runner.missed()))
    if runner.unwanted():
        print('counted: ' + ', '.join('%s %d' % (step, runner.steps[step]) for step in runner.unwanted()))
    sys.exit(1 if runner.differences or runner.missed() or runner.unwanted() else 0)


if __name__ == '__main__':
    main()
