# Functions of the driver that are not hooked see what was withheld, whichever lookup path they came through.

import re
import unittest

from harness import RUNTIME, SEEDS, Case, main, program

HELD = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0',
        'ALLOGRAFT_GRAPH_HOLD_US': '60000000'}
DRIVER_COPIES = {'ALLOGRAFT_COPY': 'driver'}
OFF = (dict(DRIVER_COPIES, ALLOGRAFT_FREE='ordered'), dict(DRIVER_COPIES, ALLOGRAFT_FREE='sync', ALLOGRAFT_GRAPH='off'),
       dict(DRIVER_COPIES, ALLOGRAFT_POLICY='native'), dict(HELD, ALLOGRAFT_DISABLE='1'))
LOOKUPS = ('linked', 'dlsym', 'get_proc')
OWNERS = r'^cu.* belongs to|the same twice'
DRIVER, OURS = 'libcuda.so.1', 'liballograft.so'


def owners(result):
    return dict(re.findall(r'^(cu\w+) belongs to (\S+)$', result.out, re.MULTILINE))


class Trampolines(Case):
    def through(self, lookup, variants, **more):
        return self.same([program('preload_trampolines'), lookup], variants=variants, drop=OWNERS, **more)

    def test_lookups(self):
        for lookup in LOOKUPS:
            for _, result in self.through(lookup, [HELD], seeds=SEEDS):
                with self.subTest(lookup=lookup):
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
        for lookup in LOOKUPS[1:]:
            for variant, result in self.through(lookup, OFF):
                # dlsym answers before all is read.
                if lookup == 'dlsym' and re.search('DISABLE|POLICY', str(variant)):
                    continue
                with self.subTest(lookup=lookup, variant=variant):
                    found = owners(result)
                    self.assertEqual(len(found), 6)
                    self.assertEqual(set(found.values()), {DRIVER})

    def test_work_is_watched(self):
        for lookup in LOOKUPS[1:]:
            for _, result in self.through(lookup, [{}]):
                with self.subTest(lookup=lookup):
                    found = owners(result)
                    self.assertEqual(found['cuMemcpyDtoH_v2'], OURS)
                    self.assertEqual(found['cuCtxGetCurrent'], DRIVER)
                    self.assertEqual(found['cuGetExportTable'], DRIVER)
                    self.assertEqual(found['cuAllograftFuture'], OURS)

    def test_a_stream_destroyed_by_an_old_call(self):
        for _, result in self.same([program('preload_trampolines'), 'old'], variants=[HELD], seeds=SEEDS):
            self.assertGreater(result.report()['replay']['withheld'], 100)

    def library(self, *words):
        """Iterations in which a library looks, by functions of the driver that it is bound to."""
        results = self.same([program('preload_trampolines'), *words], variants=[HELD], quiet=False)
        self.assertEqual(len(results), 1)
        return results[0][1].report()['replay'], results[0][1].err

    def test_a_library_that_is_bound_to_us(self):
        for when in ('early', 'late'):
            replay, said = self.library('plain', when, program('libpreload_past.so'))
            self.assertEqual((replay['state'], said), ('on', ''))
            self.assertGreater(replay['withheld'], 40)

    @unittest.skipIf(RUNTIME, 'a sanitizer does not let a library be opened with RTLD_DEEPBIND')
    def test_a_library_that_goes_past(self):
        for when in ('early', 'late'):
            with self.subTest(when=when):
                replay, said = self.library('deep', when, program('libpreload_past.so'))
                self.off(replay, said, 'libpreload_past.so', 'cuMemcpyDtoH_v2', when)

    def test_a_library_linked_with_what_nobody_knows(self):
        for when in ('early', 'late'):
            with self.subTest(when=when):
                replay, said = self.library('plain', when, program('libpreload_past_future.so'))
                self.off(replay, said, 'libpreload_past_future.so', 'cuAllograftFuture', when)

    def off(self, replay, said, file, symbol, when):
        self.assertEqual(replay['state'], 'unavailable')
        for text in (replay['reason'], said):
            self.assertIn('%s reaches the driver past Allograft (%s)' % (file, symbol), text)
        self.assertEqual(replay['withheld'] > 0, when == 'late')


if __name__ == '__main__':
    main()
