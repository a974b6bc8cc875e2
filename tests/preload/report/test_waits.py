# ALLOGRAFT_WAITS: every kind of call that waits is named with its stack, how often, and at least the time for which the
# device was busy; short calls are summed; threads; off, nothing is hooked.

import json
import os
import re
import shutil
import subprocess
import tempfile

from harness import COUNTERS, LIBRARY, RUNTIME, SEEDS, Case, clean_environment, main, preloaded, program, run, some

COMMAND = os.environ['TEST_COMMAND']
WAITS = program('preload_waits')
LAZY = {'SIM_SCHED': 'lazy'}  # the device begins when somebody waits
BUSY_NS = 20000000
SECONDS = 60

# function: (call, kind)
KINDS = {'wait_stream': ('cuStreamSynchronize', 'sync'), 'wait_event': ('cuEventSynchronize', 'sync'),
         'wait_context': ('cuCtxSynchronize', 'sync'), 'wait_copy_back': ('cuMemcpyDtoH_v2', 'copy'),
         'wait_copy_there': ('cuMemcpyHtoD_v2', 'copy'), 'wait_copy_async': ('cuMemcpyDtoHAsync_v2', 'async_copy'),
         'wait_fill': ('cuMemsetD8_v2', 'memset'), 'wait_free': ('cuMemFree_v2', 'free'),
         'wait_free_pinned': ('cuMemFreeHost', 'free'), 'wait_unregister': ('cuMemHostUnregister', 'free'),
         'wait_free_array': ('cuArrayDestroy', 'free')}


def functions(stack):
    return [name['function'].split('(')[0] for frame in stack['frames'] for name in frame.get('names', ())]


def by_function(waits):
    """{function of ours: its stack}"""
    found = {}
    for stack in waits['stacks']:
        ours = [name for name in functions(stack) if name in KINDS]
        assert len(ours) < 2 and not set(ours) & set(found), waits['stacks']
        if ours:
            found[ours[0]] = stack
    return found


class Waits(Case):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='waits-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def command(self, *words):
        env = dict(clean_environment(), ALLOGRAFT_COUNTERS=COUNTERS)
        done = subprocess.run([COMMAND, *words], env=env, timeout=SECONDS, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, encoding='utf-8')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return done.stdout

    def report_of(self, words, settings=None):
        """The report as the process wrote it, and as the command names its frames."""
        result = preloaded([WAITS, *words], dict({'ALLOGRAFT_WAITS': '1'}, **LAZY, **(settings or {})))
        self.assertEqual(result.status, 0, result.err)
        raw = result.report()  # held against the schema
        self.path = os.path.join(self.folder, 'report.json')
        with open(self.path, 'w', encoding='utf-8') as file:
            json.dump(raw, file)
        return json.loads(self.command('report', '--json', self.path)), result

    def test_names_every_kind(self):
        for settings in some([{}, {'ALLOGRAFT_POLICY': 'native'}, {'ALLOGRAFT_POLICY': 'pool'},
                              {'ALLOGRAFT_FREE': 'sync'}, {'ALLOGRAFT_GRAPH': 'all'}, {'ALLOGRAFT_STACKS': '16'}], 2):
            with self.subTest(settings):
                report, result = self.report_of(['kinds'], settings)
                found = by_function(report['waits'])
                self.assertEqual({name: (s['call'], s['kind']) for name, s in found.items()}, KINDS)
                for line in result.out.splitlines():
                    name, ns = line.split()
                    stack = found['wait_' + name]
                    self.assertEqual(stack['times'], 1)
                    self.assertEqual(stack['longest_ns'], stack['ns'])
                    self.assertGreaterEqual(stack['ns'], BUSY_NS, name)
                    self.assertLessEqual(stack['ns'], int(ns), name)  # as the program's own clock saw it
                    self.assertIn('main', functions(stack))

    def test_prints_as_natively(self):
        drop = r' \d+$'
        self.same([WAITS, 'kinds'], variants=[{'ALLOGRAFT_WAITS': '1'}], drop=drop, settings=LAZY, quiet=False)
        for seed in some(SEEDS):
            for settings in ({}, {'ALLOGRAFT_GRAPH': 'all'}):
                self.same([WAITS, 'capture'], variants=[dict(settings, ALLOGRAFT_WAITS='1')], seeds=[seed], quiet=False)

    def test_text_has_the_longest_first(self):
        report, _ = self.report_of(['kinds'])
        stacks = report['waits']['stacks']
        self.assertEqual(stacks, sorted(stacks, key=lambda s: -s['ns']))
        part = next(p for p in re.split(r'\n  (?=\S)', self.command('report', self.path))
                    if p.startswith('who waited for the device'))
        head, *rest = part.splitlines()
        total = sum(s['times'] for s in stacks)
        self.assertRegex(head, r'^who waited for the device: [\d.]+ m?s in %d waits, from %d stacks \(sync ' % (total, len(stacks)))
        for kind in ('sync', 'copy', 'async_copy', 'memset', 'free'):
            self.assertRegex(head, r'[(, ]%s [\d.]+ m?s' % kind)
        calls = [line.split(' in ')[1].split(',')[0] for line in rest if re.match(r'    \d', line) and ' calls ' not in line]
        self.assertEqual(calls, [s['call'] for s in stacks[:5]])
        self.assertIn('    ... and %d more, which the JSON report lists' % (len(stacks) - 5), rest)

    def test_is_said_at_exit(self):
        result = preloaded([WAITS, 'kinds'], dict(LAZY, ALLOGRAFT_WAITS='1', ALLOGRAFT_STATS='stderr'), stats=None)
        self.assertIn('\n  who waited for the device: ', result.err)
        self.assertNotIn('\n  frees\n', result.err)

    def test_counts_of_threads(self):
        n = 25
        report, _ = self.report_of(['threads', str(n)])
        waits = report['waits']
        # The first wait of `work` is for 1 ms of work, the second for none, and has a stack only if the thread was not let
        # run meanwhile.
        ours = [s for s in waits['stacks'] if 'work' in functions(s)]
        busy = [s for s in ours if s['ns'] >= 1000000 * s['times'] and s['times'] == 4 * n]
        self.assertEqual(len(busy), 1, ours)
        self.assertEqual((busy[0]['call'], busy[0]['kind']), ('cuStreamSynchronize', 'sync'))
        self.assertGreaterEqual(busy[0]['longest_ns'], busy[0]['ns'] // (4 * n))
        syncs = [s['times'] for s in ours if s['call'] == 'cuStreamSynchronize']
        self.assertGreaterEqual(sum(syncs) + waits['shorter']['times'], 8 * n)
        self.assertLessEqual(waits['shorter']['ns'], waits['shorter']['times'] * waits['bound_ns'])
        self.assertEqual(waits['without_stack'], {'times': 0, 'ns': 0})

    def test_off_hooks_nothing(self):
        off = {'ALLOGRAFT_FREE': 'sync', 'ALLOGRAFT_COPY': 'driver'}  # nor are streams watched
        native = run([WAITS, 'look'])
        self.assertEqual(preloaded([WAITS, 'look'], off).out, native.out)
        self.assertEqual(native.out.count('libcuda.so.1'), 4)
        on = preloaded([WAITS, 'look'], dict(off, ALLOGRAFT_WAITS='1'))
        self.assertEqual(on.out, native.out.replace('libcuda.so.1', 'liballograft.so'))

    def test_off_says_nothing(self):
        result = preloaded([WAITS, 'kinds'], dict(LAZY, ALLOGRAFT_STACKS='16'))
        report = result.report()
        self.assertNotIn('waits', report)
        self.assertIn('holders', report)

    def test_without_stacks_of_memory(self):
        report, _ = self.report_of(['kinds'])
        self.assertNotIn('holders', report)
        both, _ = self.report_of(['kinds'], {'ALLOGRAFT_STACKS': '3'})
        self.assertEqual(both['holders']['most_frames'], 3)
        self.assertEqual({s['kind'] for s in both['holders']['stacks']}, {'device', 'host'})
        self.assertEqual({len(s['frames']) for s in both['waits']['stacks']}, {3})

    def test_reads_back_what_it_wrote(self):
        for settings in ({}, {'ALLOGRAFT_STACKS': '16'}):
            once, _ = self.report_of(['kinds'], settings)
            with open(self.path, 'w', encoding='utf-8') as file:
                json.dump(once, file)
            self.assertEqual(json.loads(self.command('report', '--json', self.path))['waits'], once['waits'])

    def test_trace_has_them(self):
        trace, out = os.path.join(self.folder, 'a.trace'), os.path.join(self.folder, 'a.json')
        report, _ = self.report_of(['kinds'], {'ALLOGRAFT_TRACE': trace})
        self.assertRegex(self.command('trace', trace), r'waits for the device +%d\n' % len(report['waits']['stacks']))
        self.command('trace', trace, '--perfetto', out)
        with open(out, encoding='utf-8') as file:
            events = [e for e in json.load(file)['traceEvents'] if e.get('cat') == 'wait']
        self.assertEqual(sorted(e['name'] for e in events), sorted(s['call'] for s in report['waits']['stacks']))
        # The two clocks are read one after the other, by a thread that may not be let run in between.
        long = [e for e in events if e['dur'] * 1000 >= BUSY_NS * .99]
        self.assertGreaterEqual(len(long), len(KINDS))
        self.assertEqual(len({(e['pid'], e['tid']) for e in events}), 1)
        off = os.path.join(self.folder, 'off.trace')
        preloaded([WAITS, 'kinds'], dict(LAZY, ALLOGRAFT_TRACE=off))
        self.assertNotIn('waits for the device', self.command('trace', off))

    def test_running_and_killed(self):
        env = dict(clean_environment(), ALLOGRAFT_COUNTERS=COUNTERS, LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]),
                   ALLOGRAFT_STATS='off', ALLOGRAFT_WAITS='1', **LAZY)
        with subprocess.Popen([WAITS, 'stays'], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            while process.stdout.readline() != b'ready\n':
                self.assertIsNone(process.poll())
            shown = self.command('top', '--holders', str(process.pid))
            snapshot = json.loads(self.command('snapshot', str(process.pid)))
            process.kill()
        self.assertIn('who waited for the device: ', shown)
        self.assertNotIn('held', shown)
        killed = json.loads(self.command('report', '--json', str(process.pid)))[0]
        for report in (snapshot, killed):
            self.assertEqual({name: (s['call'], s['kind']) for name, s in by_function(report['waits']).items()}, KINDS)

    def test_child_has_nothing(self):
        result = preloaded([WAITS, 'forks'], dict(LAZY, ALLOGRAFT_WAITS='1'))
        self.assertEqual(result.status, 0, result.err)
        found = [r['waits'] for r in result.reports() if 'waits' in r]
        self.assertEqual(len(found), 1)
        self.assertIn(BUSY_NS, range(max(s['ns'] for s in found[0]['stacks']) + 1))


main()
