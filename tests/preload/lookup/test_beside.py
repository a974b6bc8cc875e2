# Beside other things that stand between a program and its libraries: allocators, sanitizers, tools.

import ctypes.util
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import LIBRARY, POLICIES, RUNTIME, Case, main, preloaded, program, run

PROGRAMS = ([program('preload_lookup_linked')], [program('preload_lookup_get_proc'), 'legacy'],
            [program('preload_threads')])
ALLOCATORS = ('jemalloc', 'tcmalloc', 'tcmalloc_minimal', 'mimalloc')
SANITIZED = program('preload_lookup_sanitized')


def asan_runtime():
    """The runtime that the sanitized program needs, or None."""
    if not os.path.exists(SANITIZED):
        return None
    listed = subprocess.run(['ldd', SANITIZED], stdout=subprocess.PIPE,
                            universal_newlines=True).stdout
    return next((line.split()[2] for line in listed.splitlines() if 'libasan' in line), None)


@unittest.skipIf(RUNTIME, 'a sanitizer wants its own allocator')
class Allocators(Case):
    def test_allocators(self):
        found = [name for name in map(ctypes.util.find_library, ALLOCATORS) if name]
        if not found:
            self.skipTest('none of %s is installed' % ', '.join(ALLOCATORS))
        for other in found:
            for command in PROGRAMS:
                native = run(command, preload=(other,))
                self.sane(native)
                for order in ((other, LIBRARY), (LIBRARY, other)):
                    for policy in POLICIES[:2]:
                        with self.subTest(order=order, command=command, policy=policy):
                            result = preloaded(command, policy, preload=order)
                            self.assertEqual((native.status, native.out, native.err),
                                             (result.status, result.out, result.err))
                            self.assertTrue(result.report()['coverage']['intercepted'])


@unittest.skipIf(RUNTIME or not asan_runtime(), 'no program with AddressSanitizer was built')
class AddressSanitizer(Case):
    """A program built with AddressSanitizer under the library as people have it."""

    def sanitized(self, way, preload, **options):
        settings = {'ASAN_OPTIONS': 'detect_leaks=0' + options.get('more', '')}
        return preloaded([SANITIZED, way], settings, preload=preload)

    def test_runtime_first(self):
        native = run([SANITIZED, 'legacy'], {'ASAN_OPTIONS': 'detect_leaks=0'})
        self.sane(native)
        for preload, more in (((asan_runtime(), LIBRARY), ''),
                              ((LIBRARY,), ':verify_asan_link_order=0')):
            with self.subTest(preload=preload):
                result = self.sanitized('legacy', preload, more=more)
                # What submits work is ours while streams are watched.
                native_out, out = (re.sub(r'^cuLaunch.*$', '', of.out, flags=re.MULTILINE) for of in (native, result))
                self.assertEqual((native.status, native_out, native.err), (result.status, out, result.err))
                self.assertGreater(result.report()['coverage']['redirected'], 0)

    def test_finds_what_it_finds(self):
        # A write past the end of the program's own memory, after it used CUDA.
        native = run([SANITIZED, 'overflow'], {'ASAN_OPTIONS': 'detect_leaks=0'})
        self.assertIn('heap-buffer-overflow', native.err)
        result = self.sanitized('overflow', (asan_runtime(), LIBRARY))
        self.assertIn('heap-buffer-overflow', result.err)
        self.assertEqual(native.status, result.status)


@unittest.skipIf(RUNTIME, 'a sanitizer does not run under these')
class Tools(Case):
    def under(self, tool, *words):
        """The program under a tool with the library, compared with the program alone."""
        if not shutil.which(tool):
            self.skipTest(tool + ' is not installed')
        native = run(PROGRAMS[0])
        with tempfile.TemporaryDirectory() as folder:
            words = [word.replace('@', folder) for word in words]
            result = preloaded(['env', 'LD_PRELOAD=' + LIBRARY, tool, *words, *PROGRAMS[0]], preload=(),
                               settings={'ALLOGRAFT_STATS': '@FOLDER@/stats.%p.json'})
        self.assertEqual(native.status, result.status, result.err)
        for line in native.out.splitlines():
            self.assertIn(line, result.out)
        self.assertEqual(sum(r['coverage']['redirected'] > 0 for r in result.reports()), 1)
        return result

    def test_valgrind(self):
        # Not on the simulated driver, whose reservations take valgrind minutes: does it start, and
        # does it find nothing in what every program goes through?
        if not shutil.which('valgrind'):
            self.skipTest('valgrind is not installed')
        command = [program('preload_rtld'), program('libpreload_probe_c.so')]
        native = run(command)
        result = preloaded(['valgrind', '-q', '--error-exitcode=9', *command])
        self.assertEqual((native.status, native.out), (result.status, result.out), result.err)
        self.assertNotIn('Invalid', result.err)

    def test_heaptrack(self):
        self.under('heaptrack', '-o', '@/trace')

    def test_strace(self):
        self.under('strace', '-f', '-o', '@/trace')

    def test_gdb(self):
        if not shutil.which('gdb'):
            self.skipTest('gdb is not installed')
        command = ['gdb', '-q', '-batch', '-ex', 'set startup-with-shell off',
                   '-ex', 'set environment LD_PRELOAD ' + LIBRARY, '-ex', 'break cuMemFree_v2',
                   '-ex', 'run', '-ex', 'delete', '-ex', 'continue', '--args', *PROGRAMS[0]]
        native = run(PROGRAMS[0])
        result = run(command, {'ALLOGRAFT_STATS': '@FOLDER@/stats.%p.json'})
        if 'ptrace' in result.err or 'exited normally' not in result.out:
            self.skipTest('gdb may not trace here')
        for line in native.out.splitlines():
            self.assertIn(line, result.out)
        self.assertEqual(len(result.reports()), 1)


if __name__ == '__main__':
    main()
