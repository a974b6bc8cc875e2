# Libraries that are bound past the preloaded one: named in the report, and caught by an audit.

import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

from harness import (LIBRARY, RUNTIME, SECONDS, Case, clean_environment, main, preloaded, program, run,
                     without_loader)

COMMAND = os.environ['TEST_COMMAND']
AUDIT = os.path.join(os.path.dirname(LIBRARY), 'liballograft-audit.so')
LOADER = program('preload_loader')
BY_DLSYM = program('libpreload_deepbind_dlsym.so')
LINKED = program('libpreload_deepbind_linked.so')
STORAGE = program('libpreload_static_tls.so')
GLIBC = tuple(int(n) for n in os.confstr('CS_GNU_LIBC_VERSION').split()[1].split('.')[:2])
NO_DEEPBIND = 'a sanitizer does not let a library be opened with RTLD_DEEPBIND'


def allocs(report):
    return report['coverage']['hooks'].get('cuMemAlloc_v2', 0)


@unittest.skipIf(RUNTIME, NO_DEEPBIND)
class Named(Case):
    def test_bound_normally(self):
        for library in (BY_DLSYM, LINKED):
            for variant, result in self.same([LOADER, 'plain', library, STORAGE]):
                with self.subTest(library=library, settings=variant):
                    if 'ALLOGRAFT_DISABLE' in variant:
                        continue
                    self.assertEqual(allocs(result.report()), 1)
                    self.assertEqual(result.report()['coverage']['bypassing'], [])

    def test_deeply_bound(self):
        for library in (BY_DLSYM, LINKED):
            for variant, result in self.same([LOADER, 'deep', library, STORAGE]):
                with self.subTest(library=library, settings=variant):
                    if 'ALLOGRAFT_DISABLE' in variant:
                        continue
                    report = result.report()
                    self.assertEqual(allocs(report), 0)
                    self.assertEqual(report['coverage']['bypassing'], [os.path.basename(library)])
                    self.assertIn(os.path.basename(library), ' '.join(report['warnings']))

    def test_text(self):
        result = preloaded([LOADER, 'deep', LINKED, STORAGE], stats=None)
        self.assertRegex(result.err, r'warning: libpreload_deepbind_linked\.so reaches the driver past')

    def test_tables_that_lie(self):
        """A library whose table of strings claims another length: looked at with care."""
        with open(LINKED, 'rb') as file:
            whole = file.read()
        offset, = struct.unpack_from('<Q', whole, 32)
        entry, n = struct.unpack_from('<HH', whole, 54)
        headers = [struct.unpack_from('<IIQQQQQQ', whole, offset + i * entry) for i in range(n)]
        dynamic = next(h for h in headers if h[0] == 2)
        place = next(at for at in range(dynamic[2], dynamic[2] + dynamic[5], 16)
                     if struct.unpack_from('<Q', whole, at)[0] == 10)  # DT_STRSZ
        for length in (0, 1, 5, 1 << 20, 1 << 40, (1 << 64) - 1):
            with self.subTest(length=length), tempfile.TemporaryDirectory() as folder:
                changed = os.path.join(folder, 'libchanged.so')
                with open(changed, 'wb') as file:
                    file.write(whole[:place + 8] + struct.pack('<Q', length) + whole[place + 16:])
                command = [LOADER, 'deep', changed, STORAGE]
                native, result = run(command), preloaded(command)
                self.assertEqual((native.status, native.out), (result.status, result.out))
                self.assertEqual(native.status, 5)
                self.assertEqual(len(result.reports()), 1)


@unittest.skipIf(RUNTIME, 'a namespace of its own has a libc of its own, which no sanitizer knows')
class Namespaces(Case):
    def test_alone(self):
        for _, result in self.same(program('preload_lookup_namespace')):
            self.assertEqual(result.files, {})

    def test_beside_the_programs(self):
        for when, n in (('before', 2), ('after', 2)):
            for settings in ({}, {'ALLOGRAFT_GRAPH': 'all'}, {'ALLOGRAFT_POLICY': 'pool'}):
                (_, result), = self.same([program('preload_lookup_namespace'), when], [settings])
                self.assertEqual(allocs(result.report()), n)


@unittest.skipIf(RUNTIME, 'an audit brings a libc of its own, which no sanitizer knows')
@unittest.skipIf(GLIBC < (2, 35), 'the loader does not tell of all bindings before glibc 2.35')
class Audited(Case):
    def audited(self, command, settings=None, stats='report.json', audit=True, option='--audit'):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        env = clean_environment()
        env.update(settings or {}, ALLOGRAFT_STATS=os.path.join(folder, stats))
        done = subprocess.run([COMMAND, 'run', *([option] if audit else []), '--', *command], env=env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=SECONDS)
        report = {}
        if os.path.exists(os.path.join(folder, stats)):
            with open(os.path.join(folder, stats), encoding='utf-8') as file:
                report = json.load(file)
        return done, report

    def same_audited(self, command, drop=None, **settings):
        """Lines that match `drop` are not compared."""
        native = run(command, settings)
        # Without CUDA nothing is said, where nothing is warned of.
        done, report = self.audited(command, {'ALLOGRAFT_LOG': 'error', **settings})
        self.assertEqual((native.status, native.err), (done.returncode, without_loader(done.stderr)))
        # What the device prints may come later than natively.
        native_lines, lines = (sorted(line for line in out.splitlines() if not (drop and re.search(drop, line)))
                               for out in (native.out, done.stdout))
        self.assertEqual(native_lines, lines)
        return report

    def test_catches(self):
        for library in (BY_DLSYM, LINKED):
            for how in ('plain', 'deep'):
                for policy in ('pool', 'native', 'managed'):
                    with self.subTest(library=library, how=how, policy=policy):
                        report = self.same_audited([LOADER, how, library, STORAGE],
                                                   ALLOGRAFT_POLICY=policy)
                        self.assertEqual(allocs(report), 1)
                        self.assertEqual(report['coverage']['hooks']['cuMemFree_v2'], 2)
                        self.assertEqual(report['coverage']['bypassing'], [])
                        self.assertEqual(report['coverage']['redirected'], policy != 'native')

    def test_leaves_others_alone(self):
        """Every program of these tests does under the audit what it does natively."""
        probe = program('libpreload_probe_c.so')
        lookalike = program('libpreload_lookalike.so')
        for command in ([program('preload_lookup_linked')], [program('preload_lookup_dlsym')],
                        [program('preload_lookup_get_proc'), 'legacy'],
                        [program('preload_lookup_get_proc'), 'per-thread'],
                        [program('preload_rtld'), probe], [program('preload_lookalike_user'), lookalike],
                        [program('preload_lookalike_user'), lookalike, 'both'],
                        [program('preload_lookalike_linked')], [program('preload_threads')],
                        [program('preload_exits'), 'return'], [program('preload_exits'), 'fork_exec'],
                        [program('preload_lives'), 'plug_in'], [program('preload_lives'), 'fork_asks']):
            with self.subTest(command=command):
                self.same_audited(command, drop=r'^cuLaunch.* belongs|^    is cuLaunch', SIM_VIOLATION='count')

    def test_without_cuda(self):
        for command in (['/bin/true'], ['/bin/sh', '-c', 'ls / | wc -l; exit 3'],
                        ['python3', '-c', 'import ctypes, threading; print(ctypes.CDLL(None).getpid() > 0)']):
            with self.subTest(command=command):
                self.assertEqual(self.same_audited(command), {})

    def test_another_audit_stays(self):
        done, _ = self.audited(['/bin/sh', '-c', 'echo $LD_AUDIT'], {'LD_AUDIT': AUDIT})
        self.assertEqual(done.stdout, AUDIT + ':' + AUDIT + '\n')

    def test_comes_by_itself_the_next_time(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        memory = os.path.join(folder, 'new', 'state', 'allograft', 'audit')
        def begin(*words, settings=None, **more):
            settings = {'XDG_STATE_HOME': os.path.join(folder, 'new', 'state'), **(settings or {})}
            return self.audited([LOADER, *(words or ('deep', LINKED, STORAGE))], settings, **more)
        went_past = r'(?m)^allograft: libpreload_deepbind_linked\.so reaches the driver past Allograft ' \
                    r'\(RTLD_DEEPBIND\): the next `allograft run` of this program catches its calls \(--audit\)$'
        is_on = '(?m)^allograft: run: calls of %s went past Allograft before ' \
                r'\(RTLD_DEEPBIND\): --audit is on; --no-audit leaves it off$' % re.escape(LOADER)
        # Of a program whose calls come through nothing is kept.
        done, _ = begin('plain', LINKED, STORAGE, audit=False)
        self.assertEqual((done.returncode, done.stderr, os.path.exists(memory)), (5, '', False))
        # Nor where it was asked for, or asked to be left off.
        for option in ('--audit', '--no-audit'):
            done, _ = begin(option=option)
            self.assertNotRegex(done.stderr, went_past)
            self.assertFalse(os.path.exists(memory), option)
        done, report = begin(audit=False)
        self.assertRegex(done.stderr, went_past)
        self.assertEqual((done.returncode, report['coverage']['bypassing']), (5, ['libpreload_deepbind_linked.so']))
        with open(memory, encoding='utf-8') as file:
            self.assertEqual(file.read(), os.path.realpath(LOADER) + '\n')
        self.assertEqual(os.stat(memory).st_mode & 0o777, 0o600)
        for words in ((), ('plain', LINKED, STORAGE)):
            done, report = begin(*words, audit=False)
            self.assertRegex(done.stderr, is_on)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (5, 1), done.stderr)
            self.assertEqual((report['coverage']['bypassing'], allocs(report)), ([], 1))
        done, report = begin(option='--no-audit')
        self.assertNotRegex(done.stderr, 'went past Allograft before|the next .allograft run')
        self.assertEqual(report['coverage']['bypassing'], ['libpreload_deepbind_linked.so'])
        # A folder that cannot be written: the line is what it was.
        done, _ = begin(audit=False, settings={'XDG_STATE_HOME': '/dev/null'})
        self.assertNotRegex(done.stderr, went_past)
        self.assertEqual(done.returncode, 5)
        # Nor does a limit on the size of files end the process by a signal.
        settings = {'XDG_STATE_HOME': os.path.join(folder, 'other'), 'ALLOGRAFT_STATS': 'full'}
        done = subprocess.run([COMMAND, 'run', LOADER, 'deep', LINKED, STORAGE, 'limited'],
                              env=dict(clean_environment(), **settings), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=SECONDS, check=False)
        self.assertNotRegex(done.stderr, went_past)
        self.assertEqual(done.returncode, 5, done.stderr)

    def test_many_processes_remember_at_once(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        memory = os.path.join(folder, 'allograft', 'audit')
        env = dict(clean_environment(), XDG_STATE_HOME=folder, ALLOGRAFT_STATS='/dev/null')
        copies = [shutil.copy(LOADER, os.path.join(folder, 'program%d' % i)) for i in range(8)]
        running = [subprocess.Popen([COMMAND, 'run', '--', copy, 'deep', LINKED, STORAGE], env=env, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for copy in copies * 3]
        self.assertEqual([process.wait(200) for process in running], [5] * len(running))
        with open(memory, encoding='utf-8') as file:
            self.assertEqual(sorted(set(file.read().splitlines())), sorted(map(os.path.realpath, copies)))
        # It has a bound, beyond which it begins anew.
        with open(memory, 'w', encoding='utf-8') as file:
            file.write('/some/other/program\n' * 819)
        subprocess.run([COMMAND, 'run', '--', LOADER, 'deep', LINKED, STORAGE], env=env, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS, check=False)
        with open(memory, encoding='utf-8') as file:
            self.assertEqual(file.read(), os.path.realpath(LOADER) + '\n')

    def test_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = os.path.join(folder, 'liballograft.so')
            os.symlink(LIBRARY, alone)
            shutil.copy(LIBRARY, os.path.join(folder, 'copy.so'))
            os.unlink(alone)
            os.rename(os.path.join(folder, 'copy.so'), alone)
            done, _ = self.audited(['/bin/true'], {'ALLOGRAFT_LIBRARY': alone})
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r'--audit: .*liballograft-audit\.so: No such file')

    def test_library_alone(self):
        # Without liballograft.so beside it the audit changes nothing.
        command = [LOADER, 'deep', LINKED, STORAGE]
        native = run(command)
        result = run(command, {'LD_AUDIT': AUDIT})
        self.assertEqual((native.status, native.out, native.err),
                         (result.status, result.out, result.err))

    def test_needs_little(self):
        listed = subprocess.run(['readelf', '-d', '-l', AUDIT], stdout=subprocess.PIPE,
                                universal_newlines=True, check=True).stdout
        self.assertEqual(re.findall(r'NEEDED.*\[(.*)\]', listed), ['libc.so.6'])
        self.assertNotRegex(listed, r'\bTLS\b')  # it would take of the program's static storage


class Injection(Case):
    def test_injection_path_is_left_alone(self):
        # What others set for the driver's own injection reaches the program as it was.
        command = ['/bin/sh', '-c', 'echo "$CUDA_INJECTION64_PATH"']
        settings = {'CUDA_INJECTION64_PATH': '/some/libinjection.so'}
        self.assertEqual(preloaded(command, settings).out, '/some/libinjection.so\n')
        self.assertEqual(preloaded(command).out, '\n')
        for library in (LIBRARY, AUDIT):
            with open(library, 'rb') as file:
                self.assertNotIn(b'CUDA_INJECTION', file.read())


if __name__ == '__main__':
    main()
