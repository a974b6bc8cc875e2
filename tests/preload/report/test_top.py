# `allograft top`: what it shows of running and dead processes, and that it leaves the terminal as it was.

import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

from harness import COUNTERS, LIBRARY, RUNTIME, Case, clean_environment, main, preloaded, program

COMMAND = os.environ['TEST_COMMAND']
EXITS = program('preload_exits')
LIFE = program('preload_lives')
SECONDS = 60


def environment(**more):
    env = clean_environment()
    env.update({'ALLOGRAFT_COUNTERS': COUNTERS}, **more)
    return env


def top(*words, **more):
    return subprocess.run([COMMAND, 'top', *map(str, words)], env=environment(**more), timeout=SECONDS,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)


def listed(*words):
    return json.loads(top('--json', *words).stdout)['processes']


class Running:
    """A process with memory, for as long as the block lasts."""

    def __enter__(self):
        env = environment(LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]), ALLOGRAFT_STATS='off')
        self.process = subprocess.Popen([LIFE, 'wait'], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, universal_newlines=True)
        while self.process.stdout.readline() not in ('ready\n', ''):
            pass
        return self.process

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Terminal:
    """`allograft top` on a terminal of its own, which nobody else has."""

    def __init__(self, *words, columns=100, lines=10):
        self.master, self.slave = os.openpty()
        self.resize(columns, lines)
        self.mode = termios.tcgetattr(self.slave)
        self.seen = ''
        # Its own session, with the terminal as its own: so resizing sends it a signal.
        code = ('import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);'
                'os.execv(sys.argv[1], sys.argv[1:])')
        self.process = subprocess.Popen([sys.executable, '-c', code, COMMAND, 'top', *words],
                                        env=environment(TERM='dumb'), stdin=self.slave,
                                        stdout=self.slave, stderr=self.slave)

    def resize(self, columns, lines):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack('HHHH', lines, columns, 0, 0))

    def read_until(self, pattern):
        """What came until the pattern did; it is not seen again."""
        deadline = time.monotonic() + SECONDS
        while not re.search(pattern, self.seen, re.DOTALL):
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError('%s did not come: %r' % (pattern, self.seen[-600:]))
            self.seen += os.read(self.master, 65536).decode()
        end = re.search(pattern, self.seen, re.DOTALL).end()
        text, self.seen = self.seen[:end], self.seen[end:]
        return text

    def type(self, keys):
        os.write(self.master, keys)

    def finish(self):
        """Its exit status, once the other page and the hidden cursor are gone."""
        self.read_until(r'\x1b\[\?7h\x1b\[\?25h\x1b\[\?1049l$')
        status = self.process.wait(timeout=SECONDS)
        same = termios.tcgetattr(self.slave) == self.mode
        os.close(self.master)
        os.close(self.slave)
        return status, same


PAGE = r'allograft top: [^\r]*\x1b\[K\r\n.*?\x1b\[J'


def lines_of(page):
    text = re.sub(r'\x1b\[[?0-9]*[a-zA-Z]', '', page[page.rindex('\x1b[H'):])
    return text.split('\r\n')


class Top(Case):
    def setUp(self):
        shutil.rmtree(COUNTERS, ignore_errors=True)
        os.mkdir(COUNTERS, 0o700)

    def test_nothing(self):
        for words in ((), ('--once',)):
            result = top(*words)
            self.assertEqual((result.returncode, result.stderr), (0, ''))
            self.assertEqual(result.stdout.splitlines()[0], 'allograft top: 0 running with 0 B, 0 dead')
        self.assertEqual(listed(), [])
        result = top('--json', ALLOGRAFT_COUNTERS=os.path.join(COUNTERS, 'no'))
        self.assertEqual((result.returncode, json.loads(result.stdout)['processes']), (0, []))

    def test_running(self):
        with Running() as running:
            row, = listed()
            self.assertEqual((row['pid'], row['state'], row['alive']), (running.pid, 'running', True))
            self.assertEqual((row['program'], row['rank']), ('preload_lives', None))
            self.assertEqual((row['allocs'], row['replay']), (3, False))
            self.assertEqual(row['allocs'], row['cache_hits'] + row['cache_misses'])
            self.assertGreater(row['memory']['native']['peak_bytes'], 0)
            self.assertEqual(row['frees'], 3)
            self.assertGreater(row['allocs_per_s'], 0)
            self.assertGreater(row['elapsed_ns'], 0)
            text = top('--once').stdout
            self.assertRegex(text, r'allograft top: 1 running with [0-9.]+ [KM]?i?B, 0 dead, 1 simulated: times mean nothing\n')
            self.assertRegex(text, r'\n *%d .* preload_lives +running ' % running.pid)
            # Between two looks it did nothing.
            row, = listed('--interval', '0.05')
            self.assertEqual((row['allocs'], row['allocs_per_s'], row['alloc_bytes_per_s']), (3, 0, 0))

    def test_dead(self):
        preloaded([EXITS, 'kill'])
        with Running() as running:
            rows = listed()
            self.assertEqual([(row['state'], row['alive']) for row in rows], [('running', True), ('killed', False)])
            self.assertEqual((rows[1]['allocs_per_s'], rows[1]['elapsed_ns']), (0, 0))
            self.assertIn('1 running', top('--clean').stdout)
            row, = listed('--clean')
            self.assertEqual(row['pid'], running.pid)
            self.assertEqual(len(os.listdir(COUNTERS)), 1)

    def test_files_that_are_none(self):
        for i, content in enumerate((b'', b'x' * 1000, b'{"schema":"allograft-stats/1"}', b'AGSTATS\0' + b'\xff' * 90000)):
            with open(os.path.join(COUNTERS, '%016x-%d-%d-0.counters' % (i, 99999999 - i, 77)), 'wb') as file:
                file.write(content)
        os.mkfifo(os.path.join(COUNTERS, '%016x-%d-%d-0.counters' % (9, 99999990, 77)))
        result = top('--json')
        self.assertEqual((result.returncode, result.stderr), (0, ''))
        self.assertEqual(json.loads(result.stdout), {'schema': 'allograft-top/1', 'other_builds': 1, 'processes': []})
        self.assertIn('1 from other builds', top().stdout)

    def test_refreshes_in_place(self):
        preloaded([EXITS, 'kill'])
        terminal = Terminal('--interval', '0.05')
        first = terminal.read_until(PAGE)
        self.assertTrue(first.startswith('\x1b[?1049h\x1b[?25l'), first)
        self.assertIn('1 dead', lines_of(first)[0])
        os.unlink(os.path.join(COUNTERS, os.listdir(COUNTERS)[0]))
        terminal.read_until('0 dead')
        terminal.type(b'xq')
        self.assertEqual(terminal.finish(), (0, True))

    def test_keeps_to_the_terminal(self):
        for _ in range(4):
            preloaded([EXITS, 'kill'])
        terminal = Terminal('--interval', '3600', columns=60, lines=4)
        page = lines_of(terminal.read_until(PAGE))
        self.assertLessEqual(max(map(len, page)), 60)
        self.assertEqual(len(page), 4)
        for columns, lines in ((200, 30), (20, 3), (8, 1), (1, 2)):
            terminal.resize(columns, lines)
            page = lines_of(terminal.read_until(r'\x1b\[H[^\x1b]*.*?\x1b\[J'))
            self.assertLessEqual(max(map(len, page)), columns, page)
            self.assertLessEqual(len(page), lines)
        terminal.type(b'Q')
        self.assertEqual(terminal.finish(), (0, True))

    def test_leaves_the_terminal_as_it_was(self):
        for end in (lambda t: t.type(b'\x03'), lambda t: t.process.terminate(),
                    lambda t: t.process.send_signal(signal.SIGHUP)):
            terminal = Terminal('--interval', '3600')
            terminal.read_until(PAGE)
            self.assertNotEqual(termios.tcgetattr(terminal.slave), terminal.mode)
            end(terminal)
            self.assertEqual(terminal.finish(), (0, True))

    def test_words(self):
        for words in (['--no'], ['a', 'b'], ['--interval'], ['--interval', '0'], ['--interval', 'x'],
                      ['--interval', 'nan'], ['--interval', '1e9']):
            result = top(*words)
            self.assertEqual((result.returncode, result.stdout), (2, ''), words)
            self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertEqual(top('/no/such/folder').returncode, 1)
        self.assertIn('allograft top', top('--help').stdout)


if __name__ == '__main__':
    main()
