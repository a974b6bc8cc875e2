# The Python package: on the simulated driver, preloaded and opened by path; with a stub of PyTorch; with nothing.

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile

from harness import Case, LIBRARY, ROOT, RUNTIME, SIM, main, preloaded, run  # of tests/preload

API = os.environ['TEST_API']
HERE = os.path.join(ROOT, 'tests', 'api')
PACKAGE = os.path.join(ROOT, 'tools', 'python')
FOLDER = tempfile.mkdtemp(prefix='python-')
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)

WAYS = [{}, {'ALLOGRAFT_POLICY': 'managed'}, {'ALLOGRAFT_POLICY': 'native'}]


def settings(**more):
    return dict({'PYTHONPATH': os.pathsep.join([PACKAGE, HERE]), 'PYTHONDONTWRITEBYTECODE': '1', 'TMPDIR': FOLDER,
                 'PYTHON_LIBRARY': LIBRARY, 'PYTHON_SIM': SIM, 'PYTHON_PRELOADED': '0',
                 'LD_PRELOAD': ':'.join(RUNTIME)}, **more)


class Python(Case):
    def setUp(self):
        if any('tsan' in library for library in RUNTIME):
            self.skipTest('no Python runs with the runtime of ThreadSanitizer in it')

    def well(self, result):
        self.assertEqual(result.status, 0, result.out + result.err)
        return result

    def script(self, text, **more):
        return run([sys.executable, '-c', text], settings(**more))

    def test_preloaded(self):
        for seed, way in enumerate(WAYS):
            with self.subTest(way=way):
                env = settings(PYTHON_PRELOADED='1', SIM_SEED=str(seed), **way)
                del env['LD_PRELOAD']
                result = self.well(preloaded([sys.executable, os.path.join(HERE, 'python_parts.py')], env))
                told = [line for line in result.err.splitlines() if line.startswith('allograft:')]
                self.assertEqual(len(told), 1, told) # of a report that cannot be written
                api = result.report()['api']
                self.assertGreater(api['captures'], 10)
                self.assertGreater(api['prefetched_bytes'], 8 << 20)

    def test_opened(self):
        for seed in ('1', '2'):
            self.well(run([sys.executable, os.path.join(HERE, 'python_parts.py')],
                          settings(ALLOGRAFT_LIBRARY=LIBRARY, SIM_SEED=seed)))

    def test_without_library(self):
        text = '''
import allograft
assert not allograft.is_loaded() and not allograft.is_preloaded()
assert allograft.stats() == {} and allograft.mark("x") is False and allograft.dump("x") is False
support = allograft.managed_support()
assert not support and "no-such-file" in support.reason, support
for call in (allograft.Graph, allograft.library_path, lambda: allograft.TransferRing(1, slot_bytes=4),
             lambda: allograft.Stage("x"), lambda: allograft.managed_alloc(4, 0, 0)):
    try:
        call()
    except allograft.NotLoaded as error:
        assert "no-such-file" in str(error)
    else:
        raise SystemExit("no error")
print("nothing done")
'''
        result = self.well(self.script(text, ALLOGRAFT_LIBRARY='/no-such-file.so'))
        self.assertEqual(result.out, 'nothing done\n')

    def test_sources_have_no_command(self):
        result = self.script("import allograft._command as command; command.main()")
        self.assertEqual((result.status, len(result.err.splitlines())), (1, 1), result.err)
        self.assertIn("part of a wheel (pip install tools/python)", result.err)

    def test_library_without_driver(self):
        text = 'import allograft; print(allograft.is_loaded(), len(allograft.managed_support()))'
        result = self.well(self.script(text, ALLOGRAFT_LIBRARY=LIBRARY, LD_LIBRARY_PATH=''))
        self.assertEqual(result.out, 'True 2\n')

    def test_library_beside_the_package(self):
        for inner in ('', 'lib'):
            folder = os.path.join(FOLDER, 'wheel' + inner)
            shutil.copytree(os.path.join(PACKAGE, 'allograft'), os.path.join(folder, 'allograft'))
            os.makedirs(os.path.join(folder, 'allograft', inner), exist_ok=True)
            shutil.copy(LIBRARY, os.path.join(folder, 'allograft', inner, 'liballograft.so'))
            result = self.well(self.script('import allograft; print(allograft.library_path())', PYTHONPATH=folder))
            self.assertEqual(os.path.dirname(os.path.relpath(result.out.strip(), folder)),
                             os.path.join('allograft', inner).rstrip('/'))

    def test_with_stub_of_torch(self):
        self.well(run([sys.executable, os.path.join(HERE, 'python_torch.py')], settings(ALLOGRAFT_LIBRARY=LIBRARY)))

    def test_structs_are_the_headers(self):
        printed = subprocess.run([os.path.join(API, 'api_layout')], stdout=subprocess.PIPE, universal_newlines=True,
                                 check=True).stdout
        text = '''
from ctypes import sizeof
from allograft import _library as l
kinds = {"range": l.Range, "stage_options": l.StageOptions, "ring_options": l.RingOptions,
         "ring_properties": l.RingPropertiesStruct, "ring_record": l.RingRecordStruct, "snapshot": l.Snapshot,
         "api": l.Api}
for name, kind in kinds.items():
    print("allograft_%s" % name, sizeof(kind))
    for field, *_ in kind._fields_[:3 if name == "api" else None]:
        place = getattr(kind, field)
        print("allograft_%s.%s" % (name, field), place.offset, place.size)
'''
        self.assertEqual(self.well(self.script(text)).out, printed)

    def test_statuses_are_the_headers(self):
        with open(os.path.join(ROOT, 'interpose', 'api', 'allograft.h'), encoding='utf-8') as file:
            header = file.read()
        names = re.findall(r'ALLOGRAFT_(\w+) =\s+(\d+)', header[:header.index('} allograft_status;')])
        self.assertEqual(len(names), 9)
        text = 'from allograft import _library as l\nprint(%s)' % ', '.join('l.' + name for name, _ in names)
        self.assertEqual(self.script(text).out.split(), [number for _, number in names])


if __name__ == '__main__':
    main()
