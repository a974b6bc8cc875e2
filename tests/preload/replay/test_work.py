# Every call of stream work gives the same codes, at the same calls, and the same bytes, whether the
# work is launched as graphs or not.

from harness import SEEDS, SOME, UNDER_TSAN, Case, but_under_tsan, main, preloaded, program, run, some

SOON = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0'}
HELD = dict(SOON, ALLOGRAFT_GRAPH_HOLD_US='60000000')  # longer than anything here waits
NATIVE = dict(HELD, ALLOGRAFT_POLICY='native')
MANAGED = dict(HELD, ALLOGRAFT_POLICY='managed')
SMALL = dict(HELD, ALLOGRAFT_GRAPH_STAGING='2', ALLOGRAFT_GRAPH_STAGING_SLOT='16KiB')
GREAT = dict(HELD, ALLOGRAFT_GRAPH_STAGING='4', ALLOGRAFT_GRAPH_STAGING_SLOT='2MiB')
HURRIED = dict(SOON, ALLOGRAFT_GRAPH_HOLD_US='10')
PREFETCHED = dict(MANAGED, ALLOGRAFT_PREFETCH='launch')
LEGACY = dict(HELD, ALLOGRAFT_GRAPH='legacy')
EVERY = [HELD, NATIVE, MANAGED, SMALL, GREAT, HURRIED, PREFETCHED, LEGACY]
FEW = [HELD, HURRIED]

PARTS = ('copies', 'large', 'rows', 'rows-after-legacy', 'downloads', 'shapes', 'fills', 'without-stream', 'launches',
         'waits', 'memory', 'synchronous', 'synchronous-context', 'synchronous-device', 'bad', 'bad-at-last')
STREAMS = ('null', 'blocking', 'nonblocking')
RUNS = [(part, stream) for part in PARTS for stream in STREAMS
        if not (part.startswith(('rows-after', 'without-stream', 'synchronous')) and stream == 'nonblocking')]  # in no order
SIMULATED = {'SIM_IDLE_MS': '1'}


class Work(Case):
    def part(self, name, stream='null', per_thread=False, variants=EVERY, **more):
        command = [program('preload_work' + ('_per_thread' if per_thread else '')), name, stream]
        return self.same(command, variants=variants, settings=SIMULATED, **more)

    def staging(self, name, settings):
        result = preloaded([program('preload_work'), name, 'nonblocking'], dict(SIMULATED, **settings))
        self.assertEqual(result.status, 0, result.out + result.err)
        return result.report()['replay']

    def test_same(self):
        """Each part on each stream; where that takes too long on one of them, the next one each time."""
        for name, stream in [run for part in PARTS for run in some([run for run in RUNS if run[0] == part])]:
            with self.subTest(part=name, stream=stream):
                variants = EVERY if SOME or stream == 'null' else some(FEW)
                variants = [HURRIED] if UNDER_TSAN else variants  # where the library has a thread of its own
                for variant, result in self.part(name, stream, variants=variants, seeds=SEEDS[:1]):
                    if variant == HELD:
                        self.replayed(result.report()['replay'])

    def replayed(self, replay):
        """Or the rest would show nothing."""
        self.assertGreater(replay['replayed'], 20)
        self.assertEqual(replay['withheld'], replay['replayed'] + replay['released'])
        self.assertEqual(replay['graph_launches_failed'], 0)

    @but_under_tsan
    def test_per_thread(self):
        for name in PARTS:
            with self.subTest(part=name):
                self.part(name, per_thread=True, variants=some(FEW), seeds=SEEDS[:1])

    @but_under_tsan
    def test_other_seeds(self):
        for name in ('copies', 'waits', 'memory'):
            with self.subTest(part=name):
                self.part(name, 'blocking', variants=[SMALL], seeds=SEEDS[1:])

    def test_references(self):
        """What reads textures by reference must not be in a graph; what was until then may have been."""
        for name in ('texture-reference', 'surface-reference'):
            with self.subTest(part=name):
                for _, result in self.part(name, 'nonblocking', variants=[HELD], quiet=False):
                    replay = result.report()['replay']
                    self.assertGreater(replay['replayed'], 5)
                    self.assertEqual(replay['state'], 'unavailable')
                    self.assertIn('graph replay is off', result.err)

    @but_under_tsan
    def test_recorded(self):
        """Where the only calls that end a segment are the waits."""
        for name in ('launches', 'copies'):
            result = preloaded([program('preload_work'), name, 'nonblocking'], dict(SIMULATED, **HELD))
            with self.subTest(part=name):
                flushes = result.report()['replay']['flushes']
                self.assertEqual((flushes['unrecorded'], flushes['copy']), (0, 0), flushes)

    @but_under_tsan
    def test_staging(self):
        ring = self.staging('copies', HELD)['staging']
        self.assertGreater(ring['copies'], 20)
        self.assertGreater(ring['packed'], 5)
        self.assertGreater(ring['bytes'], 5 * 65536)
        self.assertEqual((ring['too_large'], ring['full']), (0, 0))
        self.assertGreater(self.staging('large', HELD)['staging']['too_large'], 0)
        self.assertEqual(self.staging('large', GREAT)['staging']['too_large'], 0)
        small = self.staging('large', SMALL)['staging']
        self.assertGreater(small['full'], 0)
        self.assertGreater(small['copies'], 0)

    @but_under_tsan
    def test_refused_calls_of_ours(self):
        """The third pinned block is the ring's; the program makes no other of these calls."""
        natives = {part: run([program('preload_work'), part, 'blocking'], SIMULATED)
                   for part in ('copies', 'large')}
        for symbol, calls in (('cuMemHostAlloc', ('3',)), ('cuEventCreate', ('1', '2', '30')),
                              ('cuPointerGetAttributes', ('1', '2', '7', '20')),
                              ('cuEventQuery', ('1', '3')), ('cuEventRecord', ('1', '2', '5')),
                              ('cuKernelGetParamInfo', ('1', '2')), ('cuFuncGetParamInfo', ('1', '3'))):
            for call in some(calls):
                for part, settings in (('copies', HELD), ('large', SMALL)):
                    with self.subTest(symbol=symbol, call=call, part=part):
                        fails = {'SIM_FAIL': '%s:%s:999' % (symbol, call)}
                        result = preloaded([program('preload_work'), part, 'blocking'],
                                           dict(SIMULATED, **settings, **fails))
                        self.assertEqual(natives[part].out, result.out, result.err)

    @but_under_tsan
    def test_one_load_when_off(self):
        """Without replay, and copies by us, nothing of this is entered or counted."""
        for name in ('copies', 'without-stream', 'waits'):
            result = preloaded([program('preload_work'), name, 'null'], {'ALLOGRAFT_COPY': 'driver'})
            hooks = result.report()['coverage']['hooks']
            for hook in ('cuMemcpyHtoDAsync_v2', 'cuMemsetD32Async', 'cuEventRecord', 'cuLaunchKernel',
                         'cuStreamSynchronize', 'cuMemcpyDtoH_v2', 'cuMemcpyDtoD_v2'):
                self.assertNotIn(hook, hooks)


if __name__ == '__main__':
    main()
