# The modules of allograft.compat, on the stub of PyTorch and the simulated driver. Scripts of seed_scripts/ are written
# after the documentation of what the modules stand in for; that of CUDAGraph runs on the stub's own class as well.

import atexit
import os
import shutil
import sys
import tempfile

from harness import Case, LIBRARY, ROOT, RUNTIME, SIM, main, preloaded, run  # of tests/preload

HERE = os.path.join(ROOT, 'tests', 'api')
SCRIPTS = os.path.join(HERE, 'seed_scripts')
FOLDER = tempfile.mkdtemp(prefix='compat-')
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)

# PyTorch 2.8 and later, as the stub has it.
START = '''
import runpy, sys, fake_torch
fake_torch.install().cuda.CUDAGraph = fake_torch.NewerGraph
runpy.run_path(sys.argv.pop(1), run_name='__main__')
'''


def settings(**more):
    return dict({'PYTHONPATH': os.pathsep.join([os.path.join(ROOT, 'tools', 'python'), HERE]),
                 'PYTHONDONTWRITEBYTECODE': '1', 'TMPDIR': FOLDER, 'PYTHON_LIBRARY': LIBRARY, 'PYTHON_SIM': SIM,
                 'LD_PRELOAD': ':'.join(RUNTIME)}, **more)


class Compat(Case):
    def setUp(self):
        if any('tsan' in library for library in RUNTIME):
            self.skipTest('no Python runs with the runtime of ThreadSanitizer in it')

    def well(self, result):
        self.assertEqual(result.status, 0, result.out + result.err)
        self.assertRegex(result.err, r'Ran [1-9]\d* tests?')

    def script(self, path):
        self.well(run([sys.executable, '-c', START, path], settings(ALLOGRAFT_LIBRARY=LIBRARY)))

    def test_scripts(self):
        for name in sorted(os.listdir(SCRIPTS)):
            with self.subTest(script=name):
                self.script(os.path.join(SCRIPTS, name))

    def test_the_script_is_about_what_is_stood_in_for(self):
        """That of CUDAGraph says the same of torch.cuda, with nothing but its import changed."""
        with open(os.path.join(SCRIPTS, 'cuda_graph.py'), encoding='utf-8') as file:
            text = file.read()
        ours, theirs = 'from allograft.compat.cuda_graph import', 'from torch.cuda import'
        self.assertEqual(text.count('allograft'), 1)
        path = os.path.join(FOLDER, 'theirs.py')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text.replace(ours, theirs))
        self.script(path)

    def test_differences(self):
        program = [sys.executable, os.path.join(HERE, 'python_compat_graphs.py')]
        self.well(run(program, settings(ALLOGRAFT_LIBRARY=LIBRARY)))
        env = settings()
        del env['LD_PRELOAD']
        self.well(preloaded(program, env))


if __name__ == '__main__':
    main()
