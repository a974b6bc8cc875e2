# allograft.compat.unified_memory and allograft.compat.replay_transfer on the simulated driver: scripts written against
# the documentation of what they stand in for, with tests/api/fake_cuda.py as PyTorch, preloaded and opened.

import os
import sys

from harness import Case, LIBRARY, ROOT, RUNTIME, SIM, main, preloaded, run, some  # of tests/preload

HERE = os.path.join(ROOT, 'tests', 'api')
SCRIPT = os.path.join(HERE, 'python_seed.py')
UNIFIED = os.path.join(HERE, 'seed_scripts', 'unified_memory.py')
TRANSFER = os.path.join(HERE, 'seed_scripts', 'replay_transfer.py')
PARTS = [os.path.join(HERE, 'python_compat_memory.py')]

WAYS = [{}, {'ALLOGRAFT_POLICY': 'native'}, {'ALLOGRAFT_POLICY': 'pool'}, {'ALLOGRAFT_FREE': 'sync'},
        {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1'}]
MANAGED = {'ALLOGRAFT_POLICY': 'managed'}


class Seeds(Case):
    def setUp(self):
        if any('tsan' in library for library in RUNTIME):
            self.skipTest('no Python runs with the runtime of ThreadSanitizer in it')

    def settings(self, **more):
        return dict({'PYTHONPATH': os.pathsep.join([os.path.join(ROOT, 'tools', 'python'), HERE]), 'PYTHON_SIM': SIM,
                     'PYTHONDONTWRITEBYTECODE': '1'}, **more)

    def opened(self, words, **more):
        result = run([sys.executable, *words], self.settings(
            PYTHON_PRELOADED='0', ALLOGRAFT_LIBRARY=LIBRARY, LD_PRELOAD=':'.join(RUNTIME), **more))
        self.assertEqual(result.status, 0, result.out + result.err)
        return result

    def preloaded(self, words, **more):
        result = preloaded([sys.executable, *words], self.settings(PYTHON_PRELOADED='1', **more))
        self.assertEqual(result.status, 0, result.out + result.err)
        return result

    def well(self, result):
        self.assertRegex(result.err, r'Ran [1-9]\d* tests?')
        return result

    def test_unified_memory(self):
        for seed, way in some(enumerate([*WAYS, MANAGED]), 2):
            with self.subTest(way=way):
                api = self.well(self.preloaded([SCRIPT, UNIFIED], SIM_SEED=str(seed), **way)).report()['api']
                self.assertEqual(api['managed_allocations'], 2) # for the small tensors, and the large one
                self.assertGreater(api['prefetched_bytes'], 12 << 20)
        self.well(self.opened([SCRIPT, UNIFIED]))

    def test_replay_transfer(self):
        for seed, way in some(enumerate([*WAYS, MANAGED]), 2):
            with self.subTest(way=way):
                api = self.well(self.preloaded([SCRIPT, TRANSFER], SIM_SEED=str(seed), **way)).report()['api']
                self.assertEqual(api['copies'], 2 * 20 + 3 + 300) # one by one, for the recorder, and the batches
        for seed in ('7', '8'):
            self.well(self.opened([SCRIPT, TRANSFER], SIM_SEED=seed))

    def test_parts(self):
        for seed, way in some(enumerate([*WAYS, {'ALLOGRAFT_LIMIT': '8MiB'}]), 2):
            with self.subTest(way=way):
                self.well(self.preloaded(PARTS, SIM_SEED=str(seed), **way))
        self.well(self.opened(PARTS))

    def test_nothing_is_imported_before_it_is_used(self):
        text = '''
import sys
import allograft.compat.unified_memory as um, allograft.compat.replay_transfer as rt
assert not {'torch', 'numpy'} & set(sys.modules)
assert um.prefetch_managed_tensor(None, device=0) is None and um.prefetch_managed_module_parameters(None, device=0) == 0
import types
torch = sys.modules['torch'] = types.ModuleType('torch')
torch.cuda = types.SimpleNamespace(is_available=lambda: False, memory=None)
try:
    um.create_unified_mempool()
except um.UnifiedMemoryUnsupportedError as error:
    print(error)
'''
        result = self.opened(['-W', 'ignore', '-c', text])
        self.assertIn('no torch.cuda.MemPool', result.out)


if __name__ == '__main__':
    main()
