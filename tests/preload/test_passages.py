# Functions of the driver that are not hooked see what was withheld, whichever door they came through.

import re

from harness import SEEDS, Case, main, program

HELD = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0',
        'ALLOGRAFT_GRAPH_HOLD_US': '1000000'}
OFF = ({}, {'ALLOGRAFT_GRAPH': 'off'}, dict(HELD, ALLOGRAFT_DISABLE='1'))
DOORS = ('linked', 'dlsym', 'get_proc')
OWNERS = r'^cu.* belongs to|the same twice'
DRIVER, OURS = 'libcuda.so.1', 'liballograft.so'


def owners(result):
    return dict(re.findall(r'^(cu\w+) belongs to (\S+)$', result.out, re.MULTILINE))


class Passages(Case):
    def through(self, door, variants, **more):
        return self.same([program('preload_passages'), door], variants=variants, drop=OWNERS, **more)

    def test_doors(self):
        for door in DOORS:
            for _, result in self.through(door, [HELD], seeds=SEEDS):
                with self.subTest(door=door):
                    replay = result.report()['replay']
                    self.assertGreater(replay['withheld'], 100)
                    self.assertEqual(replay['withheld'], replay['replayed'] + replay['released'])
                    found = owners(result)
                    self.assertEqual(found['cuMemcpyDtoH_v2'], OURS)
                    self.assertEqual(found['cuMemcpy2DUnaligned_v2'], OURS)
                    self.assertEqual(found['cuCtxGetCurrent'], DRIVER)
                    self.assertEqual(found['cuGetExportTable'], DRIVER)
                    self.assertEqual(found['cuAllograftFuture'], OURS)
                    self.assertNotIn('twice: 0', result.out)

    def test_without_replay(self):
        for door in DOORS[1:]:
            for variant, result in self.through(door, OFF):
                if door == 'dlsym' and 'ALLOGRAFT_DISABLE' in variant:
                    continue
                with self.subTest(door=door, variant=variant):
                    found = owners(result)
                    self.assertEqual(len(found), 6)
                    self.assertEqual(set(found.values()), {DRIVER})


if __name__ == '__main__':
    main()
