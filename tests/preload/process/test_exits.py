# However a process ends, it ends as natively, its last work done, and its report is whole.

import json

from harness import SEEDS, Case, main, preloaded, program

EXITS = ('return', 'exit', '_exit', '_Exit', 'quick_exit', 'thread')
EXECS = ('execv', 'execve', 'execvp', 'execvpe', 'execl', 'execlp', 'execle', 'fexecve', 'execveat', 'execveat_folder',
         'execveat_open')
FORKS = ('fork_exit', 'fork__exit', 'fork_exec', 'fork_abort')
# What the device prints comes out by the end of the process, and may come out after lines that the
# host printed once the free had returned.
SPOKEN = '^kernel'
# A process that is killed has printed what it has printed.
KILLED = ('abort', 'kill', 'terminate')


class Exits(Case):
    def test_ends(self):
        for way in EXITS:
            for variant, result in self.same([program('preload_exits'), way], seeds=SEEDS):
                with self.subTest(way=way, settings=variant):
                    if 'ALLOGRAFT_DISABLE' in variant:
                        continue
                    report = result.report()
                    self.assertEqual(report['schema'], 'allograft-stats/1')
                    self.assertEqual(report['coverage']['hooks']['cuMemFree_v2'], 1)

    def test_ended_by(self):
        for way, word in (('return', 'exit'), ('exit', 'exit'), ('_exit', '_exit'),
                          ('execv', 'exec')):
            with self.subTest(way=way):
                result = preloaded([program('preload_exits'), way])
                self.assertEqual(result.report()['process']['ended_by'], word)

    def test_exec(self):
        for way in EXECS:
            for variant, result in self.same([program('preload_exits'), way], seeds=SEEDS):
                with self.subTest(way=way, settings=variant):
                    if 'ALLOGRAFT_DISABLE' not in variant:
                        # The new program has no report: one file, the old one's.
                        self.assertEqual(result.report()['process']['program'], 'preload_exits')

    def test_exec_fails(self):
        for variant, result in self.same([program('preload_exits'), 'exec_fails'], drop=SPOKEN):
            self.assertEqual(result.out.count('kernel: 42'), 1)
            if 'ALLOGRAFT_DISABLE' not in variant:
                self.assertEqual(result.report()['coverage']['hooks']['cuMemFree_v2'], 1)

    def test_forked_child(self):
        for way in FORKS:
            for variant, result in self.same([program('preload_exits'), way], drop=SPOKEN):
                with self.subTest(way=way, settings=variant):
                    self.assertEqual(result.out.count('kernel: 42'), 1)
                    if 'ALLOGRAFT_DISABLE' in variant:
                        continue
                    # The parent allocated twice, the child never: if the child wrote a report,
                    # it has not the parent's counts.
                    counts = [r['coverage']['hooks'].get('cuMemAlloc_v2', 0)
                              for r in result.reports()]
                    self.assertEqual([n for n in counts if n != 0], [2])

    def test_forked_child_leaves_the_parents_file(self):
        for way in FORKS:
            with self.subTest(way=way):
                result = preloaded([program('preload_exits'), way], stats='stats.json')
                self.assertEqual(result.report()['coverage']['hooks']['cuMemAlloc_v2'], 2)

    def test_killed(self):
        for way in KILLED:
            results = self.same([program('preload_exits'), way], drop=SPOKEN, signal=True)
            for variant, result in results:
                for text in result.files.values():
                    with self.subTest(way=way, settings=variant):
                        json.loads(text)

    def test_ends_before_cuda(self):
        for _, result in self.same([program('preload_exits'), 'early']):
            self.assertEqual(result.files, {})


if __name__ == '__main__':
    main()
