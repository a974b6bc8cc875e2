# A library is closed and another one is loaded where it lay: an allocation is that of the library that calls.

import os
import re
import subprocess
import tempfile

from hostile import Case, clean_environment, main, often, preloaded, program

TURNS = often(20)
WORKER, EXPORTER = (program('libhostile_worker.so'), program('libnccl_hostile.so'))


def placed(report):
    """Number of allocations by placement."""
    device, = report['devices']
    return {name: numbers['allocs'] for name, numbers in device['placements'].items()
            if numbers['allocs']}


class Callers(Case):
    def turns(self, first, second, settings=None):
        result = preloaded([program('hostile_callers'), str(TURNS), first, second], settings)
        self.assertEqual(result.status, 0, result.out + result.err)
        if result.out == 'at the same place: 0\n':
            self.skipTest('the loader put no library where another one lay')
        return result.report()

    def test_exporters(self):
        # Whichever comes first, an exporter's memory is native, and no other library's is.
        for first, second in ((WORKER, EXPORTER), (EXPORTER, WORKER)):
            self.assertEqual(placed(self.turns(first, second, {'ALLOGRAFT_POLICY': 'pool'})), {'pool': TURNS, 'native': TURNS})

    def test_rules(self):
        report = self.turns(WORKER, EXPORTER, {
            'ALLOGRAFT_RULES': 'from=libnccl_hostile*:managed; from=libhostile_worker*:native'})
        self.assertEqual(placed(report), {'managed': TURNS, 'native': TURNS})
        self.assertEqual([rule['hits'] for rule in report['rules']], [TURNS, TURNS])

    def test_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'trace')
            self.turns(WORKER, EXPORTER, {'ALLOGRAFT_TRACE': path})
            shown = subprocess.run([os.environ['TEST_COMMAND'], 'trace', path], env=clean_environment(),
                                   stdout=subprocess.PIPE, universal_newlines=True, check=True)
        sites = re.findall(r'^ +(\d+) +\d+ +[\d.]+ \w+ +(\S+)\+0x', shown.stdout, re.M)
        self.assertEqual(sorted(sites), sorted((str(TURNS), os.path.basename(file)) for file in (WORKER, EXPORTER)))


if __name__ == '__main__':
    main()
