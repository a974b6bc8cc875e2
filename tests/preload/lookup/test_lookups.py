# Every way to the driver's functions leads through the library, and other libraries stay untouched.

import os
import re
import subprocess
import unittest

from harness import (DISABLED, EVERY, LIBRARY, POLICIES, RUNTIME, SIM, Case, clean_environment, main,
                     preloaded, program, run)

ALLOC_CALLS = 6  # workload.h
ALLOCS = 5


WATCHED = r'^cuLaunch.* belongs'  # what submits work, where streams are watched


class Lookups(Case):
    def through(self, command, lookup, drop=WATCHED):
        results = self.same(command, variants=EVERY, drop=drop)
        for variant, result in results:
            with self.subTest(settings=variant):
                if variant in DISABLED:
                    continue
                coverage = result.report()['coverage']
                self.assertTrue(coverage['intercepted'])
                self.assertGreater(coverage['lookups'][lookup], 0)
                self.assertEqual(coverage['hooks']['cuMemAlloc_v2'], ALLOC_CALLS)
                if variant.get('ALLOGRAFT_POLICY') == 'pool':
                    # The pitched one comes on top.
                    self.assertEqual(coverage['redirected'], ALLOCS + 1)
                if variant.get('ALLOGRAFT_POLICY') == 'native':
                    self.assertEqual(coverage['redirected'], 0)

    def test_linked(self):
        self.through(program('preload_lookup_linked'), 'exported')

    def test_dlsym_by_handle(self):
        self.through(program('preload_lookup_dlsym'), 'dlsym')

    def test_a_mark_before_the_driver(self):
        self.through([program('preload_lookup_dlsym'), 'marked'], 'dlsym')

    def test_dlsym_by_default(self):
        # What is exported is found first, as by a program linked with the driver: launches too,
        # which jump on.
        self.through([program('preload_lookup_dlsym'), 'default'], 'exported')

    def test_get_proc_address_legacy(self):
        self.through([program('preload_lookup_get_proc'), 'legacy'], 'get_proc_address')

    def test_get_proc_address_per_thread(self):
        self.through([program('preload_lookup_get_proc'), 'per-thread'], 'get_proc_address')

    def test_launches_that_are_watched(self):
        for command in (['preload_lookup_dlsym', 'late'], ['preload_lookup_get_proc', 'legacy'],
                        ['preload_lookup_get_proc', 'per-thread']):
            for variant, owner in (({}, 'liballograft.so'), ({'ALLOGRAFT_FREE': 'ordered'}, 'liballograft.so'),
                                   ({'ALLOGRAFT_PREFETCH': 'launch'}, 'liballograft.so'),
                                   ({'ALLOGRAFT_RULES': 'size>1GiB:managed,prefetch=launch'},
                                    'liballograft.so'),
                                   ({'ALLOGRAFT_RULES': 'size>1GiB:managed,prefetch=off',
                                     'ALLOGRAFT_FREE': 'sync'}, 'liballograft.so'),
                                   ({'ALLOGRAFT_POLICY': 'native', 'ALLOGRAFT_FREE': 'sync'}, 'libcuda.so.1'),
                                   ({'ALLOGRAFT_PREFETCH': 'launch', 'ALLOGRAFT_DISABLE': '1'},
                                    'libcuda.so.1')):
                with self.subTest(command=command, settings=variant):
                    results = self.same([program(command[0]), *command[1:]], variants=[variant],
                                        drop=r'^cuLaunch.* belongs')
                    owners = dict(re.findall(r'^(cuLaunch.*) belongs to (\S+)$', results[0][1].out, re.MULTILINE))
                    # One that may start early may have to wait behind a free.
                    waits = 'ALLOGRAFT_DISABLE' not in variant and variant.get('ALLOGRAFT_POLICY') != 'native'
                    early = {owners.pop(name) for name in list(owners) if 'KernelEx' in name}
                    self.assertEqual((set(owners.values()), early),
                                     ({owner}, {'liballograft.so' if waits else owner}))

    def test_launches_before_the_first_call(self):
        # No setting is read yet but the one that switches off: what nothing needs jumps on.
        for settings, owner in (({}, 'liballograft.so'),
                                ({'ALLOGRAFT_POLICY': 'native', 'ALLOGRAFT_FREE': 'sync'}, 'liballograft.so'),
                                ({'ALLOGRAFT_DISABLE': '1'}, 'libcuda.so.1')):
            for _, result in self.same([program('preload_lookup_dlsym')], variants=[settings],
                                       drop=r'^cuLaunch.* belongs'):
                owners = re.findall(r'^cuLaunch.* belongs to (\S+)$', result.out, re.MULTILINE)
                self.assertEqual(owners, [owner, owner], settings)

    def test_replayed(self):
        # The driver's own pointers come from either lookup path all the same, or trampolines do.
        for command in (['preload_lookup_linked'], ['preload_lookup_dlsym'], ['preload_lookup_dlsym', 'default'],
                        ['preload_lookup_get_proc', 'legacy'], ['preload_lookup_get_proc', 'per-thread']):
            with self.subTest(command=command):
                self.same([program(command[0]), *command[1:]], variants=[{'ALLOGRAFT_GRAPH': 'all'}],
                          drop=r'^cuLaunch.* belongs')

    def test_old_driver(self):
        for version in ('11040', '12020'):
            self.same([program('preload_lookup_get_proc'), 'legacy'], variants=POLICIES, drop=WATCHED,
                      settings={'SIM_DRIVER_VERSION': version})

    def test_old_driver_replayed(self):
        # Replay is unavailable there: what dlsym answered before that was known leads to the driver.
        settings = {'SIM_DRIVER_VERSION': '12020', 'LD_LIBRARY_PATH': os.path.join(SIM, 'age', '12020')}
        for command in ('preload_lookup_dlsym', 'preload_lookup_get_proc'):
            for _, result in self.same(program(command), variants=[{'ALLOGRAFT_GRAPH': 'all'}],
                                       drop=r'^cuLaunch.* belongs',
                                       settings=settings, quiet=False):
                self.assertEqual(result.report()['replay']['state'], 'unavailable')


# Where a setting that no look-up knows yet leaves all to the driver, what dlsym answered before stays.
LATE = [{'ALLOGRAFT_CONFIG': '@FOLDER@/no such file'}, {'ALLOGRAFT_LIMIT': 'nonsense'}]


class Scopes(Case):
    """Which functions of the driver are found by whom, and at which address."""

    def compare(self, name, library, how, drop=None, ages=('', '11040', '12020')):
        for age in ages:
            settings = {'SIM_DRIVER_VERSION': age, 'LD_LIBRARY_PATH': os.path.join(SIM, 'age', age)} if age else {}
            results = self.same([program(name), program(library), *how], variants=EVERY + LATE, drop=drop,
                                settings=settings, quiet=False)
            for _, result in results:
                self.assertIn('cuNoSuchFunction NULL', result.out)

    def test_a_driver_that_is_opened(self):
        # Of the driver that others have for themselves, a library that was opened may see more than we know.
        unknown = r'^library by default: |: all of one address'
        for library in ('libpreload_scope.so', 'libpreload_scope_linked.so'):
            for how in ('none', 'local', 'global'):
                with self.subTest(library=library, how=how):
                    self.compare('preload_lookup_scope', library, [how], unknown)

    def test_what_no_driver_has(self):
        for how in ('none', 'local', 'global'):
            for library in ('libpreload_scope.so', 'libpreload_scope_linked.so'):
                for variant in EVERY:
                    result = preloaded([program('preload_lookup_scope'), program(library), how],
                                       dict(variant, SIM_DRIVER_VERSION='11040',
                                            LD_LIBRARY_PATH=os.path.join(SIM, 'age', '11040')))
                    self.assertIn('library by default: cuMemGetMemPool NULL', result.out)
                    self.assertIn('library by default: cuMemPrefetchBatchAsync NULL', result.out)

    def test_a_driver_that_is_linked(self):
        for library in ('libpreload_scope.so', 'libpreload_scope_linked.so'):
            with self.subTest(library=library):
                self.compare('preload_lookup_scope_linked', library, ['local'], r': all of one address')


class OtherLibraries(Case):
    def test_pseudo_handles(self):
        self.same([program('preload_rtld'), program('libpreload_probe_c.so')])

    def test_names_of_the_driver_that_are_the_programs_own(self):
        for what in ('variables', 'stubs'):
            for variant, result in self.same(program('preload_lookup_own_' + what), variants=EVERY):
                if variant not in DISABLED:
                    self.assertEqual(result.report()['coverage']['hooks']['cuMemAlloc_v2'], 3)

    def test_lookalike_alone(self):
        self.same([program('preload_lookalike_user'), program('libpreload_lookalike.so')])

    def test_lookalike_beside_the_driver(self):
        self.same([program('preload_lookalike_user'), program('libpreload_lookalike.so'), 'both'])

    def test_lookalike_linked(self):
        self.same(program('preload_lookalike_linked'))

    def beside(self, name, other, sees_calls):
        """The program with another preloaded library, which stands before ours or after it. One
        that wraps dlsym and stands first takes the program's look-ups: then nothing is redirected,
        and nothing may break."""
        other = program(other)
        native = run(program(name), preload=(other,))
        self.sane(native)
        for order in ((other, LIBRARY), (LIBRARY, other)):
            for policy in POLICIES:
                with self.subTest(order=order, policy=policy):
                    result = preloaded(program(name), policy, preload=order)
                    native_out, out = (re.sub(r'^cuLaunch.*$', '', of.out, flags=re.MULTILINE) for of in (native, result))
                    self.assertEqual(native_out, out, result.err)
                    self.assertEqual(native.status, result.status)
                    if sees_calls and order[0] == other:
                        self.assertEqual(native.err, result.err)
                    if sees_calls or order[0] == LIBRARY:
                        hooks = result.report()['coverage']['hooks']
                        self.assertGreaterEqual(hooks['cuMemAlloc_v2'], ALLOC_CALLS)

    def test_tracer(self):
        self.beside('preload_lookup_linked', 'libpreload_tracer.so', True)

    @unittest.skipIf(RUNTIME, 'the sanitizer starts by a dlsym that the wrapper is not ready for')
    def test_dlsym_wrapper(self):
        self.beside('preload_lookup_dlsym', 'libpreload_dlsym_wrapper.so', False)
        self.beside('preload_lookup_get_proc', 'libpreload_dlsym_wrapper.so', False)


class WithoutCuda(Case):
    def silent(self, command, settings=None):
        native = run(command)
        result = preloaded(command, settings)
        self.assertEqual((native.status, native.out, native.err),
                         (result.status, result.out, result.err))
        self.assertEqual(result.files, {})

    def test_nothing_is_said(self):
        code = 'import ctypes; print(ctypes.CDLL(None).strlen(b"four"))'
        for command in (program('preload_lookup_none'), '/bin/true',
                        ['/bin/sh', '-c', 'echo a; exit 3'], ['python3', '-c', code]):
            for stats in ({}, {'ALLOGRAFT_STATS': 'stderr'}):
                with self.subTest(command=command, stats=stats):
                    self.silent(command, stats)

    def test_not_even_about_options(self):
        self.silent('/bin/true', {'ALLOGRAFT_POLICY': 'nonsense', 'ALLOGRAFT_NOSUCH': '1'})

    @unittest.skipIf(RUNTIME, 'a sanitizer takes its own time to start')
    def test_start_costs_less_than_a_millisecond(self):
        def seconds(**preload):
            process = subprocess.Popen('/bin/true', env=dict(clean_environment(), **preload))
            _, process.returncode, used = os.wait4(process.pid, 0)
            return used.ru_utime + used.ru_stime

        # Its own time, the least of many turns, both ways alternating: what else the machine does drops out.
        for _ in range(10):
            turns = [(seconds(), seconds(LD_PRELOAD=LIBRARY)) for _ in range(25)]
            least = [min(times) for times in zip(*turns)]
            more = least[1] - least[0]
            if more < max(0.001, least[0]):  # a machine on which /bin/true takes longer than that is a slow one
                return
        self.fail('loading the library costs %.2f ms' % (more * 1000))


if __name__ == '__main__':
    main()
