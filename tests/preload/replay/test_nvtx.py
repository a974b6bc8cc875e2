# NVTX: its ranges and marks are counted, it answers as without us, and where nobody asks for it
# nothing of it is touched.

import os
import subprocess
import tempfile
import unittest

from harness import LIBRARY, RUNTIME, SEEDS, Case, clean_environment, main, preloaded, program, run

VARIABLE = 'NVTX_INJECTION64_PATH'
COMMAND = os.environ['TEST_COMMAND']
PROGRAMS = [p for p in (program('preload_nvtx'), program('preload_nvtx_headers')) if os.path.exists(p)]
ALONE = [p for p in (program('preload_nvtx_alone'), program('preload_nvtx_headers_alone'))
         if os.path.exists(p)]
SCHRITT = 'Schritt \u00fc \u20ac \U0001f600'

# What nvtx.c says, by the domain it says it in.
DEFAULT, LIB, OTHER = 9 + 5, 5, 5


def settings(name):
    return {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_ITERATION': 'nvtx:' + name}


class Ranges(Case):
    def counted(self, path, name, *args):
        found = self.same([path, *args], variants=[settings(name)])
        return found[0][1].report()['replay']['marks']

    def test_by_name_and_domain(self):
        for path in PROGRAMS:
            for name, expected in (('step', DEFAULT + LIB + OTHER), ('step@', DEFAULT), ('step@Lib', LIB),
                                   ('st?p@L*', LIB), ('step@Other \u00e9', OTHER), ('step@*', DEFAULT + LIB + OTHER),
                                   ('step@nowhere', 0), ('other', 9), ('STEP', 0), (SCHRITT, 2),
                                   ('steps', LIB), ('step*@Lib', 2 * LIB), ('nothing', 0)):
                with self.subTest(program=path, name=name):
                    self.assertEqual(self.counted(path, name), expected)

    def test_before_and_behind_the_first_call(self):
        for path in PROGRAMS:
            self.assertEqual(self.counted(path, 'step@', 'again'), 2 * DEFAULT)

    def test_begin_the_graphs(self):
        """A graph ends where an iteration of eleven operations does."""
        for path in PROGRAMS:
            for _, result in self.same([path, 'iteration'], seeds=SEEDS, variants=[
                    dict(settings('step'), ALLOGRAFT_GRAPH_SEGMENT='16', ALLOGRAFT_GRAPH_PROFIT='0', ALLOGRAFT_GRAPH_WARMUP='2',
                         ALLOGRAFT_GRAPH_HOLD_US='60000000')]):
                replay = result.report()['replay']
                self.assertEqual(replay['marks'], 60)
                self.assertGreater(replay['graph_launches'], 20)
                self.assertEqual(replay['replayed'], 11 * replay['graph_launches'])
                self.assertGreater(replay['replayed'], 600)
                self.assertEqual(result.out, '0 wrong\n')

    def test_through_the_command(self):
        for path in PROGRAMS:
            native = run([path])
            done = run([COMMAND, 'run', '--graph', 'all', '--set', 'graph_iteration=nvtx:step', '--', path],
                       {'ALLOGRAFT_STATS': '@FOLDER@/stats.json'})
            self.assertEqual(done.status, 0, done.err)
            self.assertGreater(done.report()['replay']['marks'], 0)
            self.assertEqual(done.out, native.out)

    def test_nobody_asks(self):
        for path in PROGRAMS:
            for variant in ({'ALLOGRAFT_GRAPH': 'all'}, {}, {'ALLOGRAFT_GRAPH_ITERATION': 'nvtx:step'},
                            dict(settings('step'), ALLOGRAFT_GRAPH='off')):
                for _, result in self.same([path], variants=[variant]):
                    self.assertEqual(result.report()['replay']['marks'], 0)

    def test_without_the_driver(self):
        self.assertNotEqual(ALONE, [])
        for path in ALONE:
            self.same([path], variants=[{}, settings('step'), {'ALLOGRAFT_GRAPH': 'name:*'},
                                        dict(settings('step'), ALLOGRAFT_DISABLE='1'),
                                        {'ALLOGRAFT_GRAPH': 'nonsense', 'ALLOGRAFT_GRAPH_ITERATION': 'nvtx:step'}])


class Names(Case):
    def test_mark_streams(self):
        for path in PROGRAMS:
            for graph, expected in (('name:train*', 5), ('name:validate', 1), ('name:train ?', 2), ('name:x', 0),
                                    ('name:train rt w,name:validate', 2)):
                with self.subTest(program=path, graph=graph):
                    for _, result in self.same([path], variants=[{'ALLOGRAFT_GRAPH': graph}]):
                        replay = result.report()['replay']
                        self.assertEqual(replay['state'], 'on')
                        self.assertEqual(replay['streams_marked'], expected)


    def test_go_and_come_back(self):
        for path in PROGRAMS:
            for _, result in self.same([path, 'rename'], seeds=SEEDS,
                                       variants=[{'ALLOGRAFT_GRAPH': 'name:train', 'ALLOGRAFT_GRAPH_PROFIT': '0',
                                                  'ALLOGRAFT_GRAPH_HOLD_US': '60000000'}]):
                replay = result.report()['replay']
                self.assertEqual(replay['streams_marked'], 3)
                self.assertGreater(replay['replayed'], 100)
                self.assertEqual(replay['flushes']['call'], 3)
                self.assertEqual([line for line in result.out.splitlines() if not line.endswith(': 0 wrong')], [])


def seen(variables, preload=LIBRARY, cwd=None):
    """What a program finds in the variable, preloaded."""
    env = clean_environment()
    env.update(variables)
    env['LD_PRELOAD'] = ':'.join(RUNTIME + [preload])
    done = subprocess.run(['/bin/sh', '-c', 'printf "%s" "$' + VARIABLE + '"'], env=env, cwd=cwd,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    return done.stdout if not done.stderr else done.stdout + '\n' + done.stderr


class Variable(unittest.TestCase):
    def test_is_set_where_it_is_needed(self):
        for variables in (settings('x'), {'ALLOGRAFT_GRAPH': 'legacy,Name:x'}):
            self.assertEqual(seen(variables), os.path.realpath(LIBRARY), variables)

    def test_is_set_where_a_file_says_the_rest(self):
        with tempfile.NamedTemporaryFile('w') as file:
            variables = {'ALLOGRAFT_CONFIG': file.name, 'ALLOGRAFT_GRAPH_ITERATION': 'NVTX:x'}
            self.assertEqual(seen(variables), '')
            file.write('GRAPH = all\n')
            file.flush()
            self.assertEqual(seen(variables), os.path.realpath(LIBRARY))
            self.assertEqual(seen(dict(variables, ALLOGRAFT_GRAPH='off')), '')

    def test_is_not_set_elsewhere(self):
        for variables in ({}, {'ALLOGRAFT_GRAPH': 'all'}, {'ALLOGRAFT_GRAPH_ITERATION': 'nvtx:x'},
                          dict(settings('x'), ALLOGRAFT_DISABLE='1'), {'ALLOGRAFT_GRAPH': 'off'},
                          dict(settings('x'), ALLOGRAFT_GRAPH='off'), {'ALLOGRAFT_CONFIG': '/a'}):
            self.assertEqual(seen(variables), '', variables)

    def test_is_kept(self):
        self.assertEqual(seen(dict(settings('x'), **{VARIABLE: '/other.so'})), '/other.so')

    def test_is_absolute(self):
        folder, name = os.path.split(LIBRARY)
        self.assertEqual(seen(settings('x'), './' + name, folder), os.path.realpath(LIBRARY))


class Beside(Case):
    def test_another_library_is_told(self):
        """One line, and natively NVTX finds nothing at that place either."""
        for path in PROGRAMS:
            result = preloaded([path], dict(settings('step'), **{VARIABLE: '/no/such.so'}))
            self.assertEqual(result.status, 0)
            self.assertEqual(len(result.err.splitlines()), 1, result.err)
            self.assertIn(VARIABLE + '=/no/such.so', result.err)
            self.assertEqual(result.report()['replay']['marks'], 0)

    def test_a_file_asks_and_nobody_set_it(self):
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as config:
            config.write('GRAPH = all\nGRAPH_ITERATION = nvtx:step\n')
            config.flush()
            for path in PROGRAMS:
                result = preloaded([path], {'ALLOGRAFT_CONFIG': config.name})
                self.assertEqual(len(result.err.splitlines()), 1, result.err)
                self.assertIn('set %s=%s' % (VARIABLE, os.path.realpath(LIBRARY)), result.err)
                result = preloaded([path], {'ALLOGRAFT_CONFIG': config.name, VARIABLE: LIBRARY})
                self.assertEqual(result.err, '')
                self.assertEqual(result.report()['replay']['marks'], DEFAULT + LIB + OTHER)

    @unittest.skipIf(RUNTIME, 'a sanitizer must be in the program before a library that is built with it')
    def test_opened_where_it_is_not_preloaded(self):
        for path in PROGRAMS + ALONE:
            native = run([path])
            opened = run([path], dict(settings('step'), **{VARIABLE: LIBRARY}))
            self.assertEqual((opened.status, opened.out, opened.err), (native.status, native.out, native.err))


if __name__ == '__main__':
    main()
