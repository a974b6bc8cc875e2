# Children, daemons, tight limits and errors that stay: the program does what it does natively.

import json
import os
import re
import subprocess
import tempfile
import unittest

from harness import COUNTERS, POLICIES, Case, main, preloaded, program, run

# The kernel's own lines aside, a killed or forked process may print in another order.
SETTINGS = {'SIM_VIOLATION': 'count'}
LIFE = program('preload_lives')
AS_NATIVELY = ('fork_first', 'fork_asks', 'fork_idle', 'spawn', 'closed_before', 'closed_after',
               'little_space', 'no_locked', 'umask', 'threads_end', 'frees_late', 'frees_at_exit')


class Lives(Case):
    def test_as_natively(self):
        for way in AS_NATIVELY:
            for variant, result in self.same([LIFE, way], settings=SETTINGS):
                with self.subTest(way=way, settings=variant):
                    if 'ALLOGRAFT_DISABLE' in variant or way in ('fork_first', 'fork_asks'):
                        continue
                    self.assertTrue(result.report()['coverage']['intercepted'])

    def test_plug_in(self):
        for _, result in self.same([LIFE, 'plug_in'], settings=SETTINGS):
            self.assertIn('closed: 0', result.out)

    def test_fork_among_busy_threads(self):
        for _, result in self.same([LIFE, 'fork_busy'], variants=POLICIES, settings=SETTINGS):
            self.assertEqual(result.out.count('exited 1 with 7'), 30)

    def test_fork_beside_the_loader(self):
        for way in ('fork_looking', 'fork_loading'):
            self.same([LIFE, way], variants=[{}, {'ALLOGRAFT_POLICY': 'pool'}], settings=SETTINGS)

    def test_a_child_that_asks_has_its_own_report(self):
        result = preloaded([LIFE, 'fork_asks'])
        hits = sorted(r['coverage']['hooks']['cuMemAlloc_v2'] for r in result.reports())
        self.assertEqual(hits, [1, 3])
        child = next(r for r in result.reports() if r['coverage']['hooks']['cuMemAlloc_v2'] == 1)
        self.assertIn('forked', child['warnings'][0])

    def test_an_idle_child_has_none(self):
        # It would tell of nothing, on a stderr that it shares with its parent.
        result = preloaded([LIFE, 'fork_idle'], stats=None)
        self.assertEqual(result.err.count('(process '), 1)

    def test_daemon(self):
        # Its stderr is closed; a report in a file is written all the same.
        for variant, result in self.same([LIFE, 'daemon'], settings=SETTINGS):
            if 'ALLOGRAFT_DISABLE' not in variant:
                self.assertEqual(result.report()['coverage']['hooks']['cuMemAlloc_v2'], 2)

    def test_errors_that_stay(self):
        for way in ('broken', 'broken_reset'):
            for variant, result in self.same([LIFE, way], settings=SETTINGS, quiet=False):
                with self.subTest(way=way, settings=variant):
                    self.assertIn('synchronise: 700', result.out)
                    if 'ALLOGRAFT_DISABLE' not in variant:
                        self.assertEqual(result.report()['process']['ended_by'], 'exit')

    def test_the_first_error_that_stays_is_named(self):
        native = run([LIFE, 'broken'], SETTINGS)
        for on_error, call in (('note', 'cuMemAlloc_v2'), ('report', 'cuCtxSynchronize')):
            for settings in ({}, {'ALLOGRAFT_GRAPH': 'all'}, {'ALLOGRAFT_POLICY': 'native'}):
                settings = dict(SETTINGS, **settings, ALLOGRAFT_ON_ERROR=on_error)
                result = preloaded([LIFE, 'broken'], settings)
                self.assertEqual((result.status, result.out), (native.status, native.out))
                first = result.report()['first_error']
                if 'ALLOGRAFT_GRAPH' not in settings:  # which sees waits itself, and asks when work is submitted
                    self.assertEqual(first['call'], call, settings)
                self.assertEqual(first['code'], 700)
                self.assertEqual(result.err.count('allograft: cu'), on_error == 'report')
        result = preloaded([LIFE, 'broken'], dict(SETTINGS, ALLOGRAFT_ON_ERROR='report'), stats=None)
        said = r'cuCtxSynchronize\S* returned 700 \(an illegal memory access\) in thread \d+, .* after the start; .*\n'
        self.assertEqual(len(re.findall('(?m)^allograft: ' + said, result.err)), 1, result.err)
        self.assertEqual(len(re.findall('(?m)^  first error: ' + said, result.err)), 1, result.err)
        # Errors of one call are not among them, and where none came there is nothing to say.
        self.assertNotIn('first_error', preloaded([LIFE, 'fork_idle'], {'ALLOGRAFT_ON_ERROR': 'exit'}).reports()[0])

    def test_what_was_launched_before_it_is_named(self):
        native = run([LIFE, 'launched'], SETTINGS)
        for settings in ({}, {'ALLOGRAFT_GRAPH': 'all'}, {'ALLOGRAFT_FREE': 'sync'}, {'ALLOGRAFT_PREFETCH': 'launch'},
                         {'ALLOGRAFT_POLICY': 'native', 'ALLOGRAFT_ON_ERROR': 'report'},
                         {'ALLOGRAFT_ON_ERROR': 'report'}):
            with self.subTest(settings=settings):
                result = preloaded([LIFE, 'launched'], dict(SETTINGS, **settings))
                self.assertEqual((result.status, result.out), (native.status, native.out))
                first = result.report()['first_error']
                self.assertFalse(first['launches_unseen'])
                own = [row for row in first['launched'] if row['thread'] == first['thread']]
                self.assertEqual([(row['kind'], row.get('name')) for row in own],
                                 [('function', 'fill'), ('graph', None), ('function', 'check')] + [('function', 'fill')] * 5)
                self.assertEqual([row['stream'] == own[0]['stream'] for row in own], [True] * 3 + [False] * 5)
                self.assertEqual(own[3]['stream'], '0x0')
                others = first['launched'][len(own):]
                self.assertEqual([(row['name'], row['stream']) for row in others], [('speak', '0x2')] * 2)
                self.assertNotIn(first['thread'], [row['thread'] for row in others])
                said = re.findall('(?m)^allograft: launched before it in thread [0-9]+: (.*)', result.err)
                self.assertEqual(len(said), 10 if 'ALLOGRAFT_ON_ERROR' in settings else 0, result.err)
        text = preloaded([LIFE, 'launched'], SETTINGS, stats=None).err
        self.assertRegex(text, r'(?m)^  first error: .*\n    launched before it in thread \d+, the latest first\n'
                               r'      fill on stream 0x[0-9a-f]+\n      graph 0x[0-9a-f]+ on stream 0x[0-9a-f]+\n'
                               r'      check on stream 0x[0-9a-f]+\n(      fill on the default stream\n){5}'
                               r"    launched before it in thread \d+, the latest first\n(      speak on the thread's default stream\n){2}")

    def test_the_command_shows_what_was_launched(self):
        result = preloaded([LIFE, 'launched'], SETTINGS)
        (name, report), = result.files.items()
        with tempfile.TemporaryDirectory() as folder:
            path, other = os.path.join(folder, name), os.path.join(folder, 'of_another_process.json')
            for where, text in ((path, report), (other, re.sub(r'"pid":\d+', '"pid":1', report))):
                with open(where, 'w', encoding='utf-8') as f:
                    f.write(text)
            def shown(*words):
                shows = subprocess.run([os.environ['TEST_COMMAND'], 'report', *words], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, timeout=60, check=False)
                if 'made without jansson' in shows.stderr:
                    self.skipTest('the command was built without jansson')
                self.assertEqual((shows.returncode, shows.stderr), (0, ''))
                return shows.stdout
            self.assertEqual(json.loads(shown('--json', path))['first_error'], result.report()['first_error'])
            for text in (shown(path), shown(path, other)):
                self.assertEqual(len(re.findall('(?m)^      fill on the default stream$', text)), 5, text)
            page = shown('--html', '-', path)
            self.assertEqual(page.count('<li><code>fill</code> on the default stream</li>'), 5)
            self.assertEqual(len(re.findall(r'<p>Launched before it in thread \d+, the latest first:</p>\n<ol>', page)), 2)

    def test_a_launch_that_is_refused_did_not_come_before(self):
        # "fill" that goes astray is the last that was launched; the next is what finds the error.
        result = preloaded([LIFE, 'launched_after'], SETTINGS)
        self.assertEqual(result.out, run([LIFE, 'launched_after'], SETTINGS).out)
        first = result.report()['first_error']
        self.assertEqual(first['call'], 'cuLaunchKernel')
        self.assertEqual([row['name'] for row in first['launched']], ['fill', 'check'])

    def test_a_function_of_a_kernel_is_named(self):
        result = preloaded([LIFE, 'kernel_launched'], SETTINGS)
        self.assertEqual(result.out, run([LIFE, 'kernel_launched'], SETTINGS).out)
        self.assertEqual([row['name'] for row in result.report()['first_error']['launched']], ['fill', 'speak'])

    def test_code_that_is_gone_is_not_asked_for(self):
        result = preloaded([LIFE, 'unloaded_launched'], SETTINGS)
        self.assertEqual((result.status, result.out), (3, run([LIFE, 'unloaded_launched'], SETTINGS).out), result.err)
        self.assertEqual([row['name'] for row in result.report()['first_error']['launched']], ['fill'])

    def test_launches_that_went_past_us_are_said_to_have(self):
        settings = dict(SETTINGS, ALLOGRAFT_POLICY='native')
        for way, unseen in (('launched', False), ('looked_up', True)):
            with self.subTest(way=way):
                result = preloaded([LIFE, way], settings)
                first = result.report()['first_error']
                self.assertEqual((first['launches_unseen'], first['launched'] == []), (True, unseen))
                text = preloaded([LIFE, way], settings, stats=None).err
                self.assertEqual('\n    what was launched before it went straight to the driver, unseen; with '
                                 'ALLOGRAFT_ON_ERROR=report it is listed here\n' in text, unseen, text)
        first = preloaded([LIFE, 'looked_up'], dict(settings, ALLOGRAFT_ON_ERROR='report')).report()['first_error']
        self.assertEqual([row['name'] for row in first['launched']], ['fill'])
        self.assertFalse(first['launches_unseen'])

    def test_a_program_that_would_compute_nonsense_is_ended(self):
        for settings in ({}, {'ALLOGRAFT_GRAPH': 'all'}, {'ALLOGRAFT_WAITS': '1', 'ALLOGRAFT_STACKS': '4'}):
            result = preloaded([LIFE, 'broken'], dict(SETTINGS, **settings, ALLOGRAFT_ON_ERROR='exit'))
            self.assertEqual((result.status, result.out), (70, ''), result.err)
            report = result.report()
            self.assertEqual((report['first_error']['code'], report['process']['ended_by']), (700, '_exit'))
        self.assertEqual(preloaded([LIFE, 'fork_idle'], {'ALLOGRAFT_ON_ERROR': 'exit'}).status, run([LIFE, 'fork_idle']).status)

    def test_no_descriptors(self):
        # The report cannot be opened either: one line says so, and nothing else is different.
        for variant, result in self.same([LIFE, 'no_files'], settings=SETTINGS, quiet=False):
            if 'ALLOGRAFT_DISABLE' not in variant:
                self.assertRegex(result.err, r'^allograft: the report could not be written.*\n$')

    def test_a_report_that_could_not_be_written(self):
        # Its counters are left, and the line says how to see them.
        result = preloaded([LIFE, 'fork_idle'], stats='/no/such/folder/x.json')
        said = re.fullmatch(r'allograft: the report could not be written to /no/such/folder/x.json: No such file or '
                            r'directory; `allograft report (\d+)` shows it\n', result.err)
        self.assertTrue(said, result.err)
        self.assertIn('-%s-' % said.group(1), ' '.join(os.listdir(COUNTERS)))

    def test_files_may_not_grow(self):
        # Neither the counters' file nor the report may end the process by a signal.
        for variant, result in self.same([LIFE, 'short_files'], settings=SETTINGS, quiet=False):
            if 'ALLOGRAFT_DISABLE' not in variant:
                self.assertRegex(result.err, r'^allograft: the report could not be written.*\n$')

    @unittest.skipUnless(os.geteuid() == 0, 'only root may change the root folder')
    def test_empty_root(self):
        for way in ('root_before', 'root_after'):
            for variant, result in self.same([LIFE, way], settings=SETTINGS, quiet=False):
                if 'ALLOGRAFT_DISABLE' not in variant:
                    self.assertRegex(result.err, r'^allograft: the report could not be written.*\n$')


if __name__ == '__main__':
    main()
