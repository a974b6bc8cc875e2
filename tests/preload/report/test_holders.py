# ALLOGRAFT_STACKS: every leak of a program is named with function, file and line, and nothing else; the holder of
# most at the peak comes first; of a running process, of one that was killed, and of memory that ran out.

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import COUNTERS, LIBRARY, PROGRAMS, ROOT, RUNTIME, Case, but_under_tsan, clean_environment, main, preloaded, program

COMMAND = os.environ['TEST_COMMAND']
HOLDERS = program('preload_holders')
PLUGIN = os.path.join(PROGRAMS, 'libpreload_holders_plugin.so')
FOLDER = os.path.join(ROOT, 'tests', 'preload', 'report')
SOURCES = ('holders.cpp', 'holders_plugin.cpp')
HAS_LINES = os.environ['TEST_HAS_LIBDW'] == '1'
KIB, MIB = 1 << 10, 1 << 20
SECONDS = 60

# name: (bytes, blocks, kind)
LEAKS = {'Weights': (3 * MIB, 1, 'device'), 'reserve': (2 * MIB, 1, 'device'), 'work': (192 * KIB, 3, 'device'),
         'pool': (48 * KIB, 1, 'pool'), 'pinned': (12 * KIB, 1, 'host'), 'plugin': (256 * KIB, 1, 'managed')}
FUNCTIONS = {'Weights': 'model::Weights::Weights(', 'reserve': 'reserve', 'work': 'work',
             'pool': 'leak_elsewhere', 'pinned': 'leak_elsewhere', 'plugin': 'keep',
             'hold_most': 'hold_most', 'fill': 'fill'}


def marked():
    """(file, line) -> name of the lines that are marked."""
    found = {}
    for name in SOURCES:
        with open(os.path.join(FOLDER, name), encoding='utf-8') as file:
            for number, line in enumerate(file, 1):
                match = re.search(r'// (?:leak|holder): (\w+)$', line)
                if match:
                    found[name, number] = match[1]
    return found


MARKED = marked()


def environment(**more):
    return {**clean_environment(), 'ALLOGRAFT_COUNTERS': COUNTERS, **more}


def command(*words, **more):
    done = subprocess.run([COMMAND, *map(str, words)], env=environment(**more), timeout=SECONDS, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, encoding='utf-8')
    return done


def named(stack):
    """(name, function) of the innermost line of ours that is marked."""
    for frame in stack['frames']:
        for name in frame.get('names', ()):
            mark = MARKED.get((os.path.basename(name['file']), name['line']))
            if mark:
                return mark, name['function']
    return None, None


def never_freed(holders):
    found = {}
    for stack in holders['stacks']:
        parts = [stack['live'], stack.get('ended', {'bytes': 0, 'blocks': 0})]
        if sum(part['bytes'] for part in parts):
            name, function = named(stack)
            before = found.get(name, (0, 0))
            found[name] = (before[0] + sum(p['bytes'] for p in parts), before[1] + sum(p['blocks'] for p in parts),
                           stack['kind'])
            assert name is None or function.startswith(FUNCTIONS[name]), (name, function)
    return found


def by_peak(holders):
    stacks = [s for s in holders['stacks'] if s['kind'] in ('device', 'pool')]
    return sorted(stacks, key=lambda s: -s['peak']['bytes'])


class Holders(Case):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='holders-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def report_of(self, words, settings=None, status=0):
        """The JSON report of the run, and the command's of that, with names; and what the run printed."""
        path = os.path.join(self.folder, 'report.json')
        result = preloaded(words, dict({'ALLOGRAFT_STACKS': '16', 'ALLOGRAFT_STATS': path}, **(settings or {})),
                           stats=None)
        self.assertEqual(result.status, status, result.err)
        with open(path, encoding='utf-8') as file:
            self.raw = json.load(file)
        done = command('report', '--json', path)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return json.loads(done.stdout), result

    def needs_lines(self):
        if not HAS_LINES:
            self.skipTest('the command was built without libdw')

    def test_names_every_leak(self):
        self.needs_lines()
        for policy in ('auto', 'pool', 'managed', 'native'):
            with self.subTest(policy):
                report, _ = self.report_of([HOLDERS, 'leaks', PLUGIN], {'ALLOGRAFT_POLICY': policy})
                self.assertEqual(never_freed(report['holders']), LEAKS)

    @but_under_tsan
    def test_tells_inlined_functions(self):
        self.needs_lines()
        report, _ = self.report_of([HOLDERS, 'leaks', PLUGIN])
        stack = next(s for s in report['holders']['stacks'] if named(s)[0] == 'reserve')
        names = [name['function'].split('(')[0] for frame in stack['frames'] for name in frame.get('names', ())]
        at = names.index('reserve')
        self.assertEqual(names[at:at + 2], ['reserve', 'model::activations'])
        self.assertIn('main', names)

    @but_under_tsan
    def test_ranks_by_the_peak(self):
        self.needs_lines()
        report, _ = self.report_of([HOLDERS, 'leaks', PLUGIN])
        first = by_peak(report['holders'])[0]
        self.assertEqual(named(first)[0], 'hold_most')
        self.assertEqual(first['peak'], {'bytes': 60 * MIB, 'blocks': 3})
        self.assertEqual(first['live']['bytes'], 0)
        most = max(report['holders']['stacks'], key=lambda s: s['ever']['bytes'])
        self.assertEqual((most['ever']['bytes'], most['live']['bytes']), (200 * MIB, 0))
        # What was held at the peak adds up to it.
        peak = next(p for p in report['holders']['peaks'] if p['memory'] == 'device')
        self.assertEqual(sum(s['peak']['bytes'] for s in by_peak(report['holders'])), peak['peak_bytes'])
        self.assertGreaterEqual(peak['peak_bytes'], peak['most_bytes'] * .99)
        self.assertEqual(peak['most_bytes'], 66 * MIB)

    @but_under_tsan
    def test_text_ranks_likewise(self):
        self.needs_lines()
        self.report_of([HOLDERS, 'leaks', PLUGIN])
        text = command('report', os.path.join(self.folder, 'report.json')).stdout
        parts = re.split(r'\n  (?=\S)', text)
        leaks = next(p for p in parts if p.startswith('memory never freed'))
        self.assertIn('from 6 stacks', leaks.splitlines()[0])
        self.assertRegex(leaks, r'(?s)3\.00 MiB in 1 block, device 0\n.*?model::Weights::Weights\(unsigned long\) at '
                                r'\S*holders\.cpp:\d+')
        peak = next(p for p in parts if p.startswith('who held most at the peak of device 0'))
        self.assertRegex(peak, r'^.*\n    60\.00 MiB in 3 blocks, device 0\n.*hold_most')

    @but_under_tsan
    def test_process_names_what_is_exported(self):
        result = preloaded([HOLDERS, 'leaks', PLUGIN], {'ALLOGRAFT_STACKS': '16', 'ALLOGRAFT_STATS': 'stderr'}, stats=None)
        self.assertIn('memory never freed: 5.50 MiB in 8 blocks, from 6 stacks', result.err)
        self.assertIn('__libc_start_main', result.err)
        # The others have a place in their file, and a line says how to have names.
        self.assertRegex(result.err, r'\n +preload_holders\+0x[0-9a-f]+\n')
        advice = '  (functions and lines: ALLOGRAFT_STATS=x.json, and then `allograft report x.json`)\n'
        self.assertEqual(result.err.count(advice), 1)
        _, result = self.report_of([HOLDERS, 'leaks', PLUGIN])
        shown = command('report', os.path.join(self.folder, 'report.json')).stdout
        self.assertNotIn('functions and lines:', shown)
        self.assertNotRegex(shown, r'\n +preload_holders\+0x')
        # Where there are no stacks, nothing is said of them.
        self.assertNotIn('functions and lines:', preloaded([HOLDERS, 'leaks', PLUGIN], stats='x').files['x'])
        self.assertIn(advice, preloaded([HOLDERS, 'leaks', PLUGIN], {'ALLOGRAFT_STACKS': '16'}, stats='x').files['x'])

    @but_under_tsan
    def test_page_has_the_stacks_of_blocks(self):
        self.needs_lines()
        trace, page = (os.path.join(self.folder, name) for name in ('a.trace', 'a.html'))
        self.report_of([HOLDERS, 'leaks', PLUGIN], {'ALLOGRAFT_TRACE': trace})
        done = command('report', '--html', page, os.path.join(self.folder, 'report.json'), trace)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        with open(page, encoding='utf-8') as file:
            data = json.loads(re.search(r'<div class="timeline"><script type="application/json">(.*?)</script>', file.read(), re.S)[1])
        largest, found = data['largest'], {}
        self.assertTrue(all(len(block) == 5 for block in largest['blocks']))
        for _, end, size, _, number in largest['blocks']:
            texts = [text for at in largest['stacks'][number] if at >= 0 for text in largest['frames'][at][1:]]
            if end is None:
                found[size] = list(zip(texts[::2], texts[1::2]))
        line = {name: number for (_, number), name in MARKED.items()}
        # Innermost first, those that were inlined too; also of the program's own pools.
        at = [name.split('(')[0] for name, _ in found[2 * MIB]].index('reserve')
        self.assertRegex(found[2 * MIB][at][1], r'holders\.cpp:%d$' % line['reserve'])
        self.assertEqual(found[2 * MIB][at + 1][0].split('(')[0], 'model::activations')
        self.assertIn('main', [name for name, _ in found[2 * MIB][at + 2:]])
        self.assertTrue(any(place.endswith('holders.cpp:%d' % line['pool']) for _, place in found[48 * KIB]), found[48 * KIB])

    @but_under_tsan
    def test_stripped_keeps_its_offsets(self):
        if not shutil.which('strip'):
            self.skipTest('there is no strip')
        stripped = os.path.join(self.folder, 'stripped')
        subprocess.run(['strip', '-o', stripped, HOLDERS], check=True)
        whole, _ = self.report_of([stripped, 'leaks', PLUGIN])
        offsets = {f['offset'] for s in whole['holders']['stacks'] for f in s['frames']
                   if whole['holders']['modules'][f['module'] - 1]['path'] == stripped}
        shown = command('report', os.path.join(self.folder, 'report.json')).stdout
        told = {int(offset, 16) for offset in re.findall(r'\n +stripped\+0x([0-9a-f]+) \(no symbol: the file is stripped\)', shown)}
        self.assertTrue(told and told <= offsets, shown)
        self.assertNotIn('? (', shown)

    def test_off_says_nothing(self):
        path = os.path.join(self.folder, 'report.json')
        preloaded([HOLDERS, 'leaks', PLUGIN], {'ALLOGRAFT_STATS': path}, stats=None)
        with open(path, encoding='utf-8') as file:
            self.assertNotIn('holders', json.load(file))

    @but_under_tsan
    def test_cuts_stacks(self):
        report, _ = self.report_of([HOLDERS, 'leaks', PLUGIN], {'ALLOGRAFT_STACKS': '1'})
        self.assertEqual({len(s['frames']) for s in report['holders']['stacks']}, {1})
        self.assertTrue(all(s['cut'] for s in report['holders']['stacks']))

    def test_context_takes_what_is_left(self):
        report, _ = self.report_of([HOLDERS, 'reset'])
        stacks = report['holders']['stacks']
        self.assertEqual([s['ended'] for s in stacks if 'ended' in s], [{'bytes': 40 * MIB, 'blocks': 1}])
        self.assertEqual(sum(s['live']['bytes'] for s in stacks), 0)

    @but_under_tsan
    def test_estimates(self):
        report, _ = self.report_of([HOLDERS, 'churn', '4000'], {'ALLOGRAFT_STACKS_SAMPLE': '4MiB'})
        ever = sum(s['ever']['bytes'] for s in report['holders']['stacks'])
        # 4000 blocks of 1 MiB, a variance of n s^2 (1 - p) / p with p = 1 - exp(-1/4): 8 standard deviations
        self.assertLess(abs(ever / (4000 * MIB) - 1), 8 * (.7788 / .2212 / 4000) ** .5)
        blocks = sum(s['ever']['blocks'] for s in report['holders']['stacks'])
        self.assertAlmostEqual(blocks, ever / MIB, delta=50)
        self.assertEqual(sum(s['live']['bytes'] for s in report['holders']['stacks']), 0)

    @but_under_tsan
    def test_says_what_stacks_cost(self):
        begin = time.monotonic()
        report, _ = self.report_of([HOLDERS, 'churn', '4000'])
        seconds = time.monotonic() - begin
        taken, ns = (self.raw['holders'][key] for key in ('taken', 'taking_ns'))
        self.assertEqual(taken, sum(s['ever']['blocks'] for s in report['holders']['stacks']))
        self.assertGreater(ns, 4000 * 10)
        # One in 16 is timed, and the thread may be kept from its processor in just that one.
        self.assertLess(ns, 17 * seconds * 1e9)
        self.assertEqual(report['holders']['taken'], taken)
        self.assertEqual(report['holders']['taking_ns'], ns)
        path = os.path.join(self.folder, 'report.json')
        text = command('report', path).stdout
        self.assertRegex(text, r'\n  taking %d stacks took about [0-9.e+]+ ms\n' % taken)
        # 87441 / 334 * 334 is a little less than 87441, in double precision.
        for taken, ns in ((334, 87441), (16, 15), (10 ** 9 + 7, 10 ** 12 + 1), (15, 0)):
            self.raw['holders'].update(taken=taken, taking_ns=ns)
            with open(path, 'w', encoding='utf-8') as file:
                json.dump(self.raw, file)
            again = json.loads(command('report', '--json', path).stdout)
            self.assertEqual(again['holders']['taking_ns'], ns)

    @but_under_tsan
    def test_memory_runs_out(self):
        report, result = self.report_of([HOLDERS, 'full'])
        # Of 3 the 1st and the 2nd are told.
        self.assertEqual(re.findall(r'^allograft: out of memory: (.*)$', result.err, re.M),
                         ['1 allocation failed, the last of 16.00 TiB of device memory, device 0',
                          '2 allocations failed, the last of 16.00 TiB of device memory, device 0'])
        self.assertRegex(result.err, r'who held most then: 40\.00 MiB in 1 block, from 1 stack')
        failure = report['holders']['failure']
        self.assertEqual((failure['times'], failure['bytes'], failure['kind'], failure['device']), (3, 1 << 44, 'device', 0))
        self.assertGreater(failure['total_bytes'], failure['free_bytes'])
        self.assertEqual([s['failed'] for s in report['holders']['stacks'] if 'failed' in s],
                         [{'bytes': 40 * MIB, 'blocks': 1}])
        quiet, result = self.report_of([HOLDERS, 'full'], {'ALLOGRAFT_LOG': 'error'})
        self.assertNotIn('out of memory', result.err)
        self.assertEqual(quiet['holders']['failure']['times'], 3)

    @but_under_tsan
    def test_pool_and_cache_when_memory_runs_out(self):
        report, _ = self.report_of([HOLDERS, 'full'], {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_LIMIT': '100MiB'})
        failure = report['holders']['failure']
        self.assertGreaterEqual(failure['pool_used_bytes'], 40 * MIB)
        self.assertGreaterEqual(failure['pool_reserved_bytes'], failure['pool_used_bytes'])

    def test_child_has_nothing(self):
        result = preloaded([HOLDERS, 'forks'], {'ALLOGRAFT_STACKS': '16'})
        self.assertEqual(result.status, 0, result.err)
        reports = result.reports()
        self.assertEqual(len(reports), 2)
        found = [r['holders'] for r in reports if 'holders' in r]
        self.assertEqual(len(found), 1)
        self.assertEqual(sum(s['ever']['bytes'] for s in found[0]['stacks']), 40 * MIB)

    def test_refused_free_leaves_the_block(self):
        report, _ = self.report_of([HOLDERS, 'refused'], {'SIM_FAIL': 'cuMemFreeHost:1:1'})
        self.assertEqual([s['live']['bytes'] + s.get('ended', {'bytes': 0})['bytes'] for s in report['holders']['stacks']],
                         [12 * KIB])


class Running(Case):
    """A process that waits, with all its leaks."""

    def setUp(self):
        env = environment(LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]), ALLOGRAFT_STATS='off', ALLOGRAFT_STACKS='16')
        self.process = subprocess.Popen([HOLDERS, 'wait', PLUGIN], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, universal_newlines=True)
        self.addCleanup(self.end)
        self.assertEqual(self.process.stdout.readline(), 'ready\n')

    def end(self):
        if self.process.poll() is None:
            self.process.communicate('\n', timeout=SECONDS)
        self.process.stdin.close()
        self.process.stdout.close()

    def test_snapshot(self):
        done = command('snapshot', self.process.pid)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        report = json.loads(done.stdout)
        self.assertEqual(report['process']['pid'], self.process.pid)
        if HAS_LINES:
            self.assertEqual(never_freed(report['holders']), LEAKS)
        path = os.path.join(tempfile.mkdtemp(prefix='holders-'), 'snapshot.json')
        self.addCleanup(shutil.rmtree, os.path.dirname(path))
        with open(path, 'w', encoding='utf-8') as file:
            file.write(done.stdout)
        again = command('report', '--json', path) # it is a report
        self.assertEqual(json.loads(again.stdout)['holders'], report['holders'])
        self.assertIsNone(self.process.poll())

    def test_torch_snapshot(self):
        out = os.path.join(tempfile.mkdtemp(prefix='holders-'), 'snapshot.pickle')
        self.addCleanup(shutil.rmtree, os.path.dirname(out))
        done = command('snapshot', self.process.pid, '--torch-snapshot', out)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))
        with open(out, 'rb') as file:
            snapshot = pickle.load(file)
        live = [s for s in json.loads(command('snapshot', self.process.pid).stdout)['holders']['stacks']
                if s['live']['bytes'] and s['kind'] != 'host']
        live.sort(key=lambda s: s['live']['bytes'])
        snapshot['segments'].sort(key=lambda s: s['total_size'])
        self.assertEqual([(s['total_size'], len(s['blocks'])) for s in snapshot['segments']],
                         [(s['live']['bytes'], s['live']['blocks']) for s in live])
        self.assertTrue(all(sum(b['size'] for b in s['blocks']) == s['total_size'] for s in snapshot['segments']))
        self.assertIn('live blocks by stack', snapshot['allograft'])
        self.assertEqual(snapshot['device_traces'], [[]])
        if HAS_LINES:
            named = [[(f['name'], f['line']) for f in s['frames']] for s in snapshot['segments']]
            self.assertEqual([frames[0] for frames in named], [(n['function'], n['line']) for n in
                                                              (s['frames'][0]['names'][0] for s in live)])
        snapshot['segments'].sort(key=lambda s: s['address'])
        ends = [s['address'] + s['total_size'] for s in snapshot['segments']]
        self.assertTrue(all(end <= s['address'] for end, s in zip(ends, snapshot['segments'][1:])))

    def test_top(self):
        done = command('top', '--holders', self.process.pid)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertIn('memory held now: 5.50 MiB in 8 blocks, from 6 stacks', done.stdout)
        self.assertIn('who held most at the peak of device 0: 66.00 MiB', done.stdout)
        with tempfile.TemporaryDirectory(prefix='holders-') as other:
            again = command('top', '--holders', self.process.pid, COUNTERS, ALLOGRAFT_COUNTERS=other)
            self.assertEqual((again.returncode, again.stdout.partition('\n')[0]), (0, done.stdout.partition('\n')[0]))
            missing = command('top', '--holders', self.process.pid, other)
            self.assertEqual((missing.returncode, missing.stderr),
                             (1, f'allograft: process {self.process.pid} has no counters in {other}\n'))

    def test_killed(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        done = command('report', '--json', self.process.pid)
        report = json.loads(done.stdout)[0]
        self.assertEqual(sum(s['live']['blocks'] for s in report['holders']['stacks']), 8)

    def test_complains(self):
        for words, status, says in ((('snapshot', 'x1'), 2, 'x1 is no process id'), (('snapshot', '0'), 2, '0 is no process id'),
                                    (('top', '--holders', 'me'), 2, 'me is no process id'),
                                    (('top', '--holders', '1', '--json'), 2, '`allograft snapshot PID` prints JSON'),
                                    (('top', '--holders', '1', '--clean'), 2, 'cannot be used together'),
                                    (('top', '--holders', '1', '/no/such'), 1, '/no/such: No such file'),
                                    (('snapshot', '999999999'), 1, 'process 999999999 has no counters')):
            done = command(*words)
            self.assertEqual((done.returncode, done.stdout), (status, ''), words)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stderr.count('\n'), 1)


class WithoutStacks(Case):
    def test_top_says_so(self):
        env = environment(LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]), ALLOGRAFT_STATS='off')
        with subprocess.Popen([HOLDERS, 'wait', PLUGIN], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              universal_newlines=True) as process:
            process.stdout.readline()
            done = command('top', '--holders', process.pid)
            process.communicate('\n')
        self.assertEqual(done.returncode, 1)
        self.assertIn('takes no stacks', done.stderr)


def pythons():
    """Every interpreter of this machine whose frames can be read, by version."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(9, 15):
        path = shutil.which('python3.%d' % minor)
        if path and (3, minor) not in found and not subprocess.run(
                [path, '-c', 'import ctypes'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            found[3, minor] = path
    return {version: path for version, path in found.items() if (3, 9) <= version <= (3, 14)}


@but_under_tsan
class Python(Case):
    def python_frames(self, stack):
        return [[f['function'].split('.')[-1], f['line']] for f in stack['frames'] if 'line' in f]

    def check(self, interpreter, *words):
        result = preloaded([interpreter, os.path.join(FOLDER, 'holders.py'), *words],
                           {'ALLOGRAFT_STACKS': '64', 'PYTHONIOENCODING': 'utf-8', 'PYTHONDONTWRITEBYTECODE': '1'})
        self.assertEqual(result.status, 0, result.err)
        expected = {size: stack for size, stack in json.loads(result.out)}
        holders = result.report()['holders']
        self.modules = holders['modules']
        leaks = [s for s in holders['stacks'] if s['live']['bytes'] or 'ended' in s]
        found = {}
        for stack in leaks:
            blocks = stack['live']['blocks'] + stack.get('ended', {'blocks': 0})['blocks']
            size = (stack['live']['bytes'] + stack.get('ended', {'bytes': 0})['bytes']) / blocks
            found.setdefault(size, self.python_frames(stack))
            self.assertFalse(stack['cut'])
            files = {f['file'] for f in stack['frames'] if 'line' in f and f['file'].startswith('/')}
            self.assertTrue(any(name.endswith('/holders.py') for name in files), files)
        self.assertEqual(sum(s['live']['blocks'] + s.get('ended', {'blocks': 0})['blocks'] for s in leaks), len(expected))
        # Two blocks of one place have one stack: by their mean size, as by each.
        for size, stack in expected.items():
            self.assertIn(stack, found.values(), (interpreter, size))
        self.assertLessEqual(len(found), len(expected))
        return leaks

    def test_frames(self):
        for version, interpreter in sorted(pythons().items()):
            for words in ((), ('locked',)):
                with self.subTest(version=version, words=words):
                    self.check(interpreter, *words)

    def test_functions_stand_between_native_frames(self):
        for version, interpreter in sorted(pythons().items()):
            with self.subTest(version=version):
                leaks = self.check(interpreter)
                for stack in leaks:
                    first = next(i for i, frame in enumerate(stack['frames']) if 'line' in frame)
                    self.assertGreater(first, 0)  # the C code that called the driver is inside
                self.libc_stands_between([s for s in leaks if 'compared' in self.functions(s)])

    def functions(self, stack):
        return [frame.get('function', '').split('.')[-1] for frame in stack['frames']]

    def libc_stands_between(self, stacks):
        """qsort, which called back, between the function that was called and the one that called it."""
        self.assertEqual(len(stacks), 1)
        functions = self.functions(stacks[0])
        inner, outer = functions.index('compared'), functions.index('by_qsort')
        self.assertEqual(functions[inner - 1], 'take')
        self.assertEqual(functions[outer + 1], 'main')
        between = stacks[0]['frames'][inner + 1:outer]
        paths = [self.modules[frame['module'] - 1]['path'] for frame in between]
        self.assertTrue(any(re.search(r'/lib(c|asan|tsan)\.so', path) for path in paths), paths)
        self.assertFalse(any(re.search('/(lib)?python3[^/]*$', path) for path in paths), paths)


if __name__ == '__main__':
    main()
