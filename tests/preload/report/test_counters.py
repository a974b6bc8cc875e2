# What a process counted can be read while it runs and after it was killed; nothing else is left.

import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from harness import (COUNTERS, LIBRARY, RUNTIME, SCHEMA, SOME, Case, but_under_tsan, clean_environment, main, preloaded,
                     problems, program, run)

COMMAND = os.environ['TEST_COMMAND']
EXITS = program('preload_exits')
LIFE = program('preload_lives')
NAME = re.compile(r'^[0-9a-f]{16}-(\d+)-(\d+)-(\d+)\.counters$')


def report(*words, cwd=None, **environment):
    env = clean_environment()
    env.update(ALLOGRAFT_COUNTERS=COUNTERS, **environment)
    return subprocess.run([COMMAND, 'report', *map(str, words)], env=env, timeout=60, cwd=cwd,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, errors='replace')


def counters():
    return sorted(os.listdir(COUNTERS))


class Counters(Case):
    def setUp(self):
        shutil.rmtree(COUNTERS, ignore_errors=True)
        os.mkdir(COUNTERS, 0o700)

    def dead(self, *words):
        """The JSON of the one dead process, held against the schema."""
        result = report('--json', *words)
        self.assertEqual((result.returncode, result.stderr), (0, ''))
        found = json.loads(result.stdout)
        self.assertEqual(len(found), 1, result.stdout)
        self.assertEqual(problems(found[0], SCHEMA, closed=True), [])
        return found[0]

    def test_killed(self):
        whole = preloaded([EXITS, 'return']).report()
        for way, ended in (('kill', signal.SIGKILL), ('terminate', signal.SIGTERM),
                           ('abort', signal.SIGABRT)):
            with self.subTest(way=way):
                self.setUp()
                result = preloaded([EXITS, way])
                self.assertEqual((result.status, result.files), (-ended, {}))
                self.assertEqual(len(counters()), 1)
                killed = self.dead()
                self.assertEqual(killed['process']['ended_by'], 'killed')
                self.assertEqual(killed['process']['elapsed_ns'], 0)
                self.assertEqual(killed['process']['program'], 'preload_exits')
                for part in ('frees', 'cache', 'pool', 'managed', 'async', 'pressure'):
                    if part != 'frees':
                        self.assertEqual(killed[part], whole[part], part)
                self.assertEqual(killed['coverage'], whole['coverage'])
                self.assertEqual(killed['version'], whole['version'])
                placed, expected = (r['devices'][0]['placements']['native'] for r in (killed, whole))
                self.assertGreater(placed['alloc_ns'], 0)
                for field in expected:
                    if not field.endswith('_ns'):
                        self.assertEqual(placed[field], expected[field], field)

    def test_pools_of_the_program(self):
        result = preloaded([program('preload_pools'), 'killed'])
        self.assertEqual((result.status, result.files), (-signal.SIGKILL, {}))
        pool, = self.dead()['app_pools']
        self.assertEqual((pool['kind'], pool['allocs'], pool['frees'], pool['alloc_bytes']),
                         ('default', 5, 5, 5 << 20))
        self.assertEqual(pool['used_high_bytes'], None)  # nobody could ask the driver

    def test_text(self):
        preloaded([EXITS, 'kill'], {'ALLOGRAFT_CACHE': '1MiB', 'RANK': '3'})
        result = report()
        self.assertEqual((result.returncode, result.stderr), (0, ''))
        self.assertRegex(result.stdout, r'(?m)^allograft [\d.]+: preload_exits \(process \d+\), killed$')
        self.assertIn('CACHE=1MiB*', result.stdout)
        self.assertIn('allocations redirected', result.stdout)
        self.assertEqual(self.dead()['process']['rank'], 3)

    def test_nothing_is_left_after_an_end(self):
        for way in ('return', 'exit', '_exit', '_Exit', 'quick_exit', 'thread', 'execv', 'execle',
                    'fork_exit', 'fork_exec', 'early'):
            for stats in ('stats.%p.json', None):
                with self.subTest(way=way):
                    preloaded([EXITS, way], stats=stats)
                    self.assertEqual(counters(), [])
        preloaded([EXITS, 'return'], {'ALLOGRAFT_STATS': 'off'}, stats=None)
        preloaded([EXITS, 'kill'], {'ALLOGRAFT_DISABLE': '1'})
        preloaded([EXITS, 'kill'], {'ALLOGRAFT_COUNTERS': 'off'})
        run([EXITS, 'kill'])
        self.assertEqual(counters(), [])

    def test_report_that_could_not_be_written(self):
        preloaded([EXITS, 'return'], {'ALLOGRAFT_STATS': '/no/such/folder/x'}, stats=None)
        self.assertEqual(self.dead()['process']['ended_by'], 'exit')

    def test_after_exec_failed(self):
        result = preloaded([LIFE, 'exec_fails_killed'])
        self.assertEqual(result.report()['coverage']['hooks']['cuMemAlloc_v2'], 2)
        self.assertEqual(self.dead()['coverage']['hooks']['cuMemAlloc_v2'], 3)

    def test_exec_failed_and_ended(self):
        result = preloaded([EXITS, 'exec_fails'])
        self.assertEqual(result.report()['process']['ended_by'], 'exit')
        self.assertEqual(counters(), [])

    def test_a_child_has_its_own(self):
        result = preloaded([LIFE, 'fork_first'])
        child = self.dead()
        self.assertEqual(child['coverage']['hooks']['cuMemAlloc_v2'], 5)
        self.assertEqual(result.report()['coverage']['hooks']['cuMemAlloc_v2'], 2)
        self.assertNotEqual(child['process']['pid'], result.report()['process']['pid'])

    def test_a_child_spoils_nothing(self):
        # It asks the driver, on counters that were the parent's until a moment ago.
        reports = preloaded([LIFE, 'fork_asks']).reports()
        self.assertEqual(max(r['coverage']['hooks']['cuMemAlloc_v2'] for r in reports), 3)
        self.assertEqual(counters(), [])

    def test_running(self):
        env = clean_environment()
        env.update(LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]), ALLOGRAFT_COUNTERS=COUNTERS,
                   ALLOGRAFT_STATS='off')
        with subprocess.Popen([LIFE, 'wait'], env=env, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, universal_newlines=True) as running:
            while running.stdout.readline() not in ('ready\n', ''):
                pass
            text = report(running.pid)
            self.assertRegex(text.stdout, r'\(process %d\) after .*, running' % running.pid)
            one = self.dead(running.pid)
            self.assertEqual(one['process']['ended_by'], 'running')
            self.assertGreater(one['process']['elapsed_ns'], 0)
            self.assertEqual(one['coverage']['hooks']['cuMemAlloc_v2'], 3)
            self.assertEqual(self.dead('--all')['process']['pid'], running.pid)
            self.assertEqual(report().returncode, 1)
            report('--all', '--clean')  # of dead ones only
            self.assertEqual(len(counters()), 1)
            file = os.path.join(COUNTERS, counters()[0])
            self.assertEqual(os.stat(file).st_mode & 0o7777, 0o600)
            # It runs on when somebody takes the file away.
            os.unlink(file)
            running.stdin.close()
            self.assertEqual(running.wait(), 3)

    def test_clean(self):
        preloaded([EXITS, 'kill'])
        preloaded([EXITS, 'kill'])
        self.assertEqual(len(counters()), 2)
        newest = counters()[1]
        self.assertEqual(report('--clean').returncode, 0)  # of what was shown, and not of what was listed
        self.assertEqual(len(counters()), 1)
        self.assertNotIn(newest, counters())
        preloaded([EXITS, 'kill'])
        self.assertEqual(report('--all', '--html', '/dev/full', '--clean').returncode, 1)
        self.assertEqual(len(counters()), 2)
        shown = report('--all', '--clean')
        self.assertEqual(shown.stdout.count(', killed'), 2)
        self.assertEqual(counters(), [])
        self.assertEqual(report().returncode, 1)
        self.assertEqual(json.loads(report('--json').stdout), [])

    def test_newest_first(self):
        for _ in range(3):
            preloaded([EXITS, 'kill'])
        pids = [int(n) for n in re.findall(r'process (\d+)', report('--all').stdout)]
        names = [int(NAME.match(name).group(1)) for name in counters()]
        self.assertEqual(pids, names[::-1])

    def test_list(self):
        """Of several the newest is shown, below a list of all."""
        for way in ('kill', 'terminate'):
            preloaded([EXITS, way])
        preloaded([LIFE, 'exec_fails_killed'])
        names = counters()
        pids = [NAME.match(name).group(1) for name in names]
        result = report()
        self.assertEqual((result.returncode, result.stderr), (0, ''))
        table, _, shown = result.stdout.partition('\n\n')
        lines = table.splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertEqual(lines[0], 'Dead processes that left counters in %s, newest last:' % COUNTERS)
        self.assertEqual(lines[1].split(), ['process', 'began', 'program', 'ended', 'allocs', 'peak'])
        now = time.time()
        for line, pid, name in zip(lines[2:5], pids, ['preload_exits'] * 2 + ['preload_lives']):
            words = line.split()
            self.assertEqual((words[0], words[3], words[4]), (pid, name[:16], 'killed'), line)
            began = time.mktime(time.strptime(' '.join(words[1:3]), '%Y-%m-%d %H:%M:%S'))
            self.assertLess(abs(now - began), 120, line)
        self.assertIn('To report another one: allograft report PROCESS or PROGRAM', lines[5])
        self.assertRegex(shown, r'^allograft [\d.]+: preload_lives \(process %s\), killed\n' % pids[2])
        self.assertEqual(shown.count(', killed'), 1)
        # By process, by program, of a folder, and all.
        for words, shown in (([pids[0]], pids[:1]), (['preload_exits'], pids[1::-1]), ([COUNTERS], pids[2:]),
                             (['--all'], pids[::-1]), ([COUNTERS, '--all'], pids[::-1])):
            result = report(*words)
            self.assertEqual((result.returncode, result.stderr), (0, ''))
            self.assertEqual(re.findall(r'\(process (\d+)\), killed', result.stdout), shown, words)
        self.assertEqual(len(json.loads(report('--json').stdout)), 3)
        self.assertEqual(len(json.loads(report('--json', 'preload_exits').stdout)), 2)
        page = report('--html', '-').stdout
        self.assertIn('process %s ' % pids[2], page)
        self.assertNotIn('process %s ' % pids[0], page)
        result = report('nobody')
        self.assertEqual((result.returncode, result.stdout), (1, ''))
        self.assertEqual(result.stderr, 'allograft: nobody: no such file, and no process of that program has '
                         'counters in %s\n' % COUNTERS)

    def test_beside_a_file_of_that_name(self):
        """The program, most often: it is no report, so the word names its processes."""
        preloaded([EXITS, 'kill'])
        pid = NAME.match(counters()[0]).group(1)
        with tempfile.TemporaryDirectory() as folder:
            for name in (pid, 'preload_exits', 'nobody'):
                shutil.copy('/bin/true', os.path.join(folder, name))
            for words in ([pid], ['preload_exits']):
                result = report(*words, cwd=folder)
                self.assertEqual((result.returncode, result.stderr), (0, ''), words)
                self.assertIn('(process %s), killed' % pid, result.stdout)
            result = report('nobody', cwd=folder)
            self.assertEqual((result.returncode, result.stdout), (1, ''))
            self.assertEqual(result.stderr, 'allograft: nobody: the file of that name is no report, and no process of '
                             'that program has counters in %s\n' % COUNTERS)
            # By its path it is that file; and a report comes before processes.
            self.assertIn('neither a JSON report', report('./preload_exits', cwd=folder).stderr)
            shutil.copy(os.path.join(COUNTERS, counters()[0]), os.path.join(folder, 'nobody'))
            self.assertIn('(process %s), killed' % pid, report('nobody', cwd=folder).stdout)

    def test_list_of_what_cannot_be_read(self):
        for _ in range(3):
            preloaded([EXITS, 'kill'])
        names = counters()
        os.truncate(os.path.join(COUNTERS, names[2]), 5000)
        os.truncate(os.path.join(COUNTERS, names[1]), 0)
        result = report()
        self.assertEqual((result.returncode, result.stderr), (0, ''))
        self.assertEqual(re.findall(r'(?m)^ +(\d+) .* - +cut short', result.stdout),
                         [NAME.match(name).group(1) for name in names[1:]])
        self.assertIn('`allograft report --all --clean` removes them', result.stdout)
        self.assertIn('(process %s), killed' % NAME.match(names[0]).group(1), result.stdout)
        result = report('--all', '--clean')
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr.count('is cut short: its process was killed, or the disk was full'), 2)
        self.assertEqual(counters(), [])
        # Where nothing can be read, that is what there is to say.
        preloaded([EXITS, 'kill'])
        os.truncate(os.path.join(COUNTERS, counters()[0]), 5000)
        result = report()
        self.assertEqual((result.returncode, result.stdout), (1, ''))
        self.assertIn('so remove it', result.stderr)

    def test_bounded(self):
        # Of processes that are gone, and one whose number is not that of this process any more.
        for i in range(60):
            open(os.path.join(COUNTERS, '%016x-%d-%d-0.counters' % (i, 99999999 + i, 77)), 'w').close()
        alive = '%016x-%d-%d-0.counters' % (0, os.getppid(), 0)
        open(os.path.join(COUNTERS, alive), 'w').close()
        open(os.path.join(COUNTERS, 'notes'), 'w').close()
        preloaded([EXITS, 'kill'])
        left = counters()
        self.assertLessEqual(len(left), 34)
        self.assertIn(alive, left)
        self.assertIn('notes', left)
        self.assertEqual(sum(os.path.getsize(os.path.join(COUNTERS, n)) > 0 for n in left), 1)


class Places(Case):
    """Where no file can be made, the program runs as if none had been asked for."""

    def unnoticed(self, where, **more):
        native = run([EXITS, 'return'])
        result = preloaded([EXITS, 'return'], {'ALLOGRAFT_COUNTERS': where}, **more)
        self.assertEqual((native.status, native.out, native.err),
                         (result.status, result.out, result.err))
        self.assertEqual(result.report()['coverage']['hooks']['cuMemFree_v2'], 1)

    def test_no_place(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o500)
            file = os.path.join(COUNTERS, 'file')
            open(file, 'w').close()
            for where in ('/no/such/folder', file, '/proc/self', '/dev/null', folder, 'x' * 300):
                with self.subTest(where=where):
                    self.unnoticed(where)
            os.unlink(file)

    def test_relative(self):
        with tempfile.TemporaryDirectory(dir=COUNTERS) as folder:
            here = os.getcwd()
            try:
                os.chdir(os.path.dirname(folder))
                preloaded([EXITS, 'kill'], {'ALLOGRAFT_COUNTERS': os.path.basename(folder)})
            finally:
                os.chdir(here)
            self.assertEqual(len(os.listdir(folder)), 1)
            self.assertIn(', killed', report(folder).stdout)

    def mounted(self, size, folder, *command):
        """The command, in a file system of that size."""
        mount = ['unshare', '-m', 'sh', '-c', 'mount -t tmpfs -o size=$1 none $2 && shift 2 && exec "$@"', 'sh']
        if not shutil.which('unshare') or subprocess.run(
                mount + ['1m', folder, '/bin/true'], stderr=subprocess.DEVNULL).returncode:
            self.skipTest('no file system may be mounted here')
        return mount + [size, folder, *command]

    def test_file_system_becomes_full(self):
        """Threads that come later count where there were no pages yet."""
        folder = tempfile.mkdtemp(dir=COUNTERS)
        command = self.mounted('64m', folder, LIFE, 'full_folder', folder)
        native = run(command)
        result = preloaded(command, {'ALLOGRAFT_COUNTERS': folder})
        self.assertIn('full: 1', native.out)
        self.assertEqual((native.status, native.out, native.err), (result.status, result.out, result.err))
        self.assertEqual(result.report()['coverage']['hooks']['cuMemAlloc_v2'], 1 + 3 * 20 + 1)

    def test_full_file_system(self):
        """Pages that are not there when a counter wants them would be a signal."""
        folder = tempfile.mkdtemp(dir=COUNTERS)
        for size in ('8k', '300k', '1m', '100m'):
            for way in ('return', 'kill'):
                with self.subTest(size=size, way=way):
                    command = self.mounted(size, folder, EXITS, way)
                    native = run(command)
                    result = preloaded(command, {'ALLOGRAFT_COUNTERS': folder})
                    self.assertEqual((native.status, native.err), (result.status, result.err))
                    if way != 'kill':  # which the kernel's own line may not outlive
                        self.assertEqual(native.out, result.out)

    @unittest.skipUnless(os.geteuid() == 0 and os.path.isdir('/dev/shm'), 'only root may be others')
    def test_folder_of_somebody_else(self):
        """Another user was first under the name that `auto` means, or made a link of it."""
        uid = 54321
        place = '/dev/shm/allograft-%d' % uid
        elsewhere = tempfile.mkdtemp()
        os.chmod(elsewhere, 0o777)

        def killed():
            env = clean_environment()
            env.update(LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]), ALLOGRAFT_STATS='off')
            done = subprocess.run([program_copy, 'kill'], env=env, user=uid, stderr=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
            self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
            self.assertEqual(done.stderr, b'')

        program_copy = EXITS
        for part in (EXITS, LIBRARY):
            if subprocess.run(['/usr/bin/test', '-r', part], user=uid).returncode:
                self.skipTest('another user cannot read ' + part)
        self.addCleanup(shutil.rmtree, elsewhere)
        self.assertFalse(os.path.lexists(place))
        try:
            os.symlink(elsewhere, place)
            killed()
            # Even where the link leads to a folder of the user's own.
            os.chown(elsewhere, uid, -1)
            os.chmod(elsewhere, 0o700)
            killed()
            os.unlink(place)
            os.mkdir(place)  # root's
            os.chmod(place, 0o777)
            killed()
            os.chown(place, uid, -1)  # the user's, but open to others
            killed()
            self.assertEqual((os.listdir(place), os.listdir(elsewhere)), ([], []))
            os.chmod(place, 0o700)
            killed()
            self.assertEqual(len(os.listdir(place)), 1)
        finally:
            if os.path.islink(place):
                os.unlink(place)
            shutil.rmtree(place, ignore_errors=True)


@but_under_tsan
class Files(Case):
    """Files that are none, or not as they should be: said in a line, never a crash."""

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(COUNTERS, ignore_errors=True)
        os.mkdir(COUNTERS, 0o700)
        preloaded([EXITS, 'kill'], {'ALLOGRAFT_RULES': '*:pool'})
        name, = counters()
        with open(os.path.join(COUNTERS, name), 'rb') as file:
            cls.whole = file.read()

    def refused(self, content, said):
        with tempfile.NamedTemporaryFile(dir=COUNTERS, suffix='.x') as file:
            file.write(content)
            file.flush()
            for flags in ([], ['--json'], ['--clean']):
                result = report(file.name, *flags)
                self.assertEqual((result.returncode, result.stdout), (1, ''), result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
                self.assertIn(said, result.stderr)
            self.assertTrue(os.path.exists(file.name))

    def test_one_file(self):
        name = next(n for n in counters() if NAME.match(n))
        self.assertIn(', killed', report(os.path.join(COUNTERS, name)).stdout)
        one = json.loads(report('--json', os.path.join(COUNTERS, name)).stdout)
        self.assertEqual(one['process']['ended_by'], 'killed')
        self.assertEqual(one['rules'][0]['text'], '*:pool')

    def test_refused(self):
        whole = self.whole
        self.refused(b'', 'is cut short')
        self.refused(b'AGSTATS\0', 'is cut short')
        self.refused(b'AGSTATX\0', 'nor a file of counters')
        self.refused(b'x' * len(whole), 'nor a file of counters')
        self.refused(whole[:-1], 'cut short')
        self.refused(whole + b'x', 'is longer than its counters')
        self.refused(whole[:8] + b'\7' + whole[9:], 'another build')    # layout
        self.refused(whole[:12] + b'\7' + whole[13:], 'another build')  # size
        self.refused(whole[:16] + b'\7' + whole[17:], 'another build')  # names
        self.refused(json.dumps({'schema': 'allograft-stats/1'}).encode(), 'JSON')
        for path, said in (('/no/such/file', 'No such file'), ('/dev/null', 'not a regular file'), ('', ': ')):
            result = report(path)
            self.assertEqual(result.returncode, 1)
            self.assertIn(said, result.stderr)

    def test_no_such_process(self):
        result = report(99999998)
        self.assertEqual(result.returncode, 1)
        self.assertIn('99999998', result.stderr)

    def test_words(self):
        for words in (['--no'], ['1', '2'], ['-x']):
            self.assertEqual(report(*words).returncode, 2)
        self.assertIn('allograft report', report('--help').stdout)

    def test_hostile(self):
        """Any bytes behind a right beginning: no crash, no control character, JSON that is JSON."""
        seed = int(os.environ.get('TEST_SEED', '1'))
        dice = random.Random(seed)
        for turn in range(40):
            content = bytearray(self.whole)
            begin = 24
            for _ in range(dice.randrange(1, 60)):
                at = dice.randrange(begin, len(content) if dice.random() < .5 else begin + 60000)
                width = dice.randrange(1, 300)
                filler = dice.choice((b'\xff', b'\0', b'\x1b', b'A', bytes([dice.randrange(256)])))
                content[at:at + width] = (filler * width)[:len(content) - at]
            if SOME and turn % 4:
                continue
            with tempfile.NamedTemporaryFile(dir=COUNTERS, suffix='.x') as file:
                file.write(content[:len(self.whole)])
                file.flush()
                text, one = report(file.name), report('--json', file.name)
            with self.subTest(seed=seed, turn=turn):
                self.assertIn(text.returncode, (0, 1), text.stderr)
                self.assertNotRegex(text.stdout, r'[\x00-\x09\x0b-\x1f\x7f]')
                self.assertEqual(one.returncode, text.returncode)
                if one.returncode == 0:
                    json.loads(one.stdout)


if __name__ == '__main__':
    main()
