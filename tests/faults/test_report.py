# The report cannot be written, or stderr is not there: the program ends as it would have.

import os
import signal
import stat
import subprocess
import time

from faults import (LIBRARY, PROGRAMS, Case, main, native_run, preloaded, program)
from harness import RUNTIME, clean_environment

NAME = 'queries'
JUNK = ('%', '%%', 'a%', '%p%p%p', '%5d', 'x%', '%\xff', '%r%', '%h%h%h%h')
REFUSED = ('%z%q', '%n%s%d', '%z')


def environment(**settings):
    env = clean_environment()
    env.update(settings, LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]))
    return env


class Report(Case):
    def setUp(self):
        self.native = native_run(NAME, {})

    def written_nowhere(self, path, words, settings=None):
        """One line of ours names the path and the reason; nothing else changes."""
        result = preloaded([program('faults_program'), NAME],
                           dict({'ALLOGRAFT_STATS': path}, **(settings or {})), stats=None)
        self.assertEqual(self.native.out, result.out)
        self.assertEqual(self.native.status, result.status)
        said = result.err.splitlines()
        self.assertEqual(len(said), 1, result.err)
        self.assertTrue(said[0].startswith('allograft: '), said[0])
        for word in words:
            self.assertIn(word, said[0])

    def test_disk_full(self):
        for path in ('/dev/full',):
            self.written_nowhere(path, (path, 'No space left'))

    def test_no_such_folder(self):
        for path in ('/no/such/folder/stats.json', 'also/not/there.txt'):
            self.written_nowhere(path, (path, 'No such file'))

    def test_a_folder_instead_of_a_file(self):
        self.written_nowhere('/tmp', ('/tmp', 'directory'))

    def test_not_allowed(self):
        if os.geteuid() == 0: # everything is allowed, but what no file system takes
            self.written_nowhere('/proc/version', ('/proc/version',))
        else:
            self.written_nowhere('/etc/allograft.json', ('/etc/allograft.json', 'denied'))

    def test_path_too_long(self):
        for length in (300, 900):
            self.written_nowhere('/tmp/' + 'x' * length, ('/tmp/xxxxxxxx',))
        for length in (1024, 4091, 4096, 100000):
            result = preloaded([program('faults_program'), NAME],
                               {'ALLOGRAFT_STATS': '/tmp/' + 'x' * length}, stats=None)
            self.assertEqual((self.native.out, self.native.status), (result.out, result.status))
            self.assertTrue(result.err.startswith('allograft: '))

    def test_quiet_when_told_so(self):
        result = preloaded([program('faults_program'), NAME],
                           {'ALLOGRAFT_STATS': '/dev/full', 'ALLOGRAFT_LOG': 'off'}, stats=None)
        self.assertEqual((self.native.out, self.native.err, self.native.status),
                         (result.out, result.err, result.status))

    def test_junk_in_the_path(self):
        for junk in JUNK:
            with self.subTest(path=junk):
                result = preloaded([program('faults_program'), NAME],
                                   {'ALLOGRAFT_STATS': '@FOLDER@/' + junk + '.json'}, stats=None)
                self.assertEqual(self.native.out, result.out)
                self.assertEqual((self.native.status, ''), (result.status, result.err))
                self.assertEqual(len(result.files), 1)
                self.assertEqual(len(result.reports()), 1)

    def test_letters_that_stand_for_nothing(self):
        for junk in REFUSED:
            with self.subTest(path=junk):
                result = preloaded([program('faults_program'), NAME],
                                   {'ALLOGRAFT_STATS': '@FOLDER@/' + junk + '.json'}, stats=None)
                self.assertEqual((self.native.out, self.native.status), (result.out, result.status))
                self.assertRegex(result.err, r'\Aallograft: ALLOGRAFT_STATS: column \d+: %. stands for nothing[^\n]*\n\Z')
                self.assertEqual(len(result.files), 0)

    def test_junk_means_itself(self):
        for junk, name in (('a%', 'a%'), ('%%', '%%'), ('%n%', 'faults_program%')):
            result = preloaded([program('faults_program'), NAME],
                               {'ALLOGRAFT_STATS': '@FOLDER@/' + junk}, stats=None)
            self.assertEqual(list(result.files), [name])

    def test_closed_stderr(self):
        """A file of the program's own that got the number of stderr must not get our words."""
        for settings in ({}, {'ALLOGRAFT_POLICI': 'x'}, {'ALLOGRAFT_POLICY': 'x'},
                         {'ALLOGRAFT_STATS': '/dev/full'}, {'ALLOGRAFT_LOG': 'debug'}):
            with self.subTest(settings=settings):
                done = subprocess.run(
                    ['sh', '-c', 'exec "$0" "$1" 2>&-', program('faults_program'), NAME],
                    env=environment(**settings), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    timeout=60)
                self.assertEqual(self.native.out, done.stdout.decode())
                self.assertEqual(self.native.status, done.returncode)

    def test_broken_stderr(self):
        """A pipe that nobody reads any more: as natively, no signal ends the process at its report."""
        read, write = os.pipe()
        os.close(read)
        try:
            done = subprocess.run([program('faults_program'), NAME], env=environment(),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=write,
                                  timeout=60)
        finally:
            os.close(write)
        self.assertEqual(self.native.out, done.stdout.decode())
        self.assertEqual(self.native.status, done.returncode)

    def test_full_stdout_is_the_programs(self):
        with open('/dev/full', 'w', encoding='utf-8') as full:
            native = subprocess.run([program('faults_program'), NAME], env=clean_environment(),
                                    stdout=full, stderr=subprocess.DEVNULL, timeout=60)
            done = subprocess.run([program('faults_program'), NAME],
                                  env=environment(ALLOGRAFT_STATS='off'), stdout=full,
                                  stderr=subprocess.DEVNULL, timeout=60)
        self.assertEqual(native.returncode, done.returncode)

    def test_a_pipe_as_report(self):
        """A named pipe whose reader leaves early: no signal, no other status."""
        folder = os.path.join(PROGRAMS, 'report-pipe-%d' % os.getpid())
        os.mkfifo(folder)
        reader = subprocess.Popen(['head', '-c', '1', folder], stdout=subprocess.DEVNULL)
        try:
            writer = os.open(folder, os.O_WRONLY)  # returns once the reader is there
            done = subprocess.run([program('faults_program'), NAME],
                                  env=environment(ALLOGRAFT_STATS=folder),
                                  stdout=subprocess.PIPE, timeout=60)
            reader.wait(timeout=60)
            os.close(writer)
        finally:
            reader.kill()
            reader.wait()
            os.unlink(folder)
        self.assertEqual(self.native.out, done.stdout.decode())
        self.assertEqual(self.native.status, done.returncode)

    def test_killed_at_any_time(self):
        """Whatever has been printed is the beginning of what is printed natively; nothing waits."""
        for i in range(12):
            process = subprocess.Popen([program('faults_program'), NAME],
                                       env=environment(ALLOGRAFT_STATS='off'),
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            time.sleep(i * 0.001)
            process.send_signal(signal.SIGKILL)
            out, _ = process.communicate(timeout=60)
            self.assertTrue(self.native.out.startswith(out.decode()), out)
            self.assertIn(process.returncode, (-signal.SIGKILL, self.native.status))

    def test_killed_while_reporting(self):
        """A report is there whole, or it is not JSON yet; the program's output is not touched."""
        path = os.path.join(PROGRAMS, 'killed-%d.json' % os.getpid())
        for i in range(6):
            process = subprocess.Popen([program('faults_program'), NAME],
                                       env=environment(ALLOGRAFT_STATS=path),
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            process.stdout.read()
            process.kill()
            process.stdout.close()
            process.wait(timeout=60)
            if os.path.exists(path):
                self.assertTrue(stat.S_ISREG(os.stat(path).st_mode))
                os.unlink(path)


if __name__ == '__main__':
    main()
