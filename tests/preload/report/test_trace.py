# A trace tells what the program did: each event once, whoever made it and however the process ended.

import collections
import os
import re
import shutil
import struct
import subprocess
import tempfile

from harness import ROOT, Case, but_under_tsan, clean_environment, main, preloaded, program, run

COMMAND = os.environ['TEST_COMMAND']
TRACES = program('preload_traces')
HELD = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0',
        'ALLOGRAFT_GRAPH_HOLD_US': '60000000', 'SIM_IDLE_MS': '1'}

UNIT = 64
EVENT = struct.Struct('<6Q2I2BhHH')
Event = collections.namedtuple('Event', 'ticks duration address size stream caller thread sequence '
                                        'kind placement device module code')
HEADER = struct.Struct('<8sIIIiiI5Q32s72s256s80s')


def kinds():
    """The numbers of the kinds, as the format's header has them."""
    with open(os.path.join(ROOT, 'interpose', 'core', 'report', 'trace', 'trace_format.h'), encoding='utf-8') as file:
        body = re.search(r'enum ag_trace_kind \{(.*?)\n\};', file.read(), re.DOTALL)[1]
    found, number = {}, 0
    for name, value in re.findall(r'AG_TRACE_(\w+)(?:\s*=\s*(\d+))?,', re.sub(r'/\*.*?\*/', '', body, flags=re.DOTALL)):
        number = int(value) if value else number + 1
        found[name] = number
    return found


KINDS = kinds()
NAMES = {number: name for name, number in KINDS.items()}
PLACEMENT, STEP, FLUSH, MODULE = 1, 2, 3, 5


class Trace:
    """A trace, read as the format says and not as the command does. Events stand as in the file: those of one
    thread in their order."""

    def __init__(self, path, whole=True):
        with open(path, 'rb') as file:
            data = file.read()
        (magic, version, header_bytes, unit, self.pid, self.rank, _, started, _, opened, _, _, _,
         _, self.program, _) = HEADER.unpack(data[:HEADER.size])
        assert (magic, version, header_bytes, unit) == (b'AGTRACE\0', 1, 512, UNIT)
        assert started <= opened
        self.texts, self.bases, self.events, self.ends, self.dropped = {}, {}, [], [], 0
        at = header_bytes
        while at + UNIT <= len(data):
            event = Event(*EVENT.unpack(data[at:at + UNIT]))
            at += UNIT
            kind = NAMES[event.kind]
            if kind == 'TEXT':
                text = data[at:at + event.size]
                at += (event.size + UNIT - 1) // UNIT * UNIT
                assert (event.code, event.address) not in self.texts or event.code == MODULE
                self.texts[event.code, event.address] = text.split(b'\0')[0].decode()
                self.bases[event.address] = event.caller
            elif kind == 'DROPPED':
                self.dropped += event.size
            elif kind == 'END':
                self.ends.append(event.code)
            elif kind != 'CLOCK':
                self.events.append(event)
        assert not whole or at == len(data)

    def of(self, *names):
        return [e for e in self.events if NAMES[e.kind] in names]

    def short(self):
        """Kind, size, and the placement or reason of each event."""
        return [(NAMES[e.kind], e.size, self.word(e)) for e in self.events]

    def word(self, event):
        if event.kind == KINDS['STEP']:
            return self.texts[STEP, event.code]
        return 'error %d' % event.code if event.kind == KINDS['FAILED'] else self.texts[PLACEMENT, event.placement]


class Traces(Case):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='trace-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name='a.trace'):
        return os.path.join(self.folder, name)

    def result(self, *words, name='a.trace', settings=None, command=TRACES, **more):
        return preloaded([command] + list(words), dict(settings or {}, ALLOGRAFT_TRACE=self.path(name)), **more)

    def trace(self, *words, settings=None, status=0, **more):
        result = self.result(*words, settings=settings, **more)
        self.assertEqual((result.status, result.err), (status, ''), result.out)
        trace = Trace(self.path())
        report = result.report()
        self.assertEqual(report['trace'], {'written': len(trace.events), 'dropped': 0})
        self.assertEqual((trace.pid, trace.dropped), (report['process']['pid'], 0))
        self.command()
        return trace, report

    def command(self, name='a.trace'):
        """The command reads it too, in every way."""
        for words in ((), ('--csv', 'rmm'), ('--perfetto', '-')):
            done = subprocess.run([COMMAND, 'trace', self.path(name), *words], env=clean_environment(), timeout=60,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual((done.returncode, done.stderr), (0, b''))
        return done.stdout

    def test_events(self):
        trace, _ = self.trace('events', settings={'ALLOGRAFT_POLICY': 'pool'})
        own_steps = [e for e in trace.short() if e[0] != 'STEP' or e[2] == 'refused']
        self.assertEqual(own_steps, [
            ('ALLOC', 1000, 'pool'), ('ALLOC', 2000, 'pool'), ('ALLOC', 3000, 'pool'),
            ('ALLOC_ASYNC', 5000, 'own pool'), ('FREE_ASYNC', 0, 'own pool'),
            ('STEP', 1 << 50, 'refused'), ('FAILED', 1 << 50, 'error 2'),
            ('FREE', 2000, 'pool'), ('FREE', 1000, 'pool'), ('FREE', 3000, 'pool')])
        a, b, c, own, own_free = trace.of('ALLOC', 'ALLOC_ASYNC', 'FREE_ASYNC')
        freed = trace.of('FREE')
        self.assertEqual([e.address for e in freed], [b.address, a.address, c.address])
        self.assertEqual((own.address, own.stream), (own_free.address, own_free.stream))
        self.assertNotEqual(own.stream, 0)
        self.assertEqual([e.stream for e in freed], [0, own.stream, 0])
        self.assertEqual({e.device for e in (a, b, c, own)}, {0})
        self.assertEqual({e.thread for e in trace.events}, {trace.pid})
        for event in (a, own, own_free, freed[0]):
            self.assertEqual(trace.texts[MODULE, event.module], os.path.realpath(TRACES))
            self.assertLess(0, event.caller - trace.bases[event.module])
            self.assertLess(event.caller - trace.bases[event.module], os.path.getsize(TRACES))
        self.assertEqual(trace.ends, [1])

    def test_stacks(self):
        """With ALLOGRAFT_STACKS each allocation is told of with the number that its stack has in the report."""
        asked = {'ALLOGRAFT_STACKS': '16', 'ALLOGRAFT_LOG': 'error'}
        for policy in ('auto', 'native', 'pool', 'managed'):
            with self.subTest(policy):
                trace, report = self.trace('events', settings=dict(asked, ALLOGRAFT_POLICY=policy))
                modules = [{'base': 0}] + report['holders']['modules']
                stacks = {stack['number']: stack for stack in report['holders']['stacks']}
                self.assertEqual(len(stacks), len(report['holders']['stacks']))
                for number, event in enumerate(trace.events):
                    if NAMES[event.kind] not in ('ALLOC', 'ALLOC_ASYNC'):
                        continue
                    after = trace.events[number + 1]
                    self.assertEqual((NAMES[after.kind], after.address, after.device), ('STACK', event.address, 0))
                    self.assertGreaterEqual(after.ticks, event.ticks + event.duration)
                    stack = stacks[after.code]
                    self.assertEqual(stack['kind'], 'pool' if NAMES[event.kind] == 'ALLOC_ASYNC' else 'device')
                    first = stack['frames'][0]
                    self.assertEqual(modules[first['module']]['base'] + first['offset'], event.caller)
                self.assertEqual(len(trace.of('STACK')), 4)
        trace, report = self.trace('events', settings=dict(asked, ALLOGRAFT_STACKS_SAMPLE='4KiB'))
        self.assertEqual(len(trace.of('STACK')), report['holders']['taken'])

    def test_spilled(self):
        trace, _ = self.trace('spill', settings={'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_LIMIT': '8MiB', 'ALLOGRAFT_OOM': 'spill',
                                                 'ALLOGRAFT_UNSPILL': '1'})
        size = 6 << 20
        wanted = [('ALLOC', size, 'pool'), ('STEP', size, 'over_limit'), ('STEP', size, 'spilled'),
                  ('ALLOC', size, 'spilled'), ('FREE', size, 'pool'), ('STEP', size, 'unspilled'),
                  ('MOVED', size, 'managed'), ('FREE', size, 'managed')]
        self.assertEqual([e for e in trace.short() if e in wanted], wanted)
        self.assertEqual(len(trace.of('ALLOC', 'FREE', 'MOVED')), 5)

    def test_threads(self):
        trace, _ = self.trace('threads')
        by_thread = collections.defaultdict(list)
        for event in trace.events:
            by_thread[event.thread].append(event)
        self.assertEqual(len(by_thread), 30)
        self.assertEqual(sorted({e.size for e in trace.events}), [512 * i for i in range(1, 31)])
        for events in by_thread.values():
            self.assertEqual([NAMES[e.kind] for e in events], ['ALLOC', 'FREE'] * 100)
            self.assertEqual(len({e.size for e in events}), 1)
            self.assertEqual([e.address for e in events[::2]], [e.address for e in events[1::2]])

    def test_full(self):
        # As many as fit are there, the others are counted: how many depends on who is faster.
        result = self.result('threads', settings={'ALLOGRAFT_TRACE_BUFFER': '4KiB'})
        trace = Trace(self.path())
        self.assertEqual(result.report()['trace'], {'written': len(trace.events), 'dropped': trace.dropped})
        self.assertEqual(len(trace.events) + trace.dropped, 30 * 200)
        self.command()

    def test_replay(self):
        replay = program('preload_replay')
        native = run([replay, 'diverging'], {'SIM_IDLE_MS': '1'})
        trace, report = self.trace('diverging', settings=HELD, command=replay, status=native.status)
        replay = report['replay']
        self.assertGreater(replay['graph_launches'], 0)
        launched, released = trace.of('REPLAY'), trace.of('RELEASE')
        self.assertEqual(len(launched), replay['graph_launches'])
        self.assertEqual(sum(e.size for e in launched), replay['replayed'])
        self.assertEqual(sum(e.address for e in launched), replay['nodes_updated'])
        self.assertEqual(sum(e.size for e in released), replay['released'])
        self.assertEqual(len(trace.of('BUILD')), replay['graphs_built'])
        flushes = collections.Counter(trace.texts[FLUSH, e.code] for e in trace.of('FLUSH'))
        self.assertEqual(flushes, {k: n for k, n in replay['flushes'].items() if n})

    def test_forked(self):
        for part, name, n in (('fork-before', 'a.trace', 2), ('fork-after', 'a.trace', 1),
                              ('fork-before', 'a.%p.trace', 2)):
            with self.subTest(part=part, name=name):
                self.setUp()
                result = self.result(part, name=name)
                self.assertEqual((result.status, result.out), (0, 'child: 0\n'), result.err)
                traces = [Trace(self.path(file)) for file in os.listdir(self.folder)]
                self.assertEqual(len(traces), n)
                sizes = sorted([[e.size for e in t.events] for t in traces])
                self.assertEqual(sizes, [[2000, 2000], [3000, 3000]][:n])
                self.assertEqual(len({t.pid for t in traces}), n)
                for trace, file in ((Trace(self.path(f)), f) for f in os.listdir(self.folder)):
                    self.assertIn(file, ('a.trace', 'a.%d.trace' % trace.pid))

    def test_killed(self):
        # The program goes on until so much is in the file, and is killed soon after.
        result = self.result('kill', self.path(), str(512 + 1000 * UNIT))
        self.assertEqual(result.status, -9)
        trace = Trace(self.path(), whole=False)
        self.assertEqual(trace.ends, [])
        self.assertGreater(len(trace.events) + trace.dropped, 500)
        if not trace.dropped:
            sizes = [e.size for e in trace.events]
            self.assertEqual([NAMES[e.kind] for e in trace.events], (['ALLOC', 'FREE'] * len(sizes))[:len(sizes)])
            self.assertEqual(sizes, sorted(sizes))
            self.assertEqual(set(sizes) - {4096, 8192}, set())
            self.assertLessEqual(sizes.count(8192), 100)
        self.command()

    def test_ends(self):
        both = [1000, 1000, 2000, 2000]
        for how, sizes, ends in (('return', both, [4, 1]), ('_exit', both, [4, 3]), ('quick', both, [4, 2]),
                                 ('exec', [1000, 1000], [4])):
            with self.subTest(how=how):
                result = self.result('leave', how)
                self.assertEqual(result.status, 0, result.err)
                trace = Trace(self.path())
                self.assertEqual(([e.size for e in trace.events], trace.ends), (sizes, ends))

    def test_pinned_memory(self):
        """Also what the driver has no part in."""
        for host in ('native', 'cache', 'fast'):
            result = self.result('cold', '3', settings={'ALLOGRAFT_HOST': host}, command=program('preload_pinned'))
            self.assertEqual((result.status, result.err), (0, ''))
            trace = Trace(self.path())
            given, freed = trace.of('PINNED_ALLOC'), trace.of('PINNED_FREE')
            self.assertEqual([e.size for e in given], [4096 << k for k in range(8)] * 3)
            self.assertEqual([e.address for e in freed], [e.address for e in given])
            for event in given + freed:
                self.assertEqual(trace.texts[MODULE, event.module], os.path.realpath(program('preload_pinned')))
            self.command()

    @but_under_tsan
    def test_pieces_that_move(self):
        settings = {'ALLOGRAFT_OOM': 'page', 'ALLOGRAFT_PAGE_PIECE': '2MiB', 'ALLOGRAFT_LIMIT': '12MiB',
                    'ALLOGRAFT_LOG': 'error', 'SIM_SCHED': 'eager'}
        result = self.result('passes', '3', settings=settings, command=program('preload_paging'))
        self.assertEqual((result.status, result.err), (0, ''))
        moved, pressure = Trace(self.path()).of('PIECES'), result.report()['pressure']
        for way, bytes_moved in ((0, pressure['moved_in_bytes']), (-1, pressure['moved_out_bytes'])):
            self.assertGreater(bytes_moved, 0)
            self.assertEqual(sum(e.size for e in moved if e.device == way), bytes_moved)
            self.assertEqual(sum(e.code for e in moved if e.device == way), bytes_moved >> 21)
        self.command()

    def test_same(self):
        native = run([TRACES, 'events'])
        for name in ('a.trace', 'b.%n.%r.%h.trace'):
            result = self.result('events', name=name)
            self.assertEqual((native.status, native.out, native.err), (result.status, result.out, result.err))
        self.assertEqual(len(os.listdir(self.folder)), 2)
        self.assertFalse(any('%' in file for file in os.listdir(self.folder)))

    def test_places_that_cannot_be_written(self):
        native = run([TRACES, 'events'])
        os.mkfifo(self.path('fifo'))
        for name in ('no/such/folder/a.trace', 'fifo', '.'):
            result = self.result('events', name=name)
            self.assertEqual((native.status, native.out), (result.status, result.out))
            self.assertEqual(len(result.err.splitlines()), 1, result.err)
            self.assertIn('no trace can be written to', result.err)
            self.assertEqual(result.report()['trace'], {'written': 0, 'dropped': 0})

    def test_off(self):
        result = preloaded([TRACES, 'events'])
        self.assertEqual(result.report()['trace'], {'written': 0, 'dropped': 0})
        self.assertEqual(os.listdir(self.folder), [])

    def test_limit_on_files(self):
        native = run([TRACES, 'limited'])
        result = self.result('limited', stats=None, settings={'ALLOGRAFT_STATS': 'off'})
        self.assertEqual((native.status, native.out), (result.status, result.out))
        self.assertEqual(result.err, 'allograft: the trace ends here: File too large\n')
        self.assertLessEqual(os.path.getsize(self.path()), 8192)
        self.command()


if __name__ == '__main__':
    main()
