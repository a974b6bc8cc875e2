# `allograft top`: what it shows of running and dead processes, and that it leaves the terminal as it was.

import contextlib
import fcntl
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

from harness import COUNTERS, LIBRARY, RUNTIME, Case, but_under_tsan, clean_environment, main, preloaded, program

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

    def __init__(self, *command, **more):
        self.command, self.more = command or (LIFE, 'wait'), more

    def __enter__(self):
        env = environment(LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]), ALLOGRAFT_STATS='off', **self.more)
        self.process = subprocess.Popen(self.command, env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, universal_newlines=True)
        while self.process.stdout.readline() not in ('ready\n', ''):
            pass
        return self.process

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


try:
    sys.path.append(os.path.join(os.environ['TEST_ROOT'], 'build-deps', 'python'))
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None


def samples(text):
    """{(name, labels): value} of what is OpenMetrics by the letter, where its own parser is to be had."""
    if text_string_to_metric_families:
        return {(s.name, tuple(sorted(s.labels.items()))): s.value
                for family in text_string_to_metric_families(text) for s in family.samples}
    found = {}
    for line in text.splitlines():
        sample = re.fullmatch(r'(\w+)\{(.*)\} (\S+)', line)
        if sample:
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2])
            found[sample[1], tuple(sorted((k, re.sub(r'\\(.)', r'\1', v)) for k, v in labels))] = float(sample[3])
    return found


def of(found, sample, **labels):
    """Values of the samples of that name with these labels."""
    return [value for (its_name, its_labels), value in found.items()
            if its_name == 'allograft_' + sample and labels.items() <= dict(its_labels).items()]


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

    def finish(self, said=''):
        """Its exit status, once the other page and the hidden cursor are gone, and it has said so much after that."""
        self.read_until(r'\x1b\[\?7h\x1b\[\?25h\x1b\[\?1049l%s$' % said)
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

    def test_pinned_memory_that_is_kept(self):
        for more, kept in (({}, 0), ({'ALLOGRAFT_HOST': 'cache'}, 1 << 20)):
            with Running(program('preload_pinned'), 'hold', **more):
                row, = listed()
                self.assertEqual(row['pinned_kept_bytes'], kept)
                title, line = top('--once').stdout.splitlines()[1:3]
                self.assertEqual('1.00 MiB' in line, kept > 0, (title, line))

    @but_under_tsan
    def test_memory_that_moves(self):
        with Running(program('preload_paging'), 'hold', ALLOGRAFT_OOM='page', ALLOGRAFT_PAGE_PIECE='2MiB',
                     ALLOGRAFT_LIMIT='12MiB', ALLOGRAFT_LOG='error', SIM_SCHED='eager') as running:
            row, = listed()
            self.assertGreater(row['moved_in_bytes'], 4 << 20)
            self.assertGreater(row['moved_out_bytes'], 4 << 20)
            self.assertTrue(running)

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

    def test_a_folder_that_goes_is_said(self):
        folder = os.path.join(COUNTERS, 'goes')
        os.mkdir(folder)
        terminal = Terminal('--interval', '0.05', folder)
        terminal.read_until(PAGE)
        os.rmdir(folder)
        self.assertEqual(terminal.finish('allograft: %s: No such file or directory\r\n' % folder), (1, True))

    def test_words(self):
        for words in (['--no'], ['a', 'b'], ['--interval'], ['--interval', '0'], ['--interval', 'x'],
                      ['--interval', 'nan'], ['--interval', '1e9']):
            result = top(*words)
            self.assertEqual((result.returncode, result.stdout), (2, ''), words)
            self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertEqual(top('/no/such/folder').returncode, 1)
        self.assertIn('allograft top', top('--help').stdout)


def ask(method, path, address, port):
    connection = http.client.HTTPConnection(address, port, timeout=SECONDS)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def own_address():
    """One of this machine that others reach, or None. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(('192.0.2.1', 9))
            return one.getsockname()[0]
        except OSError:
            return None


# Processes of two users in a /dev/shm of their own, beside what others put there to mislead; then the metrics for root,
# for root with a folder named, and for one of the users.
USERS = '''
import os, subprocess, sys
command, life, preload = sys.argv[1:]
if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'mode=1777', 'none', '/dev/shm']).returncode:
    sys.exit(77)
os.chdir('/dev/shm')
os.mkdir('allograft-77', 0o700)
os.symlink('allograft-4321', 'allograft-79')
os.mkdir('allograft-80 ')
os.chown(os.open('allograft-4323', os.O_CREAT), 4323, 4323)
running = [subprocess.Popen([life, 'wait'], user=uid, env=dict(os.environ, LD_PRELOAD=preload, ALLOGRAFT_STATS='off'),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE) for uid in (4321, 4322)]
if not all(b'ready\\n' in iter(one.stdout.readline, b'') for one in running):
    sys.exit(77)
other, = os.listdir('allograft-4321')
os.symlink('../allograft-4321/' + other, 'allograft-4322/' + other)
for user, setting in ((0, {}), (0, {'ALLOGRAFT_COUNTERS': '/dev/shm/allograft-4322'}), (4321, {})):
    subprocess.run([command, 'top', '--prometheus', '-'], user=user, env=dict(os.environ, **setting), check=True)
for one in running:
    one.stdin.close()
    one.wait()
'''


class Metrics(Case):
    def setUp(self):
        shutil.rmtree(COUNTERS, ignore_errors=True)
        os.mkdir(COUNTERS, 0o700)
        self.file = os.path.join(COUNTERS, 'metrics.prom')

    def start(self, where):
        process = subprocess.Popen([COMMAND, 'top', '--prometheus', where, '--interval', '0.05'], env=environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   universal_newlines=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_nobody_runs(self):
        shown = top('--prometheus', '-')
        self.assertEqual((shown.returncode, shown.stderr, samples(shown.stdout)), (0, '', {}))
        self.assertTrue(shown.stdout.endswith('# EOF\n'))

    def test_counts(self):
        preloaded([EXITS, 'kill'])  # which runs no more
        with Running() as running, Running() as other:
            found = samples(top('--prometheus', '-').stdout)
            slots = self.slots(found)
            self.assertEqual(set(slots), {running.pid, other.pid})
            mine = {'uid': str(os.getuid()), 'program': 'preload_lives', 'slot': slots[running.pid]}
            self.assertEqual(of(found, 'process_info', simulated='yes', **mine), [1])
            self.assertEqual(of(found, 'allocations_total', device='0', placement='native', **mine), [3])
            self.assertEqual(of(found, 'memory_bytes', **mine), [0])
            self.assertEqual(of(found, 'memory_peak_bytes', **mine), [1 << 20])
            self.assertEqual(of(found, 'counter_total', group='calls', name='redirected', **mine), [3])
            self.assertGreater(of(found, 'elapsed_seconds', **mine)[0], 0)
            self.assertEqual(of(found, 'allocation_seconds_total'), [])  # simulated
            self.assertEqual([value for value in of(found, 'counter_total') if value == 0], [])
            for family in ('sticky_error', 'not_redirecting', 'damaged_blocks_total', 'spilled_allocations_total'):
                self.assertEqual(of(found, family, **mine), [0], family)

    @staticmethod
    def slots(found):
        """{pid: slot} of the processes."""
        infos = [dict(labels) for name, labels in found if name == 'allograft_process_info']
        return {int(labels['pid']): labels['slot'] for labels in infos}

    def test_processes_that_come_and_go_add_no_series(self):
        """Their numbers are labels of one family alone, and a process keeps its slot while it lives."""
        def series():
            return {(name, labels) for name, labels in self.written() if name != 'allograft_process_info'}

        process, seen, keeps = self.start(self.file), set(), None
        with contextlib.ExitStack() as stay:
            first = stay.enter_context(contextlib.ExitStack())
            first.enter_context(Running())
            second = stay.enter_context(Running())
            # A file that was written while the second one started has not all of its counters yet.
            self.until(lambda: of(self.written(), 'allocations_total', device='0', placement='native') == [3, 3])
            keeps, seen = self.slots(self.written())[second.pid], series()
            self.assertEqual({keeps, *self.slots(self.written()).values()}, {'0', '1'})
            first.close()
            self.until(lambda: self.slots(self.written()) == {second.pid: keeps})
            for _ in range(3):
                with Running() as next_one:
                    self.until(lambda: next_one.pid in self.slots(self.written()))  # noqa: B023
                    self.assertEqual(self.slots(self.written())[second.pid], keeps)
                    self.assertLessEqual(series(), seen)
        for name, labels in seen:
            self.assertLessEqual({key for key, _ in labels},
                                 {'uid', 'program', 'rank', 'slot', 'device', 'placement', 'group', 'name'}, name)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(SECONDS), 0)

    def test_a_rank_of_512_is_small(self):
        """A database keeps every series: of a rank, the families, and those of its counters that count."""
        with Running():
            found = samples(top('--prometheus', '-').stdout)
        self.assertLess(len(found), 60)

    def test_odd_names(self):
        odd = os.fsencode(COUNTERS) + b'/a "b\\c} \xc3\xa9\xff'  # of which the last byte is no UTF-8
        os.symlink(LIFE, odd)
        env = environment(LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]), ALLOGRAFT_STATS='off')
        with subprocess.Popen([odd, 'wait'], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              universal_newlines=True) as process:
            while process.stdout.readline() not in ('ready\n', ''):
                pass
            found = samples(top('--prometheus', '-').stdout)
            process.stdin.close()
        self.assertEqual(of(found, 'process_info', program='a "b\\c} é\ufffd'), [1])

    def test_file_is_kept_up_to_date(self):
        process = self.start(self.file)
        with Running() as running:
            self.until(lambda: of(self.written(), 'process_info', pid=str(running.pid)))
        self.until(lambda: not self.written())
        process.send_signal(signal.SIGTERM)
        self.assertEqual((process.wait(SECONDS), process.stderr.read()), (0, ''))
        self.assertEqual([name for name in os.listdir(COUNTERS) if 'part' in name], [])

    def written(self):
        if not os.path.exists(self.file):
            return {}
        with open(self.file, encoding='utf-8') as file:
            return samples(file.read())

    def until(self, holds):
        deadline = time.monotonic() + SECONDS
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(.02)

    def test_once_into_a_file_of_its_own_kind(self):
        for _ in range(2):
            self.assertEqual(top('--once', '--prometheus', self.file).returncode, 0)
        with open(self.file, 'w', encoding='utf-8') as file:
            file.write('dear diary\n')
        refused = top('--once', '--prometheus', self.file)
        self.assertEqual(refused.returncode, 1)
        self.assertIn('this is another kind of file, not a file of metrics', refused.stderr)
        self.assertNotIn('--force', refused.stderr)  # which `top` does not have

    def test_served(self):
        process = self.start('0')
        line = process.stdout.readline()
        if not line:
            self.assertIn('built without libmicrohttpd', process.stderr.read())
            self.skipTest('the command was built without libmicrohttpd')
        port = int(re.fullmatch(r'http://127\.0\.0\.1:(\d+)/metrics\n', line)[1])
        if own_address():  # other machines do not see it
            self.assertRaises(OSError, ask, 'GET', '/metrics', own_address(), port)

        with Running() as running:
            answer, body = ask('GET', '/metrics', '127.0.0.1', port)
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.headers['Content-Type'],
                             'application/openmetrics-text; version=1.0.0; charset=utf-8')
            self.assertEqual(self.slots(samples(body)), {running.pid: '0'})
            self.assertEqual(of(samples(body), 'allocations_total'), [3])
        self.assertEqual(samples(ask('GET', '/metrics', '127.0.0.1', port)[1]), {})
        self.assertEqual([ask(*words, '127.0.0.1', port)[0].status for words in (('GET', '/'), ('POST', '/metrics'), ('HEAD', '/metrics'))],
                         [404, 405, 200])
        taken = top('--prometheus', port)
        self.assertEqual(taken.returncode, 1)
        self.assertIn('port %d cannot be listened on' % port, taken.stderr)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(SECONDS), 0)

    def test_served_to_other_machines(self):
        for where, address in (('0.0.0.0:0', own_address()), ('[::]:0', own_address()), ('[::1]:0', '::1')):
            process = self.start(where)
            line = process.stdout.readline()
            if not line:
                said = process.stderr.read()
                self.assertRegex(said, 'built without libmicrohttpd|cannot be listened on')
                continue  # nor is IPv6 everywhere
            self.assertTrue(line.startswith('http://%s:' % where[:-2]), line)
            if address:
                answer, body = ask('GET', '/metrics', address, int(line.split(':')[-1].split('/')[0]))
                self.assertEqual((answer.status, samples(body)), (200, {}))
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(SECONDS), 0)

    def test_root_sees_all_users(self):
        if os.geteuid():
            self.skipTest('only root sees all users')
        env = {key: value for key, value in environment().items() if key != 'ALLOGRAFT_COUNTERS'}
        done = subprocess.run(['unshare', '-m', sys.executable, '-c', USERS, COMMAND, LIFE, ':'.join(RUNTIME + [LIBRARY])],
                              env=env, timeout=SECONDS, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        if done.returncode == 77:
            self.skipTest('no such processes can be started here')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        parts = [samples(part + '# EOF\n') for part in done.stdout.split('# EOF\n')[:-1]]
        users = [sorted(dict(labels)['uid'] for name, labels in part if name == 'allograft_process_info') for part in parts]
        self.assertEqual(users, [['4321', '4322'], ['4322'], ['4321']])

    def test_bad_options(self):
        for words, said in ((['--prometheus', '65536'], 'allowed: a port from 0 to 65535, an address'),
                            (['--prometheus', '9' * 30], 'allowed: a port from 0 to 65535, an address'),
                            (['--prometheus', 'localhost:9400'], 'an address in figures before it, as in 0.0.0.0:9400'),
                            (['--prometheus', ':9400'], 'or a file, which is ./:9400 if that is its name'),
                            (['--prometheus', '[::1:9400'], 'an address in figures before it'),
                            (['--prometheus', '1.2.3.4:99999'], 'an address in figures before it'),
                            (['--prometheus', '9400', '--once'], '--once goes with a file, and --prometheus=9400 is a port'),
                            (['--prometheus', '-', '--json'], '--prometheus cannot be used together with --json or --clean')):
            with self.subTest(words=words):
                refused = top(*words)
                self.assertEqual((refused.returncode, refused.stdout), (2, ''))
                self.assertIn(said, refused.stderr)


if __name__ == '__main__':
    main()
