# What the program's own executable graphs cost is in the report, as the program itself measures it.

from harness import Case, main, preloaded, program

PROGRAM = program('preload_own_graphs')
KEYS = ('used_bytes', 'used_high_bytes', 'reserved_bytes', 'reserved_high_bytes')


class OwnGraphs(Case):
    def run_mode(self, mode, settings=None, **more):
        result = preloaded([PROGRAM, mode], settings, **more)
        self.assertEqual(result.status, 0, result.err)
        told = dict(line.split() for line in result.out.splitlines())
        return {key: int(value) for key, value in told.items()}, result

    def counts(self, graphs):
        return [graphs[key] for key in ('instantiated', 'failed', 'destroyed', 'live', 'live_peak')]

    def test_one_thread(self):
        for upload in ('0', '5000'):
            for policy in ('auto', 'pool', 'managed'):
                with self.subTest(upload=upload, policy=policy):
                    told, result = self.run_mode('single', {'SIM_UPLOAD': upload, 'ALLOGRAFT_POLICY': policy})
                    graphs = result.report()['own_graphs']
                    self.assertEqual(self.counts(graphs), [4, 0, 2, 2, 4])
                    device, = graphs['devices']
                    self.assertGreaterEqual(told['instantiated'], 4 * 2 << 20)
                    self.assertEqual(told['launched'] > 0, upload != '0')
                    self.assertEqual((device['instantiation_bytes'], device['first_launch_bytes']),
                                     (told['instantiated'], told['launched']))

    def test_with_replay(self):
        told, result = self.run_mode('single', {'SIM_UPLOAD': '5000', 'ALLOGRAFT_GRAPH': 'all'})
        device, = result.report()['own_graphs']['devices']
        self.assertEqual((device['instantiation_bytes'], device['first_launch_bytes']),
                         (told['instantiated'], told['launched']))

    def test_threads_at_once(self):
        for seed in range(1, 6):
            told, result = self.run_mode('threads', {'SIM_SEED': str(seed)})
            graphs = result.report()['own_graphs']
            self.assertEqual(self.counts(graphs), [96, 32, 0, 96, 96])
            self.assertEqual(graphs['devices'][0]['instantiation_bytes'], told['instantiated'])

    def test_devices(self):
        told, result = self.run_mode('devices', {'SIM_DEVICES': '2'})
        graphs = result.report()['own_graphs']
        self.assertEqual(self.counts(graphs), [4, 0, 0, 4, 4])
        self.assertEqual({row['device']: row['instantiation_bytes'] for row in graphs['devices']},
                         {0: told['instantiated-0'], 1: told['instantiated-1']})
        self.assertGreater(told['instantiated-1'], told['instantiated-0'])

    def test_memory_nodes(self):
        told, result = self.run_mode('nodes')
        device, = result.report()['own_graphs']['devices']
        self.assertEqual({key: device[key] for key in KEYS}, told)
        self.assertEqual((told['used_bytes'], told['reserved_bytes']), (10 << 20, 10 << 20))

    def test_refused(self):
        _, result = self.run_mode('refused', {'ALLOGRAFT_POLICY': 'native'})
        graphs = result.report()['own_graphs']
        self.assertEqual(self.counts(graphs), [0, 2, 0, 0, 0])
        self.assertEqual([row['instantiation_bytes'] for row in graphs['devices']], [0])

    def test_fork(self):
        told, result = self.run_mode('fork')
        by_live = {report['own_graphs']['live']: report['own_graphs'] for report in result.reports()}
        self.assertEqual(sorted(by_live), [0, 1])
        self.assertEqual(by_live[0]['devices'], [])
        self.assertEqual(by_live[1]['devices'][0]['instantiation_bytes'], told['instantiated'])

    def test_text(self):
        _, result = self.run_mode('nodes', stats='stats.%p.txt')
        text, = result.files.values()
        self.assertRegex(text, r"the program's own executable graphs\n +instantiated +1\n +most at once +1\n"
                               r' +not destroyed +1\n')
        self.assertRegex(text, r'\n    of memory nodes, most held by the driver +10\.0+ MiB\n')

        told, result = self.run_mode('single', stats='stats.%p.txt')
        text, = result.files.values()
        self.assertRegex(text, r'\n    of device 0\n    taken by instantiations +%.2f MiB\n' % (told['instantiated'] / (1 << 20)))
        self.assertNotIn('memory nodes', text)

    def test_nothing_is_asked_unless_wanted(self):
        for mode in ('off', 'stderr'):
            _, wanted = self.run_mode('single', {'SIM_LOG': '1'})
            _, result = self.run_mode('single', {'SIM_LOG': '1', 'ALLOGRAFT_STATS': mode}, stats=None)
            self.assertLess(result.err.count('cuMemGetInfo'), wanted.err.count('cuMemGetInfo'))
            self.assertGreater(wanted.err.count('cuDeviceGetGraphMemAttribute'), 0)
            self.assertEqual(result.err.count('cuDeviceGetGraphMemAttribute'), 0)


if __name__ == '__main__':
    main()
