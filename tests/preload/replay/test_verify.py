# ALLOGRAFT_GRAPH_VERIFY runs launches both ways: the program sees what it sees natively, and right
# graphs are found right. ALLOGRAFT_GRAPH_DUMP writes a file for each graph that is built.

import os
import tempfile

from harness import Case, main, preloaded, program

HELD = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0',
        'ALLOGRAFT_GRAPH_HOLD_US': '60000000', 'SIM_IDLE_MS': '1'}
PARTS = ('exactly', 'diverging', 'uploads', 'pinned', 'legacy', 'events', 'streams', 'contexts',
         'allocating', 'host')


class Verify(Case):
    def test_same(self):
        n_same = n_skipped = 0
        for part in PARTS:
            for every in (1, 3):
                settings = dict(HELD, ALLOGRAFT_GRAPH_VERIFY=str(every))
                for _, result in self.same([program('preload_replay'), part], variants=[settings]):
                    replay = result.report()['replay']
                    n_same += replay['verified_same']
                    n_skipped += replay['verify_skipped']
                    self.assertEqual(replay['verified_different'], 0)
                    self.assertEqual(replay['verified_same'] + replay['verify_skipped'],
                                     replay['graph_launches'] // every)
        self.assertGreater(n_same, 10)
        self.assertGreater(n_skipped, 0)  # what the host can see is not run twice

    def test_dumped(self):
        with tempfile.TemporaryDirectory() as folder:
            result = preloaded([program('preload_replay'), 'exactly'],
                               dict(HELD, ALLOGRAFT_GRAPH_DUMP=folder))
            names = os.listdir(folder)
            self.assertEqual(len(names), result.report()['replay']['graphs_built'])
            self.assertGreater(len(names), 0)
            for name in names:
                with open(os.path.join(folder, name), encoding='utf-8') as file:
                    self.assertTrue(file.read().startswith('digraph'), name)

    def test_folder_that_is_not_there(self):
        result = preloaded([program('preload_replay'), 'exactly'],
                           dict(HELD, ALLOGRAFT_GRAPH_DUMP='/nonexistent'))
        self.assertEqual(result.err.count('ALLOGRAFT_GRAPH_DUMP=/nonexistent: '), 1)


if __name__ == '__main__':
    main()
