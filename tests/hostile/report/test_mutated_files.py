# Reports, counters and traces that were changed in a few places, by every command that reads files: it shows them, or
# says in a line what is wrong with which; it does not crash, hang, or steer the terminal.

import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from hostile import COUNTERS, PROGRAMS, RUNTIME, SOME, Case, clean_environment, main, often, preloaded

COMMAND = os.environ['TEST_COMMAND']
EXITS = os.path.join(PROGRAMS, '..', 'preload', 'preload_exits')
SEED = int(os.environ.get('TEST_SEED', '1'))
HEAD = 24  # bytes of a file of counters that say what build it is of
TIMEOUT = 60  # seconds; a command takes some thousandths

# What a number, a length or an offset should not be.
NUMBERS = [b'\0' * 8, b'\xff' * 8, b'\xff\xff\xff\x7f', b'\0' * 7 + b'\x80', b'\x01\0\0\0', b'\xfe\xff\xff\xff']
WORDS = [b'1e999', b'-1', b'18446744073709551615', b'9223372036854775808', b'null', b'"', b'{', b']', b'\\u0000',
         b'\xc2\x9b31m', b'\x1b[2J', b'</script><b>', b'%s%n', b'[' * 3000, b'']


def mutate(dice, whole, kept=0):
    """The content with some changes, most of them where most of the meaning is. With `kept`, that many bytes at the begin
    and the length stay mostly as they are: else little is looked at behind them."""
    content = bytearray(whole)
    for _ in range(dice.choice((1, 1, 2, 4, 30))):
        at = dice.randrange(min(len(content), dice.choice((600, 4000, 60000, len(content)))) or 1)
        way = dice.randrange(7)
        if way == 0:
            content[at:at + 1] = bytes([content[at] ^ 1 << dice.randrange(8)]) if content else b''
        elif way == 1:
            number = dice.choice(NUMBERS)
            content[at & ~3:(at & ~3) + len(number)] = number
        elif way == 2:
            content[at:at + dice.randrange(9)] = dice.choice(WORDS)
        elif way == 3:
            width = dice.randrange(1, 400)
            content[at:at + width] = bytes([dice.choice((0, 0xff, 0x1b, 0x41, dice.randrange(256)))]) * width
        elif way == 4:  # a part once more, where it does not belong
            begin = dice.randrange(len(content) or 1)
            part = content[begin:begin + dice.choice((8, 64, 512))]
            content[at:at + len(part)] = part
        elif way == 5 and dice.random() < .3:
            del content[at:]
        else:
            digits = [match for match in re.finditer(rb'\d+', content[at:at + 300])]
            if digits:
                where = dice.choice(digits)
                content[at + where.start():at + where.end()] = dice.choice(WORDS)
    if kept and dice.random() < .9:
        content = whole[:kept] + content[kept:len(whole)] + whole[len(content):]
    return bytes(content)


class Mutated(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix='mutated-')
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.good_report, cls.good_trace = cls.path('good.json'), cls.path('good.trace')
        shutil.rmtree(COUNTERS, ignore_errors=True)
        os.mkdir(COUNTERS, 0o700)
        settings = {'ALLOGRAFT_RULES': 'size>=1:pool', 'ALLOGRAFT_GRAPH': 'all'}
        done = preloaded([EXITS, 'return'], {**settings, 'ALLOGRAFT_STATS': cls.good_report,
                                             'ALLOGRAFT_TRACE': cls.good_trace})
        killed = preloaded([EXITS, 'kill'], settings)
        if (done.status, killed.status, len(os.listdir(COUNTERS))) != (2, -signal.SIGKILL, 1):  # 2 is how it returns
            raise AssertionError('no files to begin with: %d %s %d %s' % (done.status, done.err, killed.status, killed.err))
        cls.name, = os.listdir(COUNTERS)
        cls.good_counters = shutil.move(os.path.join(COUNTERS, cls.name), cls.path(cls.name))

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    def run_command(self, *words):
        env = clean_environment()
        if RUNTIME:
            env['ASAN_OPTIONS'] = 'detect_leaks=1:abort_on_error=1:handle_sigill=1'
            env['UBSAN_OPTIONS'] = 'print_stacktrace=1:halt_on_error=1:abort_on_error=1'
        return subprocess.run([COMMAND, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=TIMEOUT, check=False)

    def check(self, bad, *words):
        done = self.run_command(*words)
        said = done.stderr.decode('utf-8', 'replace')
        self.assertIn(done.returncode, (0, 1), said[:2000])
        self.assertNotRegex(said, r'[\x00-\x09\x0b-\x1f\x7f-\x9f]')
        if done.returncode:
            self.assertRegex(said, r'\Aallograft: [^\n]*%s[^\n]*\n\Z' % re.escape(os.path.basename(bad)))
        for line in said.splitlines():
            self.assertTrue(line.startswith('allograft: '), line)
        if done.returncode == 0 and '--html' in words:
            self.assertTrue(done.stdout.endswith(b'</html>\n'))
        elif done.returncode == 0 and ('--json' in words or '--perfetto' in words):
            json.loads(done.stdout)
        else:
            self.assertNotRegex(done.stdout.decode('utf-8', 'replace'), r'[\x00-\x09\x0b-\x1f\x7f-\x9f]')

    def each(self, good, name, *commands, kept=0):
        """Every command on files that are nearly the good one; BAD stands for such a file."""
        with open(good, 'rb') as file:
            content = file.read()
        self.check(good, *[good if word == 'BAD' else word for word in commands[0]])
        dice, bad = random.Random('%d %s' % (SEED, name)), self.path('bad-' + name)
        for turn in range(often(15 if SOME else 100)):
            with open(bad, 'wb') as file:
                file.write(mutate(dice, content, kept))
            for words in commands:
                with self.subTest(seed=SEED, turn=turn, words=words):
                    self.check(bad, *[bad if word == 'BAD' else word for word in words])

    def test_reports(self):
        self.each(self.good_report, 'a.json', ('report', 'BAD'), ('report', '--html', '-', 'BAD', self.good_report),
                  ('report', '--json', 'BAD', self.good_counters), ('diff', 'BAD', self.good_report),
                  ('diff', '--json', self.good_counters, 'BAD'))

    def test_counters(self):
        self.each(self.good_counters, 'a.counters', ('report', 'BAD'), ('report', '--html', '-', 'BAD'),
                  ('report', '--json', 'BAD', self.good_report), ('diff', self.good_report, 'BAD'),
                  ('diff', '--json', 'BAD', self.good_counters), kept=HEAD)

    def test_traces(self):
        self.each(self.good_trace, 'a.trace', ('trace', 'BAD'), ('trace', '--perfetto', '-', 'BAD'),
                  ('trace', '--csv', 'rmm', 'BAD'), ('report', '--html', '-', self.good_report, 'BAD'))

    def test_folders(self):
        """`report` and `top` look at all files of a folder; what is none of theirs they pass over."""
        with open(self.good_counters, 'rb') as file:
            content = file.read()
        dice, folder = random.Random('%d folder' % SEED), tempfile.mkdtemp(dir=self.folder)
        for turn in range(often(5 if SOME else 30)):
            with open(os.path.join(folder, self.name), 'wb') as file:
                file.write(mutate(dice, content, HEAD))
            for words in (('top', '--once', folder), ('top', '--once', '--json', folder), ('report', '--all', folder)):
                with self.subTest(seed=SEED, turn=turn, words=words):
                    done = self.run_command(*words)
                    self.assertIn(done.returncode, (0, 1), done.stderr[:2000])
                    self.assertLessEqual(len(done.stderr.splitlines()), 1, done.stderr[:2000])
                    self.assertNotRegex(done.stdout.decode('utf-8', 'replace'), r'[\x00-\x09\x0b-\x1f\x7f-\x9f]')


if __name__ == '__main__':
    main()
