# A program in Go, through cgo: where there is a Go toolchain.

import os
import shutil
import subprocess
import tempfile
import unittest

from hostile import ROOT, RUNTIME, SIM, Case, main, often, program

ORDERED = {'ALLOGRAFT_FREE': 'ordered'}
REPLAY = {'ALLOGRAFT_GRAPH': 'all'}


@unittest.skipIf(RUNTIME, "Go's runtime and a sanitizer's do not go together")
@unittest.skipUnless(shutil.which('go') and shutil.which('gcc'), 'there is no Go toolchain')
class Go(Case):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix='go-')
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.program = os.path.join(folder, 'threads')
        env = {k: v for k, v in os.environ.items() if k != 'LD_LIBRARY_PATH'}
        env.update(GO111MODULE='off', GOFLAGS='', CGO_ENABLED='1', GOCACHE=program('go-cache'),
                   CGO_LDFLAGS='-L%s -l:libcuda.so.1' % SIM)
        built = subprocess.run(['go', 'build', '-o', cls.program,
                                os.path.join(ROOT, 'tests', 'hostile', 'process', 'threads.go')],
                               env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               universal_newlines=True)
        if built.returncode:
            raise unittest.SkipTest('the Go toolchain here builds no program with cgo: ' + built.stdout)

    def test_threads_signals_children(self):
        for _ in range(often(3)):
            self.same([self.program], variants=[{}, ORDERED, REPLAY])


if __name__ == '__main__':
    main()
