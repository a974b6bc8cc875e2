# Every hooked symbol, called with zeros for arguments in every state of a process, answers as natively
# and leaves the process as natively. Calls after which the host could see unfinished work make frees
# wait, whatever became of the call.

import concurrent.futures
import os
import re
import subprocess

from faults import UNCOUNTED, Case, main_but_under_tsan, preloaded, program, run, some, stderr_problem

JOBS = int(os.environ.get('TEST_JOBS', '2'))
COMMON = {'SIM_VIOLATION': 'abort'}
STATES = ('new', 'initialised', 'context')

# Symbols, and the reason that the report gives for a free that drains after them.
VISIBLE = {
    'pinned_host_memory': ('cuMemAllocHost_v2', 'cuMemHostAlloc'),
    'registered_host_memory': ('cuMemHostRegister_v2',),
    'managed_memory': ('cuMemAllocManaged', 'cuLibraryGetManaged'),
    'host_functions': ('cuLaunchHostFunc', 'cuLaunchHostFunc_ptsz', 'cuStreamAddCallback',
                       'cuStreamAddCallback_ptsz', 'cuGraphAddHostNode'),
    'shared_with_others': ('cuIpcGetMemHandle', 'cuIpcOpenMemHandle', 'cuIpcOpenMemHandle_v2',
                           'cuIpcGetEventHandle', 'cuIpcOpenEventHandle',
                           'cuMemExportToShareableHandle', 'cuMemImportFromShareableHandle',
                           'cuMemPoolExportToShareableHandle',
                           'cuMemPoolImportFromShareableHandle'),
    'external_resources': ('cuImportExternalMemory', 'cuImportExternalSemaphore',
                           'cuGraphicsMapResources', 'cuGraphicsMapResources_ptsz'),
    'direct_access': ('cuMemGetHandleForAddressRange', 'cuPointerSetAttribute'),
    'peer_access': ('cuCtxEnablePeerAccess',),
}


def names():
    """Number -> name of the hooked symbols, in the order of hooks.def, as the program numbers them."""
    path = os.path.join(os.environ['TEST_ROOT'], 'interpose', 'core', 'driver', 'hooks.def')
    with open(path, encoding='utf-8') as f:
        return re.findall(r'^AG_HOOK(?:_IF)?\(\w+, (\w+),', f.read(), re.M)


class Arguments(Case):
    def test_visible(self):
        """Named here, not read from the source: a row that goes missing is missed."""
        numbers = {name: i for i, name in enumerate(names())}
        for reason, symbols in VISIBLE.items():
            for symbol in symbols:
                with self.subTest(symbol=symbol):
                    result = preloaded([program('faults_arguments'), str(numbers[symbol]), 'context'],
                                       dict(COMMON, ALLOGRAFT_POLICY='pool'))
                    self.assertEqual(result.status, 3, result.err)
                    self.assertIn('\n%s: ' % symbol, result.out)
                    drained = result.report()['frees']['drain_reasons']
                    self.assertEqual({k: v for k, v in drained.items() if v}, {reason: 1})

    def test_zeros(self):
        command = program('faults_arguments')
        count = int(subprocess.run([command], stdout=subprocess.PIPE, check=True,
                                   env=dict(os.environ, LD_LIBRARY_PATH=os.environ['TEST_SIM'])).stdout)
        self.assertGreater(count, 90)
        every = [[command, str(i), state] for i in range(count) for state in some(STATES)]
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            natives = list(pool.map(lambda c: run(c, COMMON, alone=True), every))
            results = list(pool.map(lambda c: preloaded(c, dict(COMMON, **UNCOUNTED), alone=True), every))
        compared = 0
        for trial, native, result in zip(every, natives, results):
            with self.subTest(symbol=native.out, state=trial[2]):
                if native.status != 3:
                    continue  # what crashes natively may crash
                compared += 1
                self.assertEqual(native.out, result.out, result.err)
                self.assertEqual(native.status, result.status, result.err)
                self.assertIsNone(stderr_problem(result, native))
        self.assertGreater(compared, len(every) * 9 // 10)


if __name__ == '__main__':
    main_but_under_tsan('programs of one thread')
