# The control API on the simulated driver: preloaded under every policy and with replay, and only opened.

import atexit
import json
import os
import re
import shutil
import subprocess
import tempfile

from harness import Case, LIBRARY, SCHEMA, but_under_tsan, clean_environment, main, preloaded, problems, run  # of tests/preload

FOLDER = tempfile.mkdtemp(prefix='api-')
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
API = os.environ['TEST_API']
CONTROL = os.path.join(API, 'api_control')
REPLAYED = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0'}
WAYS = [{}, {'ALLOGRAFT_POLICY': 'managed'}, {'ALLOGRAFT_POLICY': 'native'}, {'ALLOGRAFT_FREE': 'sync'}, REPLAYED]


class Control(Case):
    def part(self, name, *args, ways=WAYS, seeds=('1', '2')):
        """The part ends well and prints the same, in every way. Results by way; the last is the opened library's."""
        results = []
        for seed in seeds:
            runs = [preloaded([CONTROL, name, *args], dict(way, SIM_SEED=seed)) for way in ways]
            runs.append(run([CONTROL, name, *args], {'SIM_SEED': seed, 'CONTROL_LOAD': LIBRARY}))
            for way, result in zip(ways + [{'CONTROL_LOAD': LIBRARY}], runs):
                with self.subTest(way=way, seed=seed):
                    self.assertEqual(result.status, 0, result.out + result.err)
                    self.assertEqual(result.out, runs[0].out)
                    self.assertIn('violations: 0', result.out)
                    if name not in ('failing', 'statistics'): # which are told of
                        self.assertEqual(result.err, '')
            results = runs
        return results

    def test_managed(self):
        for result in self.part('managed')[:-1]:
            api = result.report()['api']
            self.assertEqual(api['managed_allocations'], 6)
            self.assertGreater(api['prefetched_bytes'], 8 << 20)

    def test_counted(self):
        self.part('counted')

    def test_advice(self):
        managed = {'ALLOGRAFT_POLICY': 'managed'}
        for pooled, more in ((32 << 20, {}), (1 << 20, {'ALLOGRAFT_PREFER': 'host'}),
                             (0, {'ALLOGRAFT_MANAGED_BACKEND': 'plain'})):
            with self.subTest(more=more):
                result = preloaded([CONTROL, 'advice', str(pooled)], dict(managed, **more))
                self.assertEqual((result.status, result.err), (0, ''), result.out)
                self.assertEqual(result.out, 'advice: right\nviolations: 0\n')

    def test_graphs(self):
        for result in self.part('graphs', FOLDER)[:-1]:
            api = result.report()['api']
            self.assertEqual(api['captures'], 104)
            self.assertEqual(api['captures_failed'], 2)
            self.assertEqual(api['replays'], 103)

    def test_private_memory(self):
        for result in self.part('private')[:-1]:
            self.assertGreaterEqual(result.report()['api']['private_allocations'], 6)

    def test_threads(self):
        for result in self.part('threads')[:-1]:
            marks = result.report()['marks']
            self.assertEqual([(m['name'], m['count']) for m in marks], [('iteration', 80)])

    def test_stages(self):
        for result in self.part('stages')[:-1]:
            self.assertEqual(result.report()['api']['copies'], 80)

    def test_failing_stages(self):
        for result in self.part('failing')[:-1]:
            self.assertEqual(result.err.count('cannot be recorded'), 1)

    def test_refused_stages(self):
        """What was recorded cannot be launched."""
        for how, settings in ((preloaded, {}), (run, {'CONTROL_LOAD': LIBRARY})):
            with self.subTest(settings=settings):
                result = how([CONTROL, 'refused'], dict(settings, SIM_FAIL='cuGraphLaunch:1:800'))
                self.assertEqual((result.status, result.out), (0, 'refused stages: right\nviolations: 0\n'), result.err)
                self.assertEqual(result.err.count('cannot be recorded'), 1)

    def test_statistics(self):
        for result in self.part('statistics', FOLDER, seeds=('1',), ways=[{}])[:1]:
            marks = result.report()['marks']
            self.assertEqual((len(marks), marks[0]['name'], marks[0]['count']), (64, 'epoch "1"', 4))
            self.assertEqual(len(marks[1]['name']), 47)
            self.assertGreaterEqual(marks[0]['bytes'], 1 << 20)

    def test_dump(self):
        preloaded([CONTROL, 'statistics', FOLDER])
        with open(os.path.join(FOLDER, 'now.json'), encoding='utf-8') as file:
            report = json.load(file)
        self.assertEqual(problems(report, SCHEMA, closed=True), [])
        self.assertEqual(report['process']['ended_by'], 'running')

    def test_rings(self):
        self.part('rings')

    def test_batches(self):
        for result in self.part('batches', '300', seeds=('1', '2', '3')):
            self.assertIn('300 batches: 0 wrong words', result.out)


class Traced(Case):
    """Each call that the trace tells of is one event, on a track of its own kind."""

    def traced(self, part, *args, **settings):
        path = os.path.join(FOLDER, part + '.trace')
        if os.path.exists(path):
            os.unlink(path)
        result = preloaded([CONTROL, part, *args], dict(settings, ALLOGRAFT_TRACE=path))
        self.assertEqual((result.status, result.err), (0, ''), result.out)
        shown = subprocess.run([os.environ['TEST_COMMAND'], 'trace', path, '--perfetto', '-'], env=clean_environment(),
                               stdout=subprocess.PIPE, check=True)
        events = json.loads(shown.stdout)['traceEvents']
        tracks = {e['tid']: e['args']['name'].split(' (')[0] for e in events if e['name'] == 'thread_name'}
        told = [(tracks[e['tid']], e['name'], e['args']) for e in events if e['ph'] == 'X' and e['tid'] in tracks]
        return told, result.report()

    def of(self, told, track, name):
        return [args for on, known, args in told if (on, known) == (track, name)]

    def test_transfers(self):
        for part, args in (('rings', ()), ('batches', ('40',)), ('stages', ())):
            with self.subTest(part=part):
                told, report = self.traced(part, *args)
                transfers = self.of(told, 'transfers', 'transfer')
                self.assertEqual(len(transfers), report['api']['copies'])
                self.assertGreater(len(transfers), 10)
                self.assertEqual(sum(t['bytes'] for t in transfers), report['api']['copied_bytes'])
                self.assertNotIn('0x0', [t['address'] for t in transfers] + [t['stream'] for t in transfers])
                self.assertEqual(len({t['slot'] for t in transfers}), 1 if part == 'stages' else 2)

    def test_captures_and_replays(self):
        told, report = self.traced('graphs', FOLDER)
        on = 'captures and replays'
        api = report['api']
        self.assertEqual(len(self.of(told, on, 'capture')), api['captures'])
        self.assertEqual(len(self.of(told, on, 'capture in vain')), api['captures_failed'])
        self.assertEqual(len(self.of(told, on, 'replay')), api['replays'])

    def test_managed_memory(self):
        told, report = self.traced('managed')
        on = 'managed memory'
        allocated, freed = self.of(told, on, 'allocate'), self.of(told, on, 'free')
        self.assertEqual(len(allocated), report['api']['managed_allocations'])
        self.assertEqual(sorted(a['bytes'] for a in freed), sorted(a['bytes'] for a in allocated))
        self.assertEqual(len(self.of(told, on, 'prefetch to the host')), 5)
        prefetched = [a['bytes'] for name in ('device 0', 'the host') for a in self.of(told, on, 'prefetch to ' + name)]
        # two allocations of 4 MiB are brought to the device besides
        self.assertEqual(sum(prefetched), report['api']['prefetched_bytes'] + 2 * (4 << 20))

    def test_prefetches_of_allocations(self):
        told, report = self.traced('advice', '0', ALLOGRAFT_POLICY='managed', ALLOGRAFT_MANAGED_BACKEND='plain')
        prefetched = self.of(told, 'managed memory', 'prefetch to device 0')
        self.assertEqual((len(prefetched), sum(p['bytes'] for p in prefetched)),
                         (report['managed']['prefetches'], report['managed']['prefetch_bytes']))
        self.assertGreater(len(prefetched), 0)


# Every call that the API makes: it fails once, as if memory had run out or for no known reason.
with open(os.path.join(os.environ['TEST_ROOT'], 'interpose', 'api', 'api.h'), encoding='utf-8') as header:
    CALLS = re.findall(r'X\((cu\w+)\)', header.read())


class Failures(Case):
    def run_with(self, fail, way):
        settings = dict(way, SIM_FAIL=fail, SIM_VIOLATION='exit') if fail else dict(way)
        if 'CONTROL_LOAD' in way:
            return run([CONTROL, 'failures'], settings)
        return preloaded([CONTROL, 'failures'], settings)

    def test_nothing_fails(self):
        for way in ({}, {'CONTROL_LOAD': LIBRARY}):
            self.assertEqual(self.run_with(None, way).out, 'left behind: 0\ncame to the end, without a failure\nviolations: 0\n')

    def test_a_free_that_fails(self):
        """By the API, and by the program: what is still there stays counted."""
        for n in (1, 2, 3):
            for way in ({}, {'CONTROL_LOAD': LIBRARY}):
                with self.subTest(n=n, way=way):
                    result = self.run_with('cuMemFree_v2:%d:999' % n, way)
                    self.assertEqual(result.status, 0, result.out + result.err)
                    self.assertIn('violations: 0', result.out)

    @but_under_tsan
    def test_each_call_fails(self):
        self.assertGreater(len(CALLS), 40)
        noticed = 0
        for i, call in enumerate(CALLS):
            for n in (1, 2, 3):
                way = {} if (i + n) % 2 else {'CONTROL_LOAD': LIBRARY}
                with self.subTest(call=call, n=n, way=way):
                    result = self.run_with('%s:%d:%d' % (call, n, 2 if n == 2 else 999), way)
                    if re.search(r'(context\.h|(device|control|failures)\.c):\d+: cu', result.err):
                        continue  # the program's own call, before the API's first
                    self.assertEqual(result.status, 0, result.out + result.err)
                    self.assertIn('came to the end', result.out)
                    self.assertIn('violations: 0', result.out)
                    # These may take it with them, or the answer to how much is left.
                    if not re.search('Free|Destroy|MemGetInfo|CtxGetCurrent', call):
                        self.assertIn('left behind: 0\n', result.out)
                    noticed += 'with failures' in result.out
        self.assertGreater(noticed, 40)


class Loading(Case):
    def test_header(self):
        for name in ('api_header', 'api_header_cpp'):
            path = os.path.join(API, name)
            if os.path.exists(path):
                done = subprocess.run([path], stdout=subprocess.PIPE, universal_newlines=True)
                self.assertEqual((done.returncode, done.stdout), (0, ''))

    def test_opened_library_leaves_the_program_alone(self):
        result = run([CONTROL, 'graphs', FOLDER], {'CONTROL_LOAD': LIBRARY, 'ALLOGRAFT_STATS': 'stderr'})
        self.assertEqual((result.status, result.err), (0, ''))

    def test_switched_off(self):
        result = preloaded([CONTROL, 'managed'], {'ALLOGRAFT_DISABLE': '1'}, stats=None)
        self.assertEqual((result.status, result.err), (0, ''), result.out)

    def test_unknown_part_is_refused(self):
        self.assertEqual(preloaded([CONTROL, 'nothing'], stats=None).status, 2)


if __name__ == '__main__':
    main()
