# Libraries that use the device, or its memory, where no hook sees it: a cudaFree waits for them.

import os
import shutil
import tempfile
import unittest

from harness import LIBRARY, RUNTIME, SEEDS, Case, but_under_tsan, main, program, run

SUBMIT = ('libnvoptix.so.1', 'libnvcuvid.so.535.1', 'libnvidia-encode.so.1', 'libnvidia-opticalflow.so.1',
          'libnvidia-fbc.so.1', 'libnvidia-ngx.so.1')
# What is there beside any driver, and what is only named alike.
HARMLESS = ('libnvidia-ml.so.1', 'libnvidia-ptxjitcompiler.so.1', 'libnvidia-nvvm.so.4', 'libnvidia-gpucomp.so.580',
            'libnvidia-allocator.so.1', 'libmlx.so', 'libmyibverbs.so.1')
REACH = (('libibverbs.so.1', 'nvidia_peermem'), ('libibverbs.so.1.14.39', 'nv_peer_mem'), ('libgdrapi.so.2', 'gdrdrv'),
         ('libcufile.so.0', 'nvidia_fs'), ('libpsm2.so.2', 'hfi1'), ('libcxi.so.1', 'cxi_ss1'))
REPLAY = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0',
          'ALLOGRAFT_GRAPH_HOLD_US': '60000000'}
FAKER = program('libpreload_module_faker.so')


class Unseen(Case):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def named(self, name, source='libpreload_unseen.so', linked=None):
        """The library under that name; linked with the one named, if it was with libpreload_rdma.so."""
        path = os.path.join(self.folder, name)
        with open(program(source), 'rb') as file:
            data = file.read()
        if linked:
            self.assertIn(b'libpreload_rdma.so\0', data)
            data = data.replace(b'libpreload_rdma.so\0', linked.encode().ljust(19, b'\0'))
        with open(path, 'wb') as file:
            file.write(data)
        os.chmod(path, 0o755)
        return path

    def command(self, what, when, *paths):
        return [program('preload_unseen'), what, when, *paths]

    def wrong(self, command, settings=None, preload=(LIBRARY,)):
        """Of the seeds' runs, those in which something is wrong, and the last report."""
        found, result = [], None
        for seed in SEEDS:
            result = run(command, dict(settings or {}, SIM_SEED=seed), preload=preload)
            self.assertEqual(result.status, 0, result.out + result.err)
            if ': 0 words' not in result.out or any(': 0 words' not in line for line in result.out.splitlines()):
                found.append(seed)
        return found, result.report()

    def test_unknown_libraries_show_what_is_missed(self):
        # If these came out right, the tests below would see nothing. A thread may be slow on a busy machine.
        for what in ('fill', 'reuse', 'read', 'threads'):
            for when in ('early', 'late')[what == 'threads':]:
                command = self.command(what, when, self.named('libother.so'))
                self.assertTrue(any(self.wrong(command)[0] for _ in range(9)), (what, when))

    def test_work(self):
        for what in ('fill', 'reuse'):
            for when in ('early', 'late'):
                for variant, result in self.same(self.command(what, when, self.named(SUBMIT[0])), seeds=SEEDS):
                    if 'ALLOGRAFT_DISABLE' in variant:
                        continue
                    report = result.report()
                    self.assertEqual(report['coverage']['unseen'], [SUBMIT[0]])
                    self.assertTrue(any(SUBMIT[0] + ' uses the device' in w for w in report['warnings']))
                    if variant.get('ALLOGRAFT_POLICY') == 'pool' and 'ALLOGRAFT_FREE' not in variant:
                        self.assertGreater(report['frees']['drain_reasons']['unseen_work'], 5)

    def test_threads_that_find_out_at_once(self):
        self.same(self.command('threads', 'late', self.named('libother.so'), self.named(SUBMIT[1])), seeds=SEEDS)

    def test_replay(self):
        for when in ('early', 'late'):
            for _, result in self.same(self.command('replay', when, self.named(SUBMIT[0])), [REPLAY], seeds=SEEDS,
                                       quiet=False):
                replay = result.report()['replay']
                self.assertEqual(replay['state'], 'unavailable')
                self.assertIn('libnvoptix.so.1 submits work past Allograft', replay['reason'])

    def test_a_forked_child(self):
        for variant, result in self.same(self.command('fill', 'child', self.named(SUBMIT[0]))):
            if 'ALLOGRAFT_DISABLE' not in variant:
                self.assertIn([SUBMIT[0]], [r['coverage']['unseen'] for r in result.reports()])

    @unittest.skipIf(RUNTIME, 'a sanitizer does not let a library be opened with RTLD_DEEPBIND')
    def test_a_library_that_is_bound_past_us(self):
        for variant, result in self.same(self.command('read', 'deep', program('libpreload_past.so')), seeds=SEEDS):
            if 'ALLOGRAFT_DISABLE' not in variant:
                self.assertEqual(result.report()['coverage']['bypassing'], ['libpreload_past.so'])

    @but_under_tsan
    def test_every_name(self):
        for name in SUBMIT:
            with self.subTest(name=name):
                wrong, report = self.wrong(self.command('fill', 'late', self.named(name)))
                self.assertEqual((wrong, report['coverage']['unseen']), ([], [name]))

    @but_under_tsan
    def test_harmless_names(self):
        for name in HARMLESS:
            with self.subTest(name=name):
                report = self.wrong(self.command('read', 'early', self.named(name)))[1]
                self.assertEqual(report['coverage']['unseen'], [])
                self.assertGreater(report['frees']['watched'], 0)

    def reached(self, modules, *paths, when='late'):
        return self.wrong(self.command('read', when, *paths), {'FAKE_MODULES': ' %s ' % modules}, (FAKER, LIBRARY))

    @unittest.skipIf(RUNTIME, 'the sanitizer starts by calls that the faker is not ready for')
    def test_memory_that_devices_reach(self):
        for name, module in REACH:
            for when in ('early', 'late'):
                with self.subTest(name=name, when=when):
                    wrong, report = self.reached('ext4 ' + module, self.named(name), when=when)
                    self.assertEqual((wrong, report['coverage']['unseen']), ([], [name]))
                    self.assertGreater(report['frees']['drain_reasons']['direct_access'], 5)
                    wrong, report = self.reached('ext4 nvidia', self.named(name), when=when)
                    self.assertEqual(report['coverage']['unseen'], [])

    @unittest.skipIf(RUNTIME, 'the sanitizer starts by calls that the faker is not ready for')
    def test_verbs_of_nccl(self):
        verbs, other = self.named('libibverbs.so.1'), self.named('libother.so')
        nccl = self.named('libnccl.so.2')
        provider = self.named('libmlx5-rdmav34.so', 'libpreload_rdma_user.so', 'libibverbs.so.1')
        plugin = self.named('libnccl-net.so', 'libpreload_rdma_user.so', 'libibverbs.so.1')
        user = self.named('libuct_ib.so.0', 'libpreload_rdma_user.so', 'libibverbs.so.1')
        os.environ['LD_LIBRARY_PATH'] = self.folder + os.pathsep + os.environ.get('LD_LIBRARY_PATH', '')
        for libraries, unseen in (((nccl, verbs, provider, plugin, other), []),
                                  ((nccl, verbs, user, other), ['libibverbs.so.1']),
                                  ((user, nccl, other), ['libibverbs.so.1']),
                                  ((verbs, provider, other), ['libibverbs.so.1'])):
            with self.subTest(libraries=libraries):
                wrong, report = self.reached('nvidia_peermem', *libraries)
                self.assertEqual(report['coverage']['unseen'], unseen)
                self.assertEqual(not wrong, bool(unseen))


if __name__ == '__main__':
    main()
