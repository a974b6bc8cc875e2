# Programs that go round in loops do what they do natively when their work is launched as graphs:
# each kernel as often, in the same order, with the parameters of its launch.

import os
import re
import time

from harness import SECONDS, SEEDS, SIM, Case, but_under_tsan, lines, main, preloaded, program, run, some

EAGER = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0'}
HELD = dict(EAGER, ALLOGRAFT_GRAPH_HOLD_US='60000000')  # longer than anything here waits
PLAIN = {'ALLOGRAFT_GRAPH': 'all'}
SHORT = dict(HELD, ALLOGRAFT_GRAPH_SEGMENT='4', ALLOGRAFT_POLICY='native')
WHOLE = dict(HELD, ALLOGRAFT_GRAPH_SEGMENT='4096')
LONG_HOLD = dict(EAGER, ALLOGRAFT_GRAPH_HOLD_US='50000')  # longer than a busy machine lets an iteration wait
HURRIED = dict(EAGER, ALLOGRAFT_GRAPH_HOLD_US='10')
FEW = dict(HELD, ALLOGRAFT_GRAPH_GRAPHS='2', ALLOGRAFT_GRAPH_STAGING='2',
           ALLOGRAFT_GRAPH_STAGING_SLOT='4KiB')
MANAGED = dict(HELD, ALLOGRAFT_POLICY='managed')
ALL = [HELD, PLAIN, SHORT, WHOLE, HURRIED, FEW, MANAGED]

# All of them but with graphs; what is launched as graphs in each under HELD.
PARTS = ('exactly', 'diverging', 'uploads', 'pinned', 'legacy', 'events', 'unloading', 'deeper',
         'streams', 'contexts', 'allocating', 'freeing', 'capturing', 'host', 'spinning',
         'per-thread', 'resetting', 'sleeping', 'elsewhere', 'inside')
SIMULATED = {'SIM_IDLE_MS': '1'}


class Replay(Case):
    def part(self, *words, variants=ALL, name='preload_replay', settings=None, **more):
        return self.same([program(name)] + list(words), variants=variants,
                         settings=dict(SIMULATED, **(settings or {})), **more)

    def replayed(self, result):
        replay = result.report()['replay']
        self.assertEqual(replay['state'], 'on')
        self.assertGreater(replay['graph_launches'], 0)
        # What was withheld went out in one of two ways.
        self.assertEqual(replay['withheld'], replay['replayed'] + replay['released'])
        self.assertEqual(replay['graph_launches_failed'], 0)
        self.assertEqual(replay['builds_failed'], 0)
        return replay

    def test_same(self):
        for name in PARTS:
            for variant, result in self.part(name):
                if variant == HELD:
                    with self.subTest(part=name):
                        self.replayed(result)

    @but_under_tsan
    def test_other_seeds(self):
        for name in ('diverging', 'legacy', 'events', 'uploads'):
            self.part(name, variants=[HELD, HURRIED], seeds=SEEDS[1:])

    @but_under_tsan
    def test_per_thread_streams(self):
        for name in ('exactly', 'legacy', 'events', 'uploads'):
            for variant, result in self.part(name, name='preload_replay_per_thread',
                                             variants=[HELD, HURRIED]):
                if variant == HELD:
                    self.replayed(result)

    def test_only_marked_streams(self):
        legacy = dict(HELD, ALLOGRAFT_GRAPH='legacy')
        for _, result in self.part('uploads', variants=[legacy]):
            self.assertEqual(result.report()['replay']['withheld'], 0)
        for _, result in self.part('legacy', variants=[legacy]):
            self.assertEqual(result.report()['replay']['streams_marked'], 1)
        for mark, streams in ('priority:-5', 2), ('priority:0', 3):  # the default stream has 0
            for _, result in self.part('priorities', variants=[dict(HELD, ALLOGRAFT_GRAPH=mark)]):
                self.assertEqual(result.report()['replay']['streams_marked'], streams)
                self.replayed(result)
        for _, result in self.part('events', variants=[dict(HELD, ALLOGRAFT_GRAPH='nth:2')]):
            self.assertEqual(result.report()['replay']['streams_marked'], 1)

    def test_one_graph_again_and_again(self):
        # 500 launches of one kernel after another, with nothing to wait for.
        for _, result in self.part('exactly', variants=[HELD]):
            replay = self.replayed(result)
            self.assertGreater(replay['replayed'], 1500)
            self.assertGreater(replay['nodes_updated'], 500)

    def test_what_may_end_before_a_graph_saves_anything_builds_none(self):
        # A graph of a few operations, and pinned memory all the more, cost more than the first iterations save.
        for part, n, builds in (('brief', 12, False), ('brief', 40, True),
                                ('brief-copies', 50, False), ('brief-copies', 100, True)):
            with self.subTest(part=part, n=n):
                for _, result in self.part(part, str(n), variants=[dict(PLAIN, ALLOGRAFT_GRAPH_PROFIT='0')]):
                    self.assertEqual(result.report()['replay']['graphs_built'] > 0, builds)
        for _, result in self.part('brief-copies', '16', variants=[dict(PLAIN, ALLOGRAFT_GRAPH_WARMUP='2')]):
            self.assertGreater(result.report()['replay']['graphs_built'], 0)

    def test_updates_refused(self):
        # Graphs that take no change are built three times, and then no more.
        calls = ('KernelNodeSetParams_v2', 'MemsetNodeSetParams', 'MemcpyNodeSetParams')
        refused = dict(HELD, SIM_FAIL=','.join(f'cuGraphExec{call}:0:1' for call in calls))
        for name, segments in (('exactly', 6), ('legacy', 4), ('uploads', 2)):
            for _, result in self.part(name, variants=[refused]):
                with self.subTest(part=name):
                    failed = result.report()['replay']['graph_launches_failed']
                    self.assertGreater(failed, 0)
                    self.assertLessEqual(failed, 3 * segments)

    def test_no_stream_to_be_had(self):
        # A per-thread stream withholds only what another thread could submit.
        for settings in ({}, {'SIM_FAIL': 'cuStreamCreate:0:2'}):
            for _, result in self.part('unloading-by-another', variants=[HELD], settings=settings):
                self.assertEqual(bool(result.report()['replay']['withheld']), not settings)

    def test_ended_by_another_thread(self):
        for more in ('', 'asks'):
            for _, result in self.part('ended-by-another', more, variants=[HELD], seeds=SEEDS, quiet=False):
                replay = result.report()['replay']
                self.assertEqual(replay['state'], 'unavailable')
                self.assertGreater(replay['flushes']['end'], 0)

    def test_copies_between_devices(self):
        # What reaches the driver runs at once: the simulation knows no order between devices.
        for name in ('between', 'between-blocking'):
            for _, result in self.part(name, variants=[HELD, SHORT], settings={'SIM_DEVICES': '2', 'SIM_SCHED': 'eager'}):
                self.replayed(result)

    def test_staged(self):
        for _, result in self.part('uploads', variants=[HELD]):
            replay = self.replayed(result)
            self.assertGreater(replay['staging']['copies'], 12)
            self.assertGreater(replay['staging']['packed'], 0)

    @but_under_tsan
    def test_sleeping(self):
        for variant, result in self.part('sleeping', variants=[HELD, HURRIED, SHORT, WHOLE], seeds=SEEDS):
            replay = result.report()['replay']
            if variant == HELD:
                self.replayed(result)
                self.assertGreaterEqual(replay['back_offs'], 2)
                self.assertGreaterEqual(replay['passed_in_back_off'], 4096)
                # Of the last iterations, after 4096 operations asleep.
                self.assertGreater(replay['replayed'], 4500)

    @but_under_tsan
    def test_iterations_lie_between_waits(self):
        """The host's time for a part of an iteration says nothing of the program's."""
        for _, result in self.part('waited', variants=[PLAIN]):
            replay = result.report()['replay']
            self.assertGreaterEqual(replay['iterations'], 40)
            self.assertLessEqual(replay['iterations'], 44)
            self.assertFalse(replay['compared_unwaited'])
        for _, result in self.part('running', variants=[PLAIN]):
            self.assertGreater(result.report()['replay']['iterations'], 20)

    @but_under_tsan
    def test_launches_that_wait_for_their_kernels(self):
        for value, state in (('1', 'unavailable'), ('0', 'on'), ('', 'on')):
            for _, result in self.part('exactly', variants=[HELD], settings={'CUDA_LAUNCH_BLOCKING': value},
                                       quiet=state == 'on'):
                replay = result.report()['replay']
                self.assertEqual(replay['state'], state)
                if state != 'on':
                    self.assertEqual((replay['reason'], replay['operations']), ('CUDA_LAUNCH_BLOCKING is set', 0))

    @but_under_tsan
    def test_a_card_that_is_full_of_graphs(self):
        for variant, result in self.part('full', variants=[HELD, PLAIN, SHORT], settings={'SIM_MEMORY': '64MiB'}):
            if variant == HELD:
                self.assertGreater(self.replayed(result)['segments_forgotten'], 0)

    # --- the host watches ---

    def test_polling(self):
        for variant in (PLAIN, EAGER, HURRIED):
            for _, result in self.part('polling', variants=[variant]):
                self.assertIn('signals seen: 10', result.out)
        self.assertGreater(self.replayed(result)['watchdog_releases'], 0)

    def test_polling_while_the_watchdog_slept_early(self):
        for _, result in self.part('polling', variants=[HURRIED], settings={'REPLAY_LATE_STARTER': '1'}):
            self.assertIn('signals seen: 10', result.out)

    @but_under_tsan  # which takes of it what it needs itself
    def test_the_driver_needs_stack(self):
        """The driver may use as much in a thread of ours as in one of the program's."""
        for symbol in ('cuGraphLaunch', 'cuLaunchKernel'):
            for _, result in self.part('polling', variants=[EAGER], settings={'REPLAY_DEEP_DRIVER': symbol}):
                self.assertIn('signals seen: 10', result.out)
                self.assertGreater(self.replayed(result)['watchdog_releases'], 0)

    def test_known_to_be_done(self):
        for _, result in self.part('known', variants=[EAGER, HURRIED], seeds=SEEDS):
            self.assertGreater(self.replayed(result)['watchdog_releases'], 0)

    def test_every_call_lets_go(self):
        for variant, result in self.part('flushing', variants=[HELD, PLAIN], drop='^(nothing|then)'):
            self.assertNotIn('seen 0', '\n'.join(lines(result.out, '^nothing')))
            if variant == HELD:
                # Else this test would see nothing.
                self.assertIn('nothing: 0, seen 0', result.out)
                self.assertIn('nothing but writes of others: 0, seen 0', result.out)
        for _, result in self.part('flushing', variants=[HELD], drop='^nothing', seeds=SEEDS[1:2]):
            self.replayed(result)

    # --- threads ---

    def test_threads(self):
        for way in ('own', 'shared', 'turns'):
            for seed, sched in (('1', 'adversarial'), ('2', 'thread'), ('3', 'eager')):
                for variant, result in self.part('threads', way, variants=[HELD, HURRIED],
                                                 seeds=[seed], settings={'SIM_SCHED': sched}):
                    if way == 'own' and variant == HELD:
                        self.replayed(result)

    def test_a_stream_that_is_handed_over(self):
        for name in ('handed-over', 'handed-over-by-legacy'):
            for _, result in self.part(name, variants=[LONG_HOLD]):
                self.assertGreater(self.replayed(result)['watchdog_releases'], 0)

    def test_refused_attributes_drop_no_graph(self):
        for _, result in self.part('refused-attributes', variants=[LONG_HOLD]):
            self.assertEqual(self.replayed(result)['segments_forgotten'], 0)

    def test_attributes_end_with_their_context(self):
        for _, result in self.part('attributes-of-later-contexts', variants=[LONG_HOLD]):
            self.assertEqual(self.replayed(result)['segments_forgotten'], 20)

    def test_calls_beside_a_full_queue(self):
        for part in ('', '-copies', '-calls', '-calls-blocking', '-remapping', '-blocking', '-ending', '-tuning',
                     '-begin'):
            for _, result in self.part('full-queue' + part, variants=[LONG_HOLD]):
                self.assertGreater(self.replayed(result)['watchdog_releases'], 0)

    def test_memory_freed_while_another_context_is_current(self):
        for _, result in self.part('freed-elsewhere', variants=[LONG_HOLD, dict(LONG_HOLD, ALLOGRAFT_POLICY='pool')]):
            self.assertGreater(self.replayed(result)['watchdog_releases'], 0)

    def test_a_capture_beside_launches(self):
        for sched in ('adversarial', 'thread'):
            self.part('beside', variants=[HELD, HURRIED, FEW], settings={'SIM_SCHED': sched})

    @but_under_tsan
    def test_more_streams_than_there_is_room_for(self):
        for variant, result in self.part('many', variants=[HELD, HURRIED]):
            if variant == HELD:
                self.replayed(result)

    # --- errors ---

    def test_a_kernel_that_faults(self):
        for way in ('', 'released', 'asked'):
            for _, result in self.part('faulting', way, quiet=False,
                                       settings={'SIM_VIOLATION': 'count'}):
                self.assertIn('synchronise: 700', result.out)
                self.assertEqual(result.report()['process']['ended_by'], 'exit')

    # --- the end ---

    def ended(self, how, result, native):
        spoken = [sorted(line for line in r.out.splitlines() if line.startswith('kernel'))
                  for r in (native, result)]
        self.assertEqual(len(spoken[0]), 53, native.out)
        self.assertEqual(spoken[0], spoken[1], how)
        self.assertEqual(native.status, result.status, how)

    def test_ends(self):
        # Here every kernel natively runs at its launch.
        settings = dict(SIMULATED, SIM_SCHED='eager')
        for how in ('return', 'exit', '_exit', 'quick_exit', 'thread', 'exec'):
            command = [program('preload_replay'), 'ending', how]
            native = run(command, settings)
            for variant in (HELD, WHOLE, HURRIED):
                with self.subTest(how=how, variant=variant):
                    self.ended(how, preloaded(command, dict(settings, **variant)), native)

    def test_ends_before_the_device(self):
        # Natively what the device has not come to is lost, and more of it if it got the work late.
        for how in ('exit', '_exit', 'quick_exit', 'thread', 'exec', 'destroy'):
            for seed in some(SEEDS):
                for variant in (HELD, HURRIED):
                    with self.subTest(how=how, seed=seed, variant=variant):
                        result = preloaded([program('preload_replay'), 'ending', how],
                                           dict(SIMULATED, SIM_SEED=seed, **variant))
                        self.assertEqual(result.out.count('kernel'), 53, result.out)

    def test_ends_beside_a_kernel_without_end(self):
        for variant in (HELD, HURRIED):
            start = time.monotonic()
            result = preloaded([program('preload_replay'), 'ending', 'endless'], dict(SIMULATED, **variant))
            self.assertEqual(result.status, 4, result.err)
            self.assertLess(time.monotonic() - start, SECONDS / 2)
            self.replayed(result)

    def test_memory_in_stream_order(self):
        self.part('ordered', variants=[HELD, PLAIN, HURRIED, MANAGED], seeds=SEEDS)

    def test_clusters(self):
        for variant, result in self.part('clustered', variants=[HELD, PLAIN, HURRIED]):
            self.assertEqual(result.out.count(': 912'), 5)
            if variant == HELD:
                self.replayed(result)

    def test_forked(self):
        for _, result in self.part('forking', variants=[HELD, PLAIN, HURRIED]):
            self.assertIn('forked: 132 steps', result.out)

    def test_forked_before_the_driver_was_used(self):
        for _, result in self.part('exactly', 'in-child', variants=[HELD, PLAIN]):
            child = max(result.reports(), key=lambda report: report['replay']['operations'])
            self.assertGreater(child['replay']['graph_launches'], 0)
            self.assertFalse([warning for warning in child['warnings'] if 'GRAPH' in warning])

    # --- where it cannot be had ---

    def test_an_older_driver(self):
        old = os.path.join(SIM, 'age', '12020')
        command = [program('preload_replay'), 'exactly']
        settings = {'LD_LIBRARY_PATH': old, 'SIM_DRIVER_VERSION': '12020'}
        native = run(command, settings)
        self.assertEqual(native.status, 3, native.err)
        result = preloaded(command, dict(settings, **HELD))
        self.assertEqual((native.status, native.out), (result.status, result.out), result.err)
        replay = result.report()['replay']
        self.assertEqual((replay['state'], replay['withheld']), ('unavailable', 0))
        self.assertIn('cuFuncGetParamInfo', replay['reason'])
        self.assertEqual(len(re.findall('replay', result.err)), 1, result.err)

    def test_a_value_that_is_none(self):
        command = [program('preload_replay'), 'exactly']
        native = run(command)
        for text in ('some', 'nth:', 'nth:0', 'priority:x', 'all,'):
            result = preloaded(command, {'ALLOGRAFT_GRAPH': text})
            with self.subTest(text=text):
                self.assertEqual((native.status, native.out), (result.status, result.out))
                self.assertIn('ALLOGRAFT_GRAPH', result.err)
                self.assertEqual(result.report()['replay']['state'], 'off')

    def test_off_costs_nothing(self):
        result = preloaded([program('preload_replay'), 'exactly'])
        self.assertEqual(result.report()['replay']['state'], 'off')
        self.assertFalse({'cuLaunchKernel', 'cuMemsetD8Async', 'cuStreamQuery'} &
                         set(result.report()['coverage']['hooks']))


if __name__ == '__main__':
    main()
