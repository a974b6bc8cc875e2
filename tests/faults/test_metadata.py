# Memory for our own metadata runs out: the N-th anonymous mapping of ours fails, or all from there on.
# The program does not notice; the report, if there is memory for one, counts what was left alone.

from faults import (LIBRARY, Case, main_but_under_tsan, native_run, preloaded, program, some,
                    stderr_problem)

FAILING = program('libfaults_mmap.so')
SETTINGS = ({'ALLOGRAFT_POLICY': 'pool'}, {'ALLOGRAFT_POLICY': 'managed'},
            {'ALLOGRAFT_POLICY': 'native'}, {'ALLOGRAFT_GUARD': 'canary'}, {'ALLOGRAFT_GUARD': 'poison'},
            {'ALLOGRAFT_GUARD': 'page'})
PROGRAMS = ('mix', 'contexts', 'capture', 'tight')
COMMON = {'SIM_VIOLATION': 'abort'}


def start(name, settings):
    memory = {'SIM_MEMORY': '16MiB'} if name == 'tight' else {}
    # Before ours: its mmap is the one that ours calls.
    return preloaded([program('faults_program'), name], dict(COMMON, **dict(memory, **settings)),
                     preload=(FAILING, LIBRARY))


class Metadata(Case):
    def native(self, name):
        memory = {'SIM_MEMORY': '16MiB'} if name == 'tight' else {}
        return native_run(name, dict(COMMON, **memory))

    def same(self, name, settings):
        native, result = self.native(name), start(name, settings)
        with self.subTest(program=name, settings=settings):
            self.assertEqual(native.out, result.out, result.err)
            self.assertEqual(native.status, result.status, result.err)
            self.assertIsNone(stderr_problem(result, native))
        return result

    def test_no_mapping_fails_unseen(self):
        """The library before ours counts mappings of ours, so the tests below have something to fail."""
        result = start('mix', dict(SETTINGS[0], FAIL_MMAP_COUNT='@FOLDER@/count'))
        self.assertGreater(int(result.files['count']), 2)

    def test_each_mapping_fails(self):
        for name in PROGRAMS:
            for settings in SETTINGS:
                counted = start(name, dict(settings, FAIL_MMAP_COUNT='@FOLDER@/count'))
                for n in range(1, int(counted.files['count']) + 1):
                    for once in some(({'FAIL_MMAP_ONCE': '1'}, {})):
                        self.same(name, dict(settings, FAIL_MMAP=str(n), **once))

    def test_the_report_tells(self):
        # The report's own mapping works again, the metadata's first ones did not, neither ahead of time nor when needed.
        told = 0
        for n in range(1, 6):
            result = self.same('mix', dict(SETTINGS[0], FAIL_MMAP=str(n), FAIL_MMAP_ONCE='3'))
            if result.files.get('faults', '') == '' and not result.reports():
                continue
            fallbacks = result.report()['coverage']['fallbacks']
            told += fallbacks['no_memory_for_metadata'] > 0
        self.assertGreater(told, 0)


if __name__ == '__main__':
    main_but_under_tsan('it answers mmap itself')
