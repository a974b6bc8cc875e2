# The report lies where it was asked for, follows its schema and counts what the program did.

import json
import os

from harness import POLICIES, Case, but_under_tsan, main, preloaded, program, run


class Reports(Case):
    COMMAND = program('preload_lookup_linked')

    def test_where(self):
        for stats, wanted in (('a.%p.json', r'^a\.\d+\.json$'),
                              ('b.%n.json', r'^b\.preload_lookup_linked\.json$'),
                              ('c.%h.json', r'^c\..+\.json$'), ('d.%n.%p.txt', r'\.\d+\.txt$'),
                              ('e.json', r'^e\.json$'), ('f', r'^f$')):
            with self.subTest(stats=stats):
                result = preloaded(self.COMMAND, stats=stats)
                self.assertEqual(len(result.files), 1, result.err)
                (name, text), = result.files.items()
                self.assertRegex(name, wanted)
                self.assertNotIn('%', name)
                self.assertEqual(result.err, '')
                if name.endswith('.json'):
                    self.assertEqual(json.loads(text)['schema'], 'allograft-stats/1')
                else:
                    self.assertIn('allocations redirected', text)

    def test_rank(self):
        for variable in ('RANK', 'OMPI_COMM_WORLD_RANK', 'PMI_RANK', 'SLURM_PROCID'):
            result = preloaded(self.COMMAND, {variable: '3'}, stats='r.%r.json')
            with self.subTest(variable=variable):
                self.assertEqual(sorted(result.files), ['r.3.json'])
                self.assertEqual(str(result.report()['process']['rank']), '3')

    def test_pid_is_the_programs(self):
        result = preloaded(self.COMMAND)
        (name, _), = result.files.items()
        self.assertEqual('stats.%d.json' % result.report()['process']['pid'], name)

    def test_standard_error(self):
        native = run(self.COMMAND)
        for settings in ({}, {'ALLOGRAFT_STATS': 'stderr'}, {'ALLOGRAFT_STATS': 'full'}):
            result = preloaded(self.COMMAND, settings, stats=None)
            self.assertEqual((native.out, result.files), (result.out, {}))
            lines = result.err.splitlines()
            self.assertRegex(lines[0], r'^allograft .*\(process \d+\)')
            self.assertEqual([line[:13] for line in lines[1:4]], ['  gained:    ', '  held back: ', '  try:       '])
            self.assertEqual('  coverage' in lines, settings.get('ALLOGRAFT_STATS') == 'full', result.err)
            self.assertEqual('ALLOGRAFT_STATS=full' in result.err, settings.get('ALLOGRAFT_STATS') != 'full', result.err)

    def test_a_file_has_everything(self):
        result = preloaded(self.COMMAND, stats='stats.txt')
        (text,) = result.files.values()
        self.assertIn('\n  gained:    ', text)
        self.assertIn('\n  coverage\n', text)

    def test_the_verdict_is_that_of_the_json(self):
        self.maxDiff = None
        result = preloaded(self.COMMAND, {'ALLOGRAFT_FREE': 'sync', 'ALLOGRAFT_POLICY': 'pool'})
        verdict = result.report()['verdict']
        self.assertIn('(most often: ALLOGRAFT_FREE=sync)', verdict['held_back'])
        self.assertEqual(verdict['try'], 'ALLOGRAFT_FREE=auto')
        text = preloaded(self.COMMAND, {'ALLOGRAFT_FREE': 'sync', 'ALLOGRAFT_POLICY': 'pool'}, stats=None).err
        self.assertEqual([line.split(':', 1)[1].strip() for line in text.splitlines()[1:5]], list(verdict.values()))

    def test_off(self):
        result = preloaded(self.COMMAND, {'ALLOGRAFT_STATS': 'off'}, stats=None)
        self.assertEqual((result.err, result.files), ('', {}))

    def test_place_that_cannot_be_written(self):
        native = run(self.COMMAND)
        result = preloaded(self.COMMAND, {'ALLOGRAFT_STATS': '/no/such/folder/x.json'}, stats=None)
        self.assertEqual((native.status, native.out), (result.status, result.out))
        self.assertIn('/no/such/folder/x.json', result.err)
        self.assertEqual(len(result.err.splitlines()), 1)

    def test_standard_error_closed(self):
        native = run(['/bin/sh', '-c', 'exec "$0" 2>&-', self.COMMAND])
        result = preloaded(['/bin/sh', '-c', 'exec "$0" 2>&-', self.COMMAND], stats=None)
        self.assertEqual((native.status, native.out), (result.status, result.out))

    def test_figures(self):
        """What the report counts is what the program did (workload.h)."""
        for policy in POLICIES:
            name = policy['ALLOGRAFT_POLICY']
            with self.subTest(policy=name):
                report = preloaded(self.COMMAND, policy).report()
                self.assertEqual({s['name']: s['value'] for s in report['settings']}
                                 ['ALLOGRAFT_POLICY'], name)
                if name == 'native':
                    continue
                device, = report['devices']
                placement = device['placements']['native' if name == 'auto' else name]
                self.assertEqual((placement['allocs'], placement['frees']), (6, 6))
                self.assertEqual(placement['current_bytes'], 0)
                self.assertEqual(placement['current_blocks'], 0)
                self.assertGreaterEqual(placement['peak_bytes'], 4 * 5000 + 3000)
                self.assertEqual(sum(b['count'] for b in placement['size_histogram']), 6)

    def test_loading_the_driver_is_not_using_a_gpu(self):
        # The look-ups pass by, as a library's with RTLD_DEEPBIND do; no GPU was opened, so there is
        # nothing to warn of.
        command = program('preload_lookup_deepbind')
        self.assertEqual(run(command).out, preloaded(command, stats=None).out)
        self.assertEqual(preloaded(command, stats=None).err, '')

    @but_under_tsan
    def test_the_remedy_is_named_where_no_call_came(self):
        device = '/dev/nvidia-uvm-of-no-gpu'  # by its open descriptor the library knows that CUDA was used
        try:
            open(device, 'w', encoding='utf-8').close()
        except OSError as error:
            self.skipTest(str(error))
        self.addCleanup(os.unlink, device)
        command = ['sh', '-c', 'exec "$0" 9<' + device, program('preload_lookup_deepbind')]
        says = 'allograft: this process used CUDA, but none of its calls came through: '
        line, = preloaded(command, stats=None).err.splitlines()
        self.assertTrue(line.startswith(says), line)
        self.assertIn('`allograft run --audit` catches them', line)
        # Where it is on already, that is no remedy; a name that leads nowhere does nothing else.
        audited = preloaded(command, {'LD_AUDIT': '/no/such/liballograft-audit.so'}, stats=None).err.splitlines()
        line, = [line for line in audited if line.startswith('allograft: ')]
        self.assertNotIn('--audit', line)


if __name__ == '__main__':
    main()
