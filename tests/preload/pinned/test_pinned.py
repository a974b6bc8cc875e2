# Pinned memory that is kept: answers, waits and bytes are the native run's, and the driver is left out.

import contextlib
import os
import tempfile

from harness import EVERY, LIBRARY, SEEDS, Case, main, preloaded, program, some

# How much memory this machine has, and whether it is short of it, decides nothing.
FAKED = (LIBRARY, program('libpreload_host_faker.so'))
CACHE = {'ALLOGRAFT_HOST': 'cache'}
FAST = {'ALLOGRAFT_HOST': 'fast'}
# With work that is watched and without; in little room; where frees of device memory are not to wait.
KEPT = [CACHE, dict(CACHE, ALLOGRAFT_POLICY='native'), dict(CACHE, ALLOGRAFT_HOST_CACHE='4500'),
        dict(CACHE, ALLOGRAFT_HOST_CACHE='0'), dict(CACHE, ALLOGRAFT_FREE='ordered'),
        dict(CACHE, ALLOGRAFT_GRAPH='all', ALLOGRAFT_GRAPH_HOLD_US='60000000'),
        dict(CACHE, ALLOGRAFT_WAITS='1', ALLOGRAFT_STACKS='4')]
BOTH = KEPT + [dict(variant, **FAST) for variant in KEPT]


@contextlib.contextmanager
def host(**files):
    """A host whose kernel says that: the folder of its files, '__' in their names for '/'."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = os.path.join(folder, name.replace('__', '/'))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, 'w', encoding='utf-8') as f:
                f.write(text)
        yield {'FAKE_HOST': folder}


def run_faked(command, settings):
    return preloaded([program('preload_pinned'), *command], settings, preload=FAKED)


class Pinned(Case):
    def kept(self, *command, variants=BOTH, **more):
        return self.same([program('preload_pinned'), *command], variants=variants, preload=FAKED, **more)

    def test_answers(self):
        for variant, result in self.kept('answers'):
            pinned = result.report()['pinned']
            if variant == CACHE:
                self.assertGreater(pinned['hits'], 3)
                self.assertGreater(pinned['held_bytes'], 0)
                self.assertGreaterEqual(pinned['peak_bytes'], pinned['held_bytes'])
            if variant.get('ALLOGRAFT_HOST_CACHE') == '0':
                self.assertEqual((pinned['hits'], pinned['kept'], pinned['peak_bytes']), (0, 0, 0))

    def test_the_wait_of_a_free(self):
        for variant, result in self.kept('wait', variants=KEPT, seeds=SEEDS):
            if variant == CACHE:
                pinned = result.report()['pinned']  # work is done by the time it is asked about, or waited for
                self.assertEqual(pinned['waited'] + pinned['nothing_submitted'], pinned['kept'])
        for variant, result in self.kept('wait', variants=[CACHE], settings={'SIM_SCHED': 'lazy'}):
            self.assertEqual(result.report()['pinned']['waited'], 12)

    def test_no_block_is_handed_out_early(self):
        for variant, result in self.kept('early'):
            if variant == FAST:
                self.assertEqual(result.report()['pinned']['left'], 3)

    def test_contexts(self):
        self.kept('contexts')

    def test_a_context_that_does_not_end(self):
        """Also where what another context has freed would go back (4500 bytes, and none)."""
        for _, result in self.kept('apart', seeds=SEEDS):
            self.assertIn('other context: 0', result.out)

    def test_captures(self):
        self.kept('capture')

    def test_after_an_error(self):
        self.kept('broken', settings={'SIM_VIOLATION': 'count'}, quiet=False)
        # A free whose own wait finds it: what it then returns is the driver's.
        self.kept('broken', 'unknown', variants=KEPT, settings={'SIM_VIOLATION': 'count'}, quiet=False, drop='^free: ')

    def test_threads(self):
        self.kept('threads', '40', seeds=SEEDS)
        self.kept('threads', '40', settings={'SIM_SCHED': 'thread'})

    def test_more_threads_than_processors(self):
        """They let each other run while they wait, but for the first waits: the last threads have not come yet."""
        for variant, result in self.kept('crowd', '40', variants=[CACHE], seeds=SEEDS, drop='^waits in'):
            self.assertGreater(result.report()['pinned']['waited'], 10)
            self.assertLess(int(result.out.split()[-1]), 5)

    def test_fork(self):
        self.kept('fork')

    def test_a_driver_that_refuses(self):
        for symbol in ('cuMemFreeHost', 'cuCtxRecordEvent', 'cuEventSynchronize', 'cuEventCreate', 'cuEventQuery',
                       'cuStreamQuery', 'cuPointerGetAttribute'):
            for n in some(('1', '2', '3', '0'), 2):
                if (symbol, n) in (('cuMemFreeHost', '0'), ('cuPointerGetAttribute', '0')):
                    continue
                fails = {'SIM_FAIL': '%s:%s:1' % (symbol, n)}
                tiny = {'ALLOGRAFT_HOST_CACHE': '9000'}
                if symbol != 'cuPointerGetAttribute' and symbol != 'cuMemFreeHost':
                    self.kept('wait', variants=[dict(CACHE, **fails), dict(CACHE, **fails, **tiny)])
                self.kept('threads', '20', variants=[dict(v, **fails, **more) for v in (CACHE, FAST)
                                                     for more in ({}, tiny)] if symbol != 'cuMemFreeHost' else [])

    def test_blocks_that_the_driver_does_not_take(self):
        """What goes back for our own reasons may be refused: it stays, and nobody is told."""
        for n in ('1', '2', '0'):
            settings = {'SIM_FAIL': 'cuMemFreeHost:%s:1' % n, 'ALLOGRAFT_HOST_CACHE': '600000'}
            result = run_faked(['cold', '5'], dict(CACHE, **settings))
            self.assertEqual((result.status, result.err), (0, ''))

    def test_the_driver_is_left_out(self):
        for variant in (CACHE, FAST):
            result = run_faked(['cold', '50'], variant)
            self.assertIn('calls: 8 allocations, 0 frees, 8 while', result.out)
            pinned = result.report()['pinned']
            self.assertEqual((pinned['asked'], pinned['hits'], pinned['kept']), (400, 392, 400))
            self.assertEqual((pinned['waited'], pinned['nothing_submitted']), (0, 400))

    def test_the_last_one_comes_first(self):
        for variant in (CACHE, FAST):
            self.assertEqual(run_faked(['last'], variant).out, 'the last: 1\n' * 3)

    def test_calls_of_a_pair(self):
        """Twice, which context is current. After work, once more whether an error stays, and whether the one stream is
        done. Behind several an event is recorded, and waited for or asked by the next allocation, and the error is asked
        about three times."""
        for variant, behind_two in ((CACHE, 205), (FAST, 206)):
            result = run_faked(['pairs'], dict(variant, SIM_SCHED='eager'))
            said = 'at first: 100 pairs, 200 %s\none stream: 100 pairs, 202 %s\ntwo streams: 100 pairs, %d %s\n'
            calls = 'calls of the driver'
            self.assertEqual(result.out, said % (calls, calls, behind_two, calls))

    def test_large_blocks(self):
        """Nobody sees who made them; where the driver or the host has no part in it, they are the driver's."""
        crew = {'ALLOGRAFT_COPY_THREADS': '3'}
        made = [dict(variant, **crew, **more) for variant in (CACHE, FAST)
                for more in ({}, {'ALLOGRAFT_HOST_CACHE': '0'}, {'ALLOGRAFT_COPY': 'driver'}, {'ALLOGRAFT_STACKS': '4'})]
        for _, result in self.kept('large', variants=made):
            self.assertGreater(result.report()['pinned']['made'], 6)
        with host(proc__meminfo='MemTotal: 4000000 kB\nMemAvailable: 40000 kB\n') as short:
            not_made = [dict(CACHE, **crew, **short), dict(CACHE, **crew, SIM_ATTRIBUTES='91=0'),
                        dict(CACHE, **crew, SIM_FAIL='cuMemHostRegister_v2:1:1')]  # which is not asked again
            for _, result in self.kept('large', variants=not_made):
                self.assertEqual(result.report()['pinned']['made'], 0)

    def test_large_blocks_of_many_contexts(self):
        few = dict(CACHE, ALLOGRAFT_COPY_THREADS='3', ALLOGRAFT_HOST_CACHE='32MiB')
        for _, result in self.kept('many', variants=[few]):
            self.assertEqual(result.report()['pinned']['made'], 35)

    def test_rules(self):
        """They decide by size and number what is kept; the setting decides the rest, and no rule that names no pinned
        memory. What is kept serves no allocation that is to be the driver's."""
        for host, rules, decided, hits, kept in (
                ('native', 'size>=64KiB:host=cache', [20], 16, 20),
                ('fast', 'size<64KiB:host=native', [20], 16, 20),
                ('cache', '*:host=native', [40], 0, 0),
                ('native', '*:host=native', [40], 0, 0),
                ('native', 'nth=1..8:host=fast; *:host=native', [8, 32], 0, 8),
                ('native', '*:managed; *:host=cache', [0, 40], 32, 40),
                ('native', 'from=*:pool,host=cache; *:host=native', [40, 0], 32, 40),
                ('cache', '*:managed; from=libnothing:host=native', [0, 0], 32, 40),
                ('native', 'thread=nobody:host=cache; device=1:host=cache', [0, 0], 0, 0)):
            report = run_faked(['cold', '5'], {'ALLOGRAFT_HOST': host, 'ALLOGRAFT_RULES': rules}).report()
            with self.subTest(host=host, rules=rules):
                self.assertEqual([rule['hits'] for rule in report['rules']], decided)
                self.assertEqual((report['pinned']['hits'], report['pinned']['kept']), (hits, kept))
                self.assertEqual(report['no_rule']['hits'], 0)
                self.assertEqual(report['rules'][-1]['bytes'] > 0, decided[-1] > 0)

    def test_a_free_waits_as_the_rule_said(self):
        ruled = [dict(FAST, ALLOGRAFT_RULES='*:host=cache'), dict(CACHE, ALLOGRAFT_RULES='size=4000:host=native'),
                 {'ALLOGRAFT_RULES': 'nth=1..5:host=cache', 'ALLOGRAFT_HOST': 'native'}]
        for variant, result in self.kept('wait', variants=ruled, settings={'SIM_SCHED': 'lazy'}):
            if variant == ruled[0]:
                self.assertEqual(result.report()['pinned']['waited'], 12)
        for _, result in self.kept('early', variants=[dict(CACHE, ALLOGRAFT_RULES='size=4000:host=fast')]):
            self.assertEqual(result.report()['pinned']['left'], 3)

    def test_rules_in_captures_and_threads(self):
        mixed = {'ALLOGRAFT_RULES': 'size<1KiB:host=fast; size=1601..4000:host=native; *:host=cache'}
        failing = {'ALLOGRAFT_RULES': 'size>1GiB:fail,host=cache; call=host,size>1GiB:fail'}
        self.kept('answers', variants=[mixed])
        self.kept('capture', variants=[dict(FAST, **mixed), failing])
        for _, result in self.kept('threads', '40', variants=[dict(CACHE, **mixed)], seeds=some(SEEDS, 2)):
            self.assertEqual(sum(rule['hits'] for rule in result.report()['rules']), 160)

    def test_the_bound(self):
        result = run_faked(['cold', '5'], dict(CACHE, ALLOGRAFT_HOST_CACHE='600000'))
        pinned = result.report()['pinned']
        self.assertLessEqual(pinned['peak_bytes'], 600000 + (1 << 19))
        self.assertLessEqual(pinned['held_bytes'], 600000)
        self.assertGreater(pinned['over_limit'], 0)

    def test_room(self):
        """What is kept goes back where an allocation would fail, and it is made again."""
        for symbol, n in (('cuMemHostAlloc', 2), ('cuMemHostRegister_v2', 1), ('cuMemAllocManaged', 1)):
            settings = {'SIM_FAIL': '%s:%d:2' % (symbol, n)}
            native = run_faked(['room'], settings)
            self.assertIn(': 2\n', native.out)
            result = run_faked(['room'], dict(CACHE, **settings))
            self.assertEqual(result.out, 'pinned: 0\nregistered: 0\nmanaged: 0\n')
            self.assertEqual(result.report()['pinned']['relieved'], 1)
            for more in ('cuMemFreeHost:1:1', 'cuMemFreeHost:1:1,cuCtxRecordEvent:1:1'):
                refused = run_faked(['room'], dict(CACHE, SIM_FAIL=settings['SIM_FAIL'] + ',' + more))
                self.assertEqual(refused.out, native.out)

    def test_what_nobody_wants_goes_back(self):
        result = run_faked(['idle'], CACHE)
        pinned = result.report()['pinned']
        self.assertEqual((result.out, pinned['idle'], pinned['hits']), ('calls: 4 frees\n', 4, 16))

    def test_a_host_that_is_short_of_memory(self):
        plenty, little = 'MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n', 'MemTotal: 1000000 kB\nMemAvailable: 60000 kB\n'
        group = '/job'
        # A batch job's, which bounds the groups of its steps and tasks.
        job = {'proc__meminfo': plenty, 'proc__self__cgroup': '0::/job/step/task\n',
               'sys__fs__cgroup__job__memory.max': '1000000000\n',
               'sys__fs__cgroup__job__step__memory.max': 'max\n',
               'sys__fs__cgroup__job__step__memory.current': '500000000\n',
               'sys__fs__cgroup__job__step__task__memory.max': 'max\n',
               'sys__fs__cgroup__job__step__task__memory.current': '400000000\n'}
        for is_short, files in (
                (False, {**job, 'sys__fs__cgroup__job__memory.current': '600000000\n'}),
                (True, {**job, 'sys__fs__cgroup__job__memory.current': '950000000\n'}),
                (True, {**job, 'sys__fs__cgroup__job__memory.current': '950000000\n',
                        'sys__fs__cgroup__job__step__task__memory.max': '900000000\n'}),
                (False, {'proc__meminfo': plenty}), (True, {'proc__meminfo': little}),
                (False, {'proc__meminfo': plenty, 'proc__pressure__memory': 'some avg10=9.99 avg60=80.00\n'}),
                (True, {'proc__meminfo': plenty, 'proc__pressure__memory': 'some avg10=10.00 avg60=0.00\n'}),
                (True, {'proc__meminfo': plenty, 'proc__self__cgroup': '1:name=x:/y\n0::%s\n' % group,
                        'sys__fs__cgroup__job__memory.max': '1000000000\n',
                        'sys__fs__cgroup__job__memory.current': '950000000\n',
                        'sys__fs__cgroup__job__memory.stat': 'anon 1\ninactive_file 10000\n'}),
                (False, {'proc__meminfo': plenty, 'proc__self__cgroup': '0::%s\n' % group,
                         'sys__fs__cgroup__job__memory.max': '1000000000\n',
                         'sys__fs__cgroup__job__memory.current': '950000000\n',
                         'sys__fs__cgroup__job__memory.stat': 'anon 1\ninactive_file 800000000\n'}),
                (True, {'proc__meminfo': plenty, 'sys__fs__cgroup__memory.pressure': 'some avg10=11.00 avg60=0.00\n'}),
                (True, {'proc__meminfo': plenty, 'sys__fs__cgroup__memory__memory.limit_in_bytes': '500000000\n',
                        'sys__fs__cgroup__memory__memory.usage_in_bytes': '490000000\n'})):
            with self.subTest(files=files), host(**files) as settings:
                result = run_faked(['cold', '5'], dict(CACHE, **settings))
                pinned = result.report()['pinned']
                self.assertEqual((pinned['host_short'], pinned['native']), (1, 39) if is_short else (0, 0))
                self.assertEqual(pinned['held_bytes'] > 0, not is_short)

    def test_a_host_that_has_memory_again(self):
        with host(proc__meminfo='MemTotal: 1000000 kB\nMemAvailable: 60000 kB\n') as settings:
            result = run_faked(['eased'], dict(CACHE, **settings))
        # The first of each that looks around is kept, or not, by what was seen before.
        self.assertEqual(result.out, 'short: 4 of 4 frees\nat once: 4 of 4 frees\nlater: 1 of 4 frees\n')

    def test_a_tenth_of_a_small_host(self):
        with host(proc__meminfo='MemTotal: 4000 kB\nMemAvailable: 3000 kB\n') as settings:
            for more, most in (({}, 409600), ({'ALLOGRAFT_HOST_CACHE': '5%'}, 204800),
                               ({'ALLOGRAFT_HOST_CACHE': '600000'}, 600000)):
                result = run_faked(['cold', '5'], dict(CACHE, **settings, **more))
                self.assertLessEqual(most // 2, result.report()['pinned']['held_bytes'])
                self.assertLessEqual(result.report()['pinned']['held_bytes'], most)

    def test_by_default_nothing_is_kept(self):
        for variant in EVERY:
            result = run_faked(['cold', '3'], variant)
            self.assertIn('calls: 24 allocations, 24 frees', result.out)


if __name__ == '__main__':
    main()
