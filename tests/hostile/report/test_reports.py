# The report neither harms the program nor is lost: wherever standard error is, on whatever stack, in whatever file.

import fcntl
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from hostile import (COUNTERS, EVERY, LIBRARY, RUNTIME, SCHEMA, SECONDS, Case, clean_environment, main, often,
                     preloaded, problems, program, run, some)

COMMAND = os.environ['TEST_COMMAND']
REPORTS = program('hostile_reports')

# Closes standard error, or does what else stands there, and becomes the program.
CLOSED = ['sh', '-c', 'exec "$0" "$@" 2>&-']


def counters():
    return sorted(os.listdir(COUNTERS))


def report(*words):
    env = dict(clean_environment(), ALLOGRAFT_COUNTERS=COUNTERS)
    return subprocess.run([COMMAND, 'report', *words], env=env, timeout=60, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)


class Clean(Case):
    """Each test begins with no counters."""

    def setUp(self):
        shutil.rmtree(COUNTERS, ignore_errors=True)
        os.mkdir(COUNTERS, 0o700)

    def kept(self, reason):
        """The report lies in the counters; the command shows it and says why."""
        found = json.loads(report('--json').stdout)
        self.assertEqual(len(found), 1)
        self.assertEqual(problems(found[0], SCHEMA, closed=True), [])
        self.assertEqual(found[0]['process']['ended_by'], 'exit')
        self.assertRegex(' '.join(found[0]['warnings']), reason)
        self.assertRegex(report().stdout, 'warning: .*' + reason)


class StandardError(Clean):
    """Only the very file that was standard error when the process began gets a report or a line."""

    def run_with_file(self, way, before=(), settings=None):
        """A native and a preloaded run of a way that writes the file `data`."""
        command = [*before, REPORTS, way]
        with tempfile.TemporaryDirectory() as folder:
            native = run(command + [os.path.join(folder, 'native')])
            result = preloaded(command + [os.path.join(folder, 'preloaded')], settings, stats=None)
            self.sane(native)
            self.assertEqual((native.status, native.out, native.err), (result.status, result.out, result.err))
            for name in ('native', 'preloaded'):
                with open(os.path.join(folder, name), encoding='utf-8') as file:
                    yield file.read()

    def as_natively(self, way, **more):
        native, preloaded_ = self.run_with_file(way, **more)
        self.assertNotEqual(native, '')
        self.assertEqual(native, preloaded_)

    def test_closed_from_the_beginning(self):
        # The file of data has number 2, then.
        self.as_natively('data_file', before=CLOSED)
        self.kept('standard error was closed when the process began')

    def test_lines_of_the_log_neither(self):
        self.as_natively('data_file', before=CLOSED, settings={'ALLOGRAFT_LOG': 'debug', 'ALLOGRAFT_NO_SUCH': '1'})

    def test_closed_in_the_middle(self):
        self.as_natively('data_file_later')
        self.kept('standard error is not what it was when the process began')

    def test_replaced_in_the_middle(self):
        self.as_natively('moved_stderr')
        self.kept('standard error is not what it was when the process began')

    def test_a_file_from_the_beginning(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, 'log')
            result = preloaded(['sh', '-c', 'exec "$0" "$@" 2>' + log, REPORTS, 'returns'], stats=None)
            self.assertEqual((result.status, result.err), (0, ''))
            with open(log, encoding='utf-8') as file:
                self.assertIn('  gained:    ', file.read())
        self.assertEqual(counters(), [])

    def test_elsewhere_nothing_is_kept(self):
        for settings in ({'ALLOGRAFT_STATS': 'off'}, {'ALLOGRAFT_STATS': '@FOLDER@/r.json'}):
            result = preloaded([*CLOSED, REPORTS, 'returns'], settings, stats=None)
            self.assertEqual((len(result.reports()), counters()), ('off' not in settings.values(), []))


class Process(subprocess.Popen):
    """Does not outlive a test that fails."""

    def __exit__(self, kind, value, trace):
        if kind:
            self.kill()
        return super().__exit__(kind, value, trace)


# Every policy, and what else runs when a process ends.
ENDS = EVERY + [{'ALLOGRAFT_GRAPH': 'all'}, {'ALLOGRAFT_TRACE': '@FOLDER@/trace'},
                {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_TRACE': '@FOLDER@/trace', 'ALLOGRAFT_STATS': 'stderr'},
                {'ALLOGRAFT_STATS': 'stderr'}, {'ALLOGRAFT_STATS': '@FOLDER@/r.txt'},
                {'ALLOGRAFT_STATS': '/no/such/folder'}, {'ALLOGRAFT_STATS': 'off'}, {'ALLOGRAFT_COUNTERS': 'off'}]
WAYS = {'_exit': 42, 'exit': 42, 'quick_exit': 42, 'x: exec': 42, 'path: exec': 42, 'fail to exec': 42}


@unittest.skipIf(RUNTIME, 'a sanitizer needs more stack than a handler has')
class LittleStack(Clean):
    """A crash handler ends the process on an alternate stack, with a guard page below it."""

    def test_as_natively(self):
        for way, status in WAYS.items():
            # What the kernel puts there, and what the loader may need to bind _exit; and what many programs have.
            for size in ('+4096', '8192'):
                command = [REPORTS, 'little_stack', way, size]
                native = run(command)
                self.assertEqual(native.status, status, native.out)
                for settings in some(ENDS, 3):
                    with self.subTest(way=way, size=size, settings=settings):
                        result = preloaded(command, settings)
                        self.assertEqual((native.status, native.out), (result.status, result.out), result.err)
                        if not {'ALLOGRAFT_DISABLE', 'ALLOGRAFT_STATS'} & set(settings):
                            self.assertGreater(result.report()['coverage']['hooks']['cuMemFree_v2'], 0)

    def test_child(self):
        """It forks, and the child becomes another program."""
        for size in ('+4096', '8192'):
            command = [REPORTS, 'little_stack', 'child', size]
            native = run(command)
            self.assertEqual(native.status, 42, native.out)
            for settings in some(ENDS, 3):
                with self.subTest(size=size, settings=settings):
                    result = preloaded(command, settings)
                    self.assertEqual((native.status, native.out), (result.status, result.out), result.err)

    def test_depth(self):
        def depth(result):
            self.assertIn('ended with 42', result.out)
            return int(result.out.split()[-1])

        for way in WAYS:
            native = depth(run([REPORTS, 'depth', way]))
            for settings in some(ENDS, 3):
                with self.subTest(way=way, settings=settings):
                    self.assertLess(depth(preloaded([REPORTS, 'depth', way], settings)) - native, 1024)


def start(*command, **more):
    """A preloaded process whose report goes to `stats`."""
    env = dict(clean_environment(), LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]), ALLOGRAFT_COUNTERS=COUNTERS)
    env['ALLOGRAFT_STATS'] = more.pop('stats', 'stderr')
    return Process([*more.pop('before', []), REPORTS, *command], env=env, universal_newlines=True,
                   **dict({'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'stderr': subprocess.DEVNULL}, **more))


def fill(fd):
    """Writes until nothing more goes in."""
    os.set_blocking(fd, False)
    for size in (1 << 16, 1):
        try:
            while True:
                os.write(fd, b'x' * size)
        except BlockingIOError:
            pass
    os.set_blocking(fd, True)


# The first process of a namespace cannot be killed from within, so that is a shell, and the program its child.
INSIDE = ['unshare', '-p', '-f', 'sh', '-c', '"$0" "$@"; exit $?', REPORTS]


@unittest.skipIf(subprocess.run(['unshare', '-p', '-f', 'true'], stderr=subprocess.DEVNULL).returncode,
                 'no namespace may be made here')
class Namespaces(Clean):
    """Processes of containers that share the folder: nobody sees the others, and the dead must go all the same."""

    def killed(self):
        self.assertEqual(preloaded([*INSIDE, 'killed']).status, 128 + 9)

    def test_dead_are_known(self):
        self.killed()
        found, = json.loads(report('--json').stdout)
        self.assertEqual((found['process']['ended_by'], found['process']['program']), ('killed', 'hostile_reports'))
        self.assertEqual(report('--clean').stdout.count(', killed'), 1)
        self.assertEqual(counters(), [])

    def test_bounded(self):
        for _ in range(often(45)):
            self.killed()
        self.assertEqual(len(counters()), 32)
        # Whose process is not among them, it goes as well.
        preloaded([REPORTS, 'killed'])
        self.assertEqual(len(counters()), 32)
        report('--all', '--clean')
        self.assertEqual(counters(), [])

    def test_the_running_stay(self):
        with start('until_told', before=INSIDE[:-1]) as process:
            process.stdout.readline()
            name, = counters()
            for _ in range(35):
                preloaded([REPORTS, 'killed'])
            self.assertEqual((name in counters(), len(counters())), (True, 33))
            found = json.loads(report('--all', '--json').stdout)
            self.assertEqual([r['process']['ended_by'] for r in found].count('elsewhere'), 1)
            report('--all', '--clean')
            self.assertEqual(counters(), [name])
            process.stdin.close()
            self.assertEqual(process.wait(SECONDS), 0)

    def test_killed_with_its_container(self):
        with start('until_told', before=[INSIDE[0], '--kill-child', *INSIDE[1:-1]]) as process:
            process.stdout.readline()
            self.assertEqual(report().returncode, 1)
            process.kill()
            process.wait(SECONDS)
            process.stdout.read()  # until nobody has it open any more
            until = time.monotonic() + SECONDS
            while report().returncode and time.monotonic() < until:
                time.sleep(0.01)
        self.assertEqual(report('--clean').stdout.count(', killed'), 1)
        self.assertEqual(counters(), [])

    def test_without_proc(self):
        # Nor does it take /proc to tell the dead of a namespace of one's own.
        preloaded([REPORTS, 'killed'])
        hidden = ['unshare', '-m', 'sh', '-c', 'mount -t tmpfs none /proc && exec "$0" report', COMMAND]
        env = dict(clean_environment(), ALLOGRAFT_COUNTERS=COUNTERS)
        shown = subprocess.run(hidden, env=env, stdout=subprocess.PIPE, universal_newlines=True)
        self.assertIn('(process', shown.stdout)


class Unread(Clean):
    """What nobody reads keeps the end of the process waiting for a moment, not for ever."""

    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.fifo = os.path.join(self.folder.name, 'fifo.json')
        os.mkfifo(self.fifo)

    def refused(self, reason):
        native = run([REPORTS, 'returns'])
        result = preloaded([REPORTS, 'returns'], {'ALLOGRAFT_STATS': self.fifo}, stats=None)
        self.assertEqual((native.status, native.out), (result.status, result.out))
        line, = result.err.splitlines()
        self.assertIn(self.fifo + ': ' + reason, line)
        self.kept(reason)

    def test_fifo_that_nobody_opens(self):
        self.refused('nobody has it open for reading')

    def test_fifo_that_is_full(self):
        fd = os.open(self.fifo, os.O_RDWR)
        fill(fd)
        self.refused('nobody reads it')
        os.close(fd)

    def test_fifo_that_is_read(self):
        with subprocess.Popen(['cat', self.fifo], stdout=subprocess.PIPE) as reader, \
                start('until_told', stats=self.fifo) as process:
            process.stdout.readline()
            with open(self.fifo, 'wb', buffering=0):  # the reader has it open, then, and does not end
                process.stdin.close()
                self.assertEqual(process.wait(SECONDS), 0)
            self.assertEqual(json.loads(reader.stdout.read())['process']['program'], 'hostile_reports')
        self.assertEqual(counters(), [])

    def full(self, ours, theirs):
        fill(theirs)
        with start('returns', stderr=theirs) as process:
            self.assertEqual(process.wait(SECONDS), 0)
            self.assertIn('read back', process.stdout.read())
        self.kept('nobody reads it')
        os.close(ours)
        os.close(theirs)

    def test_standard_error_is_a_full_pipe(self):
        self.full(*os.pipe())

    def test_standard_error_is_a_full_socket(self):
        self.full(*(one.detach() for one in socket.socketpair()))

    def test_slow_reader(self):
        # All of it comes through a pipe that holds a page.
        ours, theirs = os.pipe()
        fcntl.fcntl(theirs, 1031, 4096)  # F_SETPIPE_SZ
        path = '/dev/fd/%d' % theirs
        with start('returns', stats=path, pass_fds=[theirs], stdin=subprocess.DEVNULL) as process:
            os.close(theirs)
            with open(ours, encoding='utf-8') as file:
                self.assertIn('allocations redirected', file.read())
            self.assertEqual((process.stdout.read().count('read back'), process.wait(SECONDS)), (1, 0))
        self.assertEqual(counters(), [])


class Names(Clean):
    """A name holds one whole report at any time; who finds another's there takes a name of its own."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, 'r.json')

    def read(self, name='r.json'):
        with open(os.path.join(self.folder, name), encoding='utf-8') as file:
            return json.load(file)

    def together(self, n):
        """n processes that share the name and end at one moment; their ids, and what they said."""
        processes = [start('until_told', stats=self.path, stderr=subprocess.PIPE) for _ in range(n)]
        for process in processes:
            process.stdout.readline()
        for process in processes:
            process.stdin.close()
        said = [process.stderr.read() for process in processes]
        for process in processes:
            self.assertEqual(process.wait(SECONDS), 0)
            process.stdout.close()
            process.stderr.close()
        return [process.pid for process in processes], said

    def test_shared(self):
        for _ in range(often(3)):
            for name in os.listdir(self.folder):
                os.unlink(os.path.join(self.folder, name))
            pids, said = self.together(12)
            names = os.listdir(self.folder)
            self.assertIn('r.json', names)
            self.assertEqual(sorted(self.read(name)['process']['pid'] for name in names), sorted(pids))
            first, = (pid for pid, lines in zip(pids, said) if not lines)
            self.assertEqual(self.read()['process']['pid'], first)
            for pid, lines in zip(pids, said):
                if pid != first:
                    self.assertEqual(self.read('r.%d.json' % pid)['process']['pid'], pid)
                    self.assertRegex(lines, r'^allograft: the report lies in .*r\.%d\.json: .* %%p .*\n$' % pid)
            # A run after that is another one.
            result = preloaded([REPORTS, 'returns'], {'ALLOGRAFT_STATS': self.path}, stats=None)
            self.assertEqual(result.err, '')
            self.assertNotIn(self.read()['process']['pid'], pids)
            self.assertEqual(sorted(os.listdir(self.folder)), sorted(names))

    def beside_another(self, *command):
        """Runs it while another process writes its report to the same file. What it says, and where its own lies."""
        with start(*command, stats=self.path, stderr=subprocess.PIPE) as process:
            process.stdout.readline()
            preloaded([REPORTS, 'returns'], {'ALLOGRAFT_STATS': self.path}, stats=None)
            other = self.read()
            process.stdin.close()
            said = process.stderr.read()
        self.assertEqual(self.read(), other)
        own = 'r.%d.json' % process.pid
        self.assertIn('the report lies in %s: ' % os.path.join(self.folder, own), said)
        self.assertEqual(self.read(own)['process']['ended_by'], 'exit')
        os.unlink(os.path.join(self.folder, own))
        return said

    def test_dump(self):
        """A process that dumps its report elsewhere does not take another's for its own."""
        self.beside_another('dumps', os.path.join(self.folder, 'now.json'))
        self.assertEqual(sorted(os.listdir(self.folder)), ['now.json', 'r.json'])

    def test_exec_that_fails(self):
        """Nor does one that has written its report before, since it was about to become another program."""
        other = os.path.join(self.folder, 'program')
        with open(other, 'wb') as file:
            file.write(b'\0no program')
        os.chmod(other, 0o755)
        said = self.beside_another('execs', other)
        self.assertEqual(said.count('the report lies in'), 1)
        self.assertEqual(sorted(os.listdir(self.folder)), ['program', 'r.json'])

    def test_whole_at_any_time(self):
        with open(self.path, 'w', encoding='utf-8') as file:
            file.write('{"process": {"pid": 0}}')
        seen = set()
        with start('until_told', stats=self.path) as process:
            process.stdout.readline()
            process.stdin.close()
            while process.poll() is None:
                seen.add(self.read()['process']['pid'])
        seen.add(self.read()['process']['pid'])
        self.assertLessEqual(seen, {0, process.pid})

    def test_limit_on_the_size_of_files(self):
        with open(self.path, 'w', encoding='utf-8') as file:
            file.write('{"process": {"pid": 0}}')
        native = run([REPORTS, 'small_files'])
        result = preloaded([REPORTS, 'small_files'], {'ALLOGRAFT_STATS': self.path}, stats=None)
        self.assertEqual((native.status, native.out), (result.status, result.out))
        self.assertIn('File too large', result.err)
        self.assertEqual((os.listdir(self.folder), self.read()['process']['pid']), (['r.json'], 0))

    def test_full_disk(self):
        script = ('mount -t tmpfs -o size=64k none $1 && echo old > $1/r.json && '
                  '{ head -c 1m /dev/zero > $1/rest; $0 returns; cat $1/r.json; ls -A $1; }')
        full = ['unshare', '-m', 'sh', '-c', script, REPORTS, self.folder]
        native = run(full)
        if native.status:
            self.skipTest('no file system may be mounted here')
        result = preloaded(full, {'ALLOGRAFT_STATS': self.path}, stats=None)
        self.assertEqual((native.status, native.out), (result.status, result.out))
        self.assertIn('old\n', result.out)
        self.assertIn('r.json: No space left on device', result.err)
        self.kept('No space left on device')

    def test_link_stays_one(self):
        target = os.path.join(self.folder, 'target.json')
        os.symlink('target.json', self.path)
        for _ in range(2):  # to nothing, then to a file
            result = preloaded([REPORTS, 'returns'], {'ALLOGRAFT_STATS': self.path}, stats=None)
            self.assertEqual(result.err, '')
            self.assertTrue(os.path.islink(self.path))
            self.assertFalse(os.path.islink(target))
            self.read()
        self.assertEqual(sorted(os.listdir(self.folder)), ['r.json', 'target.json'])

    def test_standard_output(self):
        # By its name; what the program and others write to it stays.
        out = os.path.join(self.folder, 'out')
        for name in ('/dev/stdout', '/dev/fd/1', '/proc/self/fd/1'):
            command = ['sh', '-c', '{ echo before; "$0" returns; echo behind; } > ' + out, REPORTS]
            result = preloaded(command, {'ALLOGRAFT_STATS': name}, stats=None)
            self.assertEqual((result.status, result.err), (0, ''))
            with open(out, encoding='utf-8') as file:
                text = file.read()
            self.assertTrue(text.startswith('before\nread back'), text)
            self.assertTrue(text.endswith('behind\n'), text)
            self.assertIn('allocations redirected', text)

    def test_relative(self):
        command = ['sh', '-c', 'cd %s && exec "$0" moved_away' % self.folder, REPORTS]
        result = preloaded(command, {'ALLOGRAFT_STATS': 'r.json'}, stats=None)
        self.assertEqual((result.status, result.err), (0, ''))
        self.assertEqual(self.read()['process']['program'], 'hostile_reports')

    def test_no_file(self):
        for path, reason in ((self.folder, 'Is a directory'), ('/dev/full', 'No space left'),
                             (os.path.join(self.folder, 'x' * 300), 'File name too long'),
                             (os.path.join(self.folder, 'none', 'x'), 'No such file')):
            super().setUp()
            result = preloaded([REPORTS, 'returns'], {'ALLOGRAFT_STATS': path}, stats=None)
            line, = result.err.splitlines()
            self.assertIn(reason, line)
            self.kept(reason)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == '__main__':
    main()
