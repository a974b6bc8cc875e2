# Environments, files of settings, limits and folders that mean harm, drawn at random: the program does what it does
# natively. A failure names the seed that drew it: SURROUNDINGS_SEED=7 tries that one alone.

import json
import os
import random
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import unittest

from hostile import (COUNTERS, LIBRARY, RUNTIME, SCHEMA, Case, clean_environment, main, often, preloaded, problems,
                     program, run, some)

COMMAND = os.environ['TEST_COMMAND']
REPORTS = program('hostile_reports')
with open(os.path.join(os.environ['TEST_ROOT'], 'interpose', 'core', 'settings', 'options.def'), encoding='utf-8') as options:
    ROWS = re.findall(r'^AG_OPTION\(\w+, (\w+), (\w+), "([^"]*)", "([^"]*)"', options.read(), re.MULTILINE)

# What the simulated driver takes of a machine natively, ends the comparison: no limit on address space here.
LIMITS = [['--nofile=%d' % n] for n in (5, 8, 64)] + [['--core=0'], ['--memlock=0'], ['--sigpending=0'],
                                                     ['--msgqueue=0'], ['--stack=262144'], ['--nice=0', '--rtprio=0']]
BYTES = [chr(n) for n in range(1, 256)]


def seeds(n):
    wanted = os.environ.get('SURROUNDINGS_SEED')
    return [int(wanted)] if wanted else some(range(often(n)), max(1, n // 6))


def garbage(draw):
    """Text that nobody meant; without '/', so that as a name it stays in the folder of the run."""
    kind = draw.random()
    if kind < 0.3:
        text = ''.join(draw.choice(BYTES) for _ in range(draw.randrange(40)))
    elif kind < 0.5:
        text = draw.choice(['%', '%s%n', '%p' * 99, ';', ',', ':', '=', '-1', '0x10', '1e9', ' ', '\t', '*', '..'])
    elif kind < 0.6:
        text = 'x' * draw.choice([255, 256, 4095, 4096, 70000])
    else:
        text = draw.choice(['99999999999999999999', '1.5.5GiB', 'POOL', 'pool|native', '101%', '\u00e4\u00f6', 'off ', '*:'])
    return text.replace('/', '_')


def value(draw, kind, preset, allowed):
    """A value for a row of the list: good or nearly so, mostly."""
    words = [w for w in allowed.split('|') if re.fullmatch('[a-z0-9]+', w)] + [preset]
    if draw.random() < 0.06:
        return garbage(draw)
    if kind == 'SIZE':
        return draw.choice(['0', '1', '64KiB', '1MiB', '25%', '100%', 'max', '1.5GiB'])
    if kind == 'BYTES':
        return draw.choice(['4KiB', '64KiB', '1MiB', '1GiB', '1'])
    if kind == 'COUNT':
        return draw.choice(['1', '2', '64', '1000', preset, preset, '0', '60000000'])
    if kind == 'RULES':
        return draw.choice(['*:pool', 'size>1KiB:managed', 'nth=1:native;*:pool', 'from=lib*:native', 'thread=x:pool', ''])
    if kind == 'STREAMS':
        return draw.choice(['all', 'legacy', 'nth:1', 'legacy,nth:2', 'off'])
    if kind in ('PATH', 'TEXT'):
        return draw.choice(words + ['file', 'file.json', 'none/file', '.', '%p.%h.%n.%r', '/dev/null', '/dev/full'])
    return draw.choice(words)


def settings_of(draw, most=8):
    """Variables of ours. No limit on memory, which would be meant to change what the program gets."""
    rows = [row for row in draw.sample(ROWS, draw.randrange(most)) if row[0] != 'LIMIT']
    chosen = {'ALLOGRAFT_' + name: value(draw, kind, preset, allowed) for name, kind, preset, allowed in rows}
    if draw.random() < 0.2:
        chosen['ALLOGRAFT_' + re.sub('[^A-Z_]', 'X', garbage(draw).upper())[:60]] = garbage(draw)
    return chosen


def surroundings_of(draw):
    """Variables of everybody's."""
    chosen = {}
    for name, values in (('LANG', ['C', 'de_DE.UTF-8', garbage(draw)]), ('LC_ALL', ['POSIX', 'tr_TR.UTF-8', 'x' * 300]),
                         ('TZ', [':/etc/localtime', garbage(draw)]), ('HOME', ['', '/no/such']),
                         ('RANK', ['3', '-1', '99999999999', garbage(draw)]), ('SLURM_PROCID', ['0', 'x']),
                         ('TMPDIR', ['/no/such', '']), ('MALLOC_PERTURB_', ['165']), ('LD_BIND_NOW', ['1', '']),
                         ('NVTX_INJECTION64_PATH', ['', '/no/such.so']), ('PADDING', ['x' * 100000])):
        if draw.random() < 0.25:
            chosen[name] = draw.choice(values)
    return chosen


def config_of(draw):
    """A file of settings, and then some of its bytes are others."""
    lines = []
    for name, kind, preset, allowed in draw.sample(ROWS, draw.randrange(len(ROWS))):
        if name not in ('LIMIT', 'CONFIG', 'DISABLE'):
            lines.append('%s%s=%s' % (draw.choice(['', 'ALLOGRAFT_', ' ']), name, value(draw, kind, preset, allowed)))
    text = bytearray(draw.choice(['\n', '\r\n', '\n\n# \n']).join(lines).encode('utf-8', 'surrogateescape'))
    for _ in range(draw.choice([0, 0, 1, 5, 40])):
        if text:
            text[draw.randrange(len(text))] = draw.choice([0, 10, 32, 35, 61, 255, draw.randrange(256)])
    # As a name, whatever became of it stays in the folder; and a limit may have come into being.
    return bytes(text).replace(b'/', b'_').replace(b'LIMIT', b'TIMIL')


class Surroundings(Case):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def tried(self, seed, settings, before=()):
        """The program natively and preloaded, in a folder of its own; says nothing but lines, and the report."""
        folder = tempfile.mkdtemp(dir=self.folder.name)
        command = [*before, 'env', '-C', folder, REPORTS, 'returns']
        with self.subTest(SURROUNDINGS_SEED=seed, settings=settings, before=before):
            native = run(command, settings)
            self.sane(native)
            result = preloaded(command, settings, stats=None)
            self.assertEqual((native.status, native.out), (result.status, result.out), result.err)
            for name in os.listdir(folder):
                content = read_everything(os.path.join(folder, name))
                if name.endswith('.json') and content is not None and not content.startswith(b'AGTRACE'):
                    self.assertEqual(problems(json.loads(content), SCHEMA, closed=True), [])
            return result

    def test_environments(self):
        for seed in seeds(90):
            draw = random.Random(seed)
            settings = {**surroundings_of(draw), **settings_of(draw)}
            self.tried(seed, settings)

    def test_files_of_settings(self):
        for seed in seeds(90):
            draw = random.Random(seed)
            path = os.path.join(self.folder.name, 'settings')
            with open(path, 'wb') as file:
                file.write(config_of(draw))
            result = self.tried(seed, {'ALLOGRAFT_CONFIG': path})
            if result:
                self.assertNotIn('\0', result.err)

    @unittest.skipIf(RUNTIME, 'a sanitizer needs more than these leave')
    @unittest.skipUnless(shutil.which('prlimit'), 'prlimit is not installed')
    def test_limits(self):
        for seed in seeds(36):
            draw = random.Random(seed)
            limits = sorted({word for words in draw.sample(LIMITS, draw.randrange(1, 4)) for word in words})
            limits = [limit for limit in limits if limit.split('=')[0] not in
                      [other.split('=')[0] for other in limits[:limits.index(limit)]]]
            self.tried(seed, settings_of(draw, 4), before=['prlimit', *limits])


# Names of counters that are none: of the dead, of the living, of other containers.
NAMES = ['%016x-%d-%d-%d%s.counters' % (n, pid, n, space, mark) for n in range(4) for pid in (1, 99999999, os.getpid())
         for space in (0, 4026531836, 7) for mark in ('', '-unlocked')] + ['notes', '.counters', 'x' * 200]


def squat(draw, folder):
    """Makes something of a drawn name that is no file of counters."""
    path = os.path.join(folder, draw.choice(NAMES))
    if os.path.lexists(path):
        return
    kind = draw.randrange(6)
    if kind == 0:
        os.mkdir(path)
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        os.symlink(draw.choice(['/dev/zero', '/no/such', path, '/', '/etc/passwd']), path)
    else:
        with open(path, 'wb') as file:
            file.write(draw.choice([b'', b'AGSTATS\0', draw.randbytes(5000), b'\0' * 100000]))
        os.chmod(path, draw.choice([0, 0o600, 0o444]))


def read_everything(path):
    """What stands there: it must be the same afterwards where it is none of ours."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return None
    with open(path, 'rb') as file:
        return file.read()


class Folders(Case):
    """Where counters are to lie, somebody else was first."""

    def test_full_of_other_things(self):
        for seed in seeds(24):
            draw = random.Random(seed)
            with self.subTest(SURROUNDINGS_SEED=seed), tempfile.TemporaryDirectory(dir=COUNTERS) as folder:
                for _ in range(draw.choice([1, 20, 60])):
                    squat(draw, folder)
                before = {name: read_everything(os.path.join(folder, name)) for name in os.listdir(folder)}
                way = draw.choice(['returns', 'killed'])
                native = run([REPORTS, way])
                result = preloaded([REPORTS, way], {'ALLOGRAFT_COUNTERS': folder})
                self.assertEqual((native.status, native.out, native.err), (result.status, result.out, result.err))
                for name in set(before) & set(os.listdir(folder)):
                    self.assertEqual(before[name], read_everything(os.path.join(folder, name)))
                self.looked_at(folder, way == 'killed')

    def looked_at(self, folder, killed):
        """The command takes out what it knows, and says of the rest what it is, in lines."""
        env = dict(clean_environment(), ALLOGRAFT_COUNTERS=folder)
        for words in (['report'], ['report', '--all', '--json'], ['top', '--once'], ['report', '--clean']):
            done = subprocess.run([COMMAND, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=60)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            for line in done.stderr.decode('utf-8', 'replace').splitlines():
                self.assertTrue(line.startswith('allograft: '), line)
            if killed:
                self.assertIn(b'hostile_report', done.stdout, words)


# Shells and tools, in the ways in which people begin programs. What is not installed is left out.
SCRIPTS = [
    ('sh', 'for i in 1 2 3; do (echo $i; exit $i) || echo not $?; done | sort -r; trap "echo bye" EXIT; false'),
    ('bash', 'diff <(echo a) <(echo b); coproc cat; echo hi >&"${COPROC[1]}"; read -ru "${COPROC[0]}" x; echo $x; kill %1'),
    ('bash', 'exec 2>&-; echo lost >&2; exec 3< <(seq 5); cat <&3; ulimit -n 20; ls / | head -n 1; wait; echo $?'),
    ('bash', 'sleep 100 & kill -9 $!; wait $!; echo $?; (exec -a other sh -c "echo \\$0"); exec sh -c "exit 7"'),
    ('bash', 'cd /; for f in /etc/host*; do test -r $f && wc -c < $f; done; printf "%s\\0" a b | xargs -0 -n 1 echo'),
    ('sh', 'echo "all: a b\n\ta:; @echo a\n" > /dev/null; printf "all: ; @echo made; exit 0\n" | make -s -f -'),
    ('sh', 'tar -C /etc -cf - hostname | tar -tf -; echo x | gzip -c | gunzip -c; echo 3 4 | awk "{ print \\$1 * \\$2 }"'),
    ('sh', 'find /etc -maxdepth 1 -name "host*" | sort | xargs -n 1 basename; env -i /bin/echo cleared; timeout 5 true'),
    ('sh', 'git --version; perl -e \'if (!fork) { exec "echo", "child" } wait; print "parent\\n"; exit 3\''),
]
PYTHON = '''
import ctypes, multiprocessing, os, subprocess, sys, threading
print(subprocess.run(["sh", "-c", "echo $0; exit 4", "inner"], stdout=subprocess.PIPE).returncode)
print(multiprocessing.get_context("fork").Pool(2).map(abs, [-1, -2]))
threads = [threading.Thread(target=os.getpid) for _ in range(8)]
[t.start() for t in threads], [t.join() for t in threads]
pid = os.fork()
if not pid:
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), ctypes.CDLL(None).abs(-3))
os.execvp("sh", ["sh", "-c", "exit 6"])
'''


@unittest.skipIf(RUNTIME, 'a sanitizer does not go into every tool')
class Tools(Case):
    """Programs without CUDA, all their children included, that somebody preloads with the rest."""

    def test_shells_and_tools(self):
        commands = [[shell, '-c', text] for shell, text in SCRIPTS] + [['python3', '-c', PYTHON]]
        for seed, command in enumerate(commands * often(1)):
            if not shutil.which(command[0]):
                continue
            draw = random.Random(seed)
            native = run(command)
            for settings in ({}, settings_of(draw)):
                with self.subTest(SURROUNDINGS_SEED=seed, command=shlex.join(command), settings=settings):
                    result = preloaded(command, settings, stats=None)
                    self.assertEqual((native.status, native.out), (result.status, result.out))
                    self.assertEqual(re.sub(r'\d+', 'N', native.err), re.sub(r'\d+', 'N', result.err))


if __name__ == '__main__':
    main()
