# ALLOGRAFT_WAIT: waits that sleep return what the driver's do, once all is done that these wait for, and wait for nothing
# else; the report counts them.

from harness import SEEDS, Case, main, preloaded, program, run, some

SLEEPS = program('preload_sleeps')
SLEEP, AUTO = {'ALLOGRAFT_WAIT': 'sleep'}, {'ALLOGRAFT_WAIT': 'auto'}
VARIANTS = [SLEEP, AUTO, dict(SLEEP, ALLOGRAFT_POLICY='pool'), dict(SLEEP, ALLOGRAFT_WAITS='1'),
            dict(SLEEP, ALLOGRAFT_POLICY='native', ALLOGRAFT_FREE='sync'), dict(SLEEP, ALLOGRAFT_GRAPH='all')]
THREAD = {'SIM_SCHED': 'thread'}  # the device works by itself, so that a wait takes its time
N_KINDS = 13
# Those that the library waits for itself: of the kinds all but the one for the legacy stream beside a non-blocking one,
# and the waits for nothing after those for the legacy stream, of which nobody asks the driver first.
N_OWN = N_KINDS - 1 + 4


def own(counts):
    """Waits of the library's own. Of a short one the thread may be kept from its processor until it is over."""
    return counts['slept'] + counts['awake']


class Sleeps(Case):
    def counts(self, words, settings, **more):
        result = preloaded([SLEEPS, *words], dict(THREAD, **settings), **more)
        self.assertEqual(result.status, 0, result.err)
        return result.report()['waiting']

    def test_same_in_every_way(self):
        for words in (['kinds'], ['many'], ['apart'], ['captures'], ['refused'], ['contexts'], ['threads']):
            for schedule in some(('adversarial', 'thread', 'reluctant')):
                if words == ['apart'] and schedule == 'reluctant':
                    continue  # nothing runs there before somebody waits for it
                with self.subTest(words=words, schedule=schedule):
                    self.same([SLEEPS, *words], variants=VARIANTS if words != ['many'] else [SLEEP, AUTO],
                              seeds=SEEDS if schedule == 'adversarial' and words != ['many'] else SEEDS[:1],
                              settings={'SIM_SCHED': schedule})

    def test_errors_that_stay(self):
        self.same([SLEEPS, 'broken'], variants=VARIANTS, seeds=SEEDS, settings={'SIM_VIOLATION': 'count'}, quiet=False)

    def test_driver_refuses_what_sleeping_takes(self):
        for symbol, n_own in (('cuCtxRecordEvent', 4), ('cuCtxGetFlags', 0), ('cuThreadExchangeStreamCaptureMode', N_OWN)):
            refused = dict(THREAD, SIM_FAIL=symbol + ':0:999')
            for _, result in self.same([SLEEPS, 'kinds'], variants=[SLEEP], settings=refused):
                counts = result.report()['waiting']
                self.assertEqual(own(counts), n_own, symbol)
                self.assertEqual(counts['flags'], 0, symbol)
                self.assertEqual(counts['legacy_stream'] > 0, symbol != 'cuCtxGetFlags', symbol)

    def test_later_work_is_not_waited_for(self):
        self.same([SLEEPS, 'later'], variants=[SLEEP, AUTO], settings=THREAD)

    def test_captures_that_begin_meanwhile(self):
        self.same([SLEEPS, 'beside'], variants=[SLEEP, AUTO], settings=THREAD)

    def test_contexts_that_come_and_go(self):
        for _, result in self.same([SLEEPS, 'coming'], variants=[SLEEP], settings=THREAD):
            self.assertGreater(own(result.report()['waiting']), 0)

    def test_child(self):
        for _, result in self.same([SLEEPS, 'forks'], variants=[SLEEP], settings=THREAD):
            self.assertEqual([own(r['waiting']) for r in result.reports() if own(r['waiting'])], [1])

    def test_is_no_point_of_cancellation(self):
        """The simulated driver's own waits are such points, a real one's are not where it waits awake."""
        result = preloaded([SLEEPS, 'cancelled'], dict(THREAD, **SLEEP))
        for way in ('stream', 'event', 'context'):
            self.assertIn('%s: came back 1, cancelled 1\n' % way, result.out)

    def test_jumps_out(self):
        native = run([SLEEPS, 'jumps', 'cuStreamSynchronize'], THREAD)
        self.assertNotIn('nothing', native.out)
        for call in ('cuEventSynchronize', 'cuEventQuery'):
            result = preloaded([SLEEPS, 'jumps', call], dict(THREAD, **SLEEP))
            self.assertEqual((native.status, native.out, native.err), (result.status, result.out, result.err), call)

    def test_counts(self):
        counts = self.counts(['kinds'], SLEEP)
        self.assertEqual(counts['legacy_stream'], 2)  # the one beside a non-blocking stream, and the one that follows it
        self.assertEqual(own(counts), N_OWN)
        self.assertEqual((counts['flags'], counts['capture_open']), (0, 0))

    def test_sleeps(self):
        """Less than half of a wait for 200 ms is what its looks take of a processor, however slow that is."""
        counts = self.counts(['long'], SLEEP)
        self.assertEqual((counts['slept'], counts['awake']), (1, 0))
        self.assertGreater(counts['asleep_ns'], 100000000)

    def test_learns_where_waits_are_long(self):
        for n in ('kinds', 'many'):
            counts = self.counts([n], AUTO)
            (self.assertGreaterEqual if n == 'many' else self.assertLess)(own(counts), 4)

    def test_flags_of_the_context_stand(self):
        for flags in (1, 2, 4):  # spin, yield, blocking
            counts = self.counts(['flags', str(flags)], SLEEP)
            self.assertGreater(counts['flags'], 5)
            self.assertEqual((own(counts), counts['capture_open']), (0, 0))
        self.same([SLEEPS, 'flags', '1'], variants=VARIANTS, seeds=SEEDS)

    def test_captures_are_left_alone(self):
        self.assertGreater(self.counts(['captures'], SLEEP)['capture_open'], 10)

    def test_native_counts_nothing(self):
        for settings in ({}, {'ALLOGRAFT_WAIT': 'native'}):
            self.assertEqual(set(self.counts(['kinds'], settings).values()), {0})

    def test_text(self):
        result = preloaded([SLEEPS, 'long'], dict(THREAD, ALLOGRAFT_WAIT='sleep', ALLOGRAFT_STATS='full'), stats=None)
        self.assertIn('\n  how threads waited for the device (ALLOGRAFT_WAIT)\n', result.err)
        self.assertRegex(result.err, r'\n    waits in which the thread slept +\d+\n')


main()
