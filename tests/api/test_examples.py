# The examples of docs/api.md: compiled, and run on the simulated driver where they need no PyTorch.

import ast
import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile

from harness import Case, LIBRARY, ROOT, RUNTIME, SIM, main, preloaded, run  # of tests/preload

COMPILER = os.environ['TEST_COMPILER'].split()
FOLDER = tempfile.mkdtemp(prefix='examples-')
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)

# What the examples in C are part of. Each has 100 steps of work, each step adds nothing and is counted by its copy.
PROGRAM = '''
#include <cuda.h>
#include <stdio.h>
#include <string.h>

#include "allograft.h"

#define MUST(call) do { if (call) { puts(#call); return 1; } } while (0)
static CUstream stream;
static CUdeviceptr out;
static const size_t bytes = 4096;
static const void *weights, *states;
static unsigned char host[2][4096], n_batches;

static inline void work_on(CUstream s) { cuMemsetD8Async(out, 100, 1, s); }
static inline void step(void *input, CUstream s) { cuMemcpyDtoDAsync(out, (CUdeviceptr)input, bytes, s); }
static inline void fill(void *slot) { memset(slot, ++n_batches, bytes); }
static inline const void *next_batch(void) { static unsigned char batch[4096]; fill(batch); return batch; }

static void example(void)
{
%s
}

int main(int argc, char **argv)
{
    CUcontext context;
    unsigned char seen = 0;

    MUST(cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) || cuMemAlloc(&out, bytes));
    MUST(argc > 1 && allograft_load(argv[1]));
    example();
    MUST(cuStreamSynchronize(stream) || cuMemcpyDtoH(&seen, out, 1));
    printf("%%s%%d\\n", allograft_last_error(), %s seen);
    return 0;
}
'''

# What the examples in Python are part of.
SCRIPT = '''
import python_device as device
device.open_device()
n = 0
def fill(parts):
    global n
    n += 1
    for part in parts.values():
        part[:] = bytes([n]) * len(part)
def step(*parts):
    for part in parts:
        device.copy(out, part.data_ptr(), 4, 0)
out = device.alloc(4)
exec(open(%r).read())
print(device.read(out, 1)[0], device.violations())
'''


def examples(language):
    with open(os.path.join(ROOT, 'docs', 'api.md'), encoding='utf-8') as file:
        return re.findall(r'```%s\n(.*?)```' % language, file.read(), re.DOTALL)


class Examples(Case):
    def setUp(self):
        if any('tsan' in library for library in RUNTIME):
            self.skipTest('no foreign program runs with the runtime of ThreadSanitizer in it')

    def test_c(self):
        found = examples('c')
        self.assertEqual(len(found), 5)
        for i, text in enumerate(found):
            with self.subTest(example=text):
                path = os.path.join(FOLDER, 'example%d' % i)
                works = 'step(' in text or 'work_on(' in text
                with open(path + '.c', 'w', encoding='utf-8') as file:
                    file.write(PROGRAM % (text, '' if works else '100 + 0 *'))
                subprocess.run([*COMPILER, '-std=gnu11', '-Wall', '-Wno-unused', '-Werror', path + '.c', '-o', path,
                                '-L' + SIM, '-l:libcuda.so.1', '-Wl,--allow-shlib-undefined', '-ldl'], check=True)
                if 'memory_place' in text:  # of no memory here
                    continue
                opened = run([path, LIBRARY], {'LD_PRELOAD': ':'.join(RUNTIME)})
                for result in (preloaded([path]), opened):
                    self.assertEqual((result.status, result.out), (0, '100\n'), result.err)

    def test_python(self):
        paths = os.pathsep.join(os.path.join(ROOT, *folder) for folder in (('tools', 'python'), ('tests', 'api')))
        found = examples('python')
        self.assertEqual(len(found), 5)
        runnable = [text for text in found if 'torch' not in text and 'model' not in text]
        self.assertEqual(len(runnable), 1)
        for text in runnable:
            path = os.path.join(FOLDER, 'example.py')
            with open(path, 'w', encoding='utf-8') as file:
                file.write(text)
            result = run([sys.executable, '-c', SCRIPT % path],
                         {'PYTHONPATH': paths, 'PYTHONDONTWRITEBYTECODE': '1', 'PYTHON_SIM': SIM,
                          'LD_PRELOAD': ':'.join(RUNTIME), 'ALLOGRAFT_LIBRARY': LIBRARY})
            self.assertEqual((result.status, result.out), (0, '100 0\n'), result.err)

    def test_python_names(self):
        """What the examples for PyTorch call is there, though PyTorch is not."""
        sys.path.insert(0, os.path.join(ROOT, 'tools', 'python'))
        import allograft
        for text in examples('python'):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Attribute) and getattr(node.value, 'id', '') == 'allograft':
                    self.assertTrue(hasattr(allograft, node.attr), node.attr)


if __name__ == '__main__':
    main()
