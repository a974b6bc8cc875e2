# Rules decide what they say they decide: by size, device, module, number and thread; a file of
# settings does what the variables do.

import json
import os
import re
import shutil
import subprocess
import tempfile

from harness import LIBRARY, ROOT, RUNTIME, Case, clean_environment, main, preloaded, program, run

COMMAND = program('preload_rules')
KIB, MIB = 1 << 10, 1 << 20

# Bytes of the program's allocations, in their order; the last but one is libnccl_preload.so's.
SIZES = [4 * KIB << i for i in range(8)] + [4 * KIB, MIB, 4 * KIB, MIB]
EXPORTED = 11

# Rules, and for each of them the numbers of the allocations that it decides.
CASES = [
    ('*:native', [[n for n in range(1, 13) if n != EXPORTED]]),
    ('size>=1MiB:native; size<8KiB:managed', [[10, 12], [1, 9]]),
    ('size=8KiB..32KiB:managed; size<=64KiB:native; *:pool', [[2, 3, 4], [1, 5, 9], [6, 7, 8, 10, 12]]),
    ('device=0:managed', [[n for n in range(1, 13) if n != EXPORTED]]),
    ('device=1:managed', [[]]),
    ('nth=3:native; nth=2..5:managed', [[3], [2, 4, 5]]),
    ('thread=worker*:native', [[9, 10]]),
    ('thread=worker?1,size>4096:managed;thread=*:native', [[10], [n for n in range(1, 13)
                                                                  if n not in (10, EXPORTED)]]),
    ('from=libnccl*:pool', [[EXPORTED]]),
    ('from=*:managed', [list(range(1, 13))]),
    ('from=preload_rules:native', [[n for n in range(1, 13) if n != EXPORTED]]),
    ('from=lib*,size>1m:native', [[]]),
    ('nth=11:pool; nth=1..12:managed', [[], [n for n in range(1, 13) if n != EXPORTED]]),
]


def placed(report):
    """Number of allocations by placement."""
    device, = report['devices']
    return {name: numbers['allocs'] for name, numbers in device['placements'].items()
            if numbers['allocs']}


class Rules(Case):
    def test_the_short_report_names_those_that_decided_nothing(self):
        for rules, idle in (('*:native', []), ('device=1:managed; nth=3:native', ['1 decided nothing: device=1:managed']),
                            ('from=lib*,size>1m:native; size>1g:fail', ['1 decided nothing: from=lib*,size>1m:native',
                                                                        '2 decided nothing: size>1g:fail']),
                            ('nth=2:fail', [])):
            result = preloaded(COMMAND, {'ALLOGRAFT_RULES': rules}, stats=None)
            self.assertEqual(re.findall(r'(?m)^  rule (.*)$', result.err), idle)

    def test_decide_what_they_say(self):
        for rules, decided in CASES:
            (_, result), = self.same(COMMAND, [{'ALLOGRAFT_RULES': rules, 'ALLOGRAFT_POLICY': 'pool'}])
            report = result.report()
            with self.subTest(rules=rules):
                self.assertEqual([rule['text'] for rule in report['rules']],
                                 [text.strip() for text in rules.split(';')])
                self.assertEqual([rule['hits'] for rule in report['rules']], [len(n) for n in decided])
                self.assertEqual([rule['bytes'] for rule in report['rules']],
                                 [sum(SIZES[i - 1] for i in numbers) for numbers in decided])
                self.assertEqual(report['no_rule']['hits'], 12 - sum(len(n) for n in decided))
                expected = {'pool': 11, 'native': 1}
                for numbers, rule in zip(decided, rules.split(';')):
                    for number in numbers:
                        expected['native' if number == EXPORTED else 'pool'] -= 1
                        place = rule.split(':')[1].strip()
                        expected[place] = expected.get(place, 0) + 1
                self.assertEqual(placed(report), {k: v for k, v in expected.items() if v})

    def test_leave_the_rest_to_the_variables(self):
        result = preloaded(COMMAND, {'ALLOGRAFT_RULES': 'size>=1MiB:pool', 'ALLOGRAFT_POLICY': 'managed'})
        self.assertEqual(placed(result.report()), {'pool': 2, 'managed': 9, 'native': 1})
        result = preloaded(COMMAND, {'ALLOGRAFT_RULES': 'size>=1MiB:prefer=host', 'ALLOGRAFT_POLICY': 'managed'})
        self.assertEqual(placed(result.report()), {'managed': 11, 'native': 1})
        self.assertEqual(result.report()['rules'][0]['hits'], 2)

    def test_leave_exporters_native_unless_they_name_a_placement(self):
        for rules, places in (('from=libnccl*:prefer=host', {'pool': 11, 'native': 1}),
                              ('from=libnccl*:prefer=host,managed', {'pool': 11, 'managed': 1}),
                              ('*:managed', {'managed': 11, 'native': 1})):
            result = preloaded(COMMAND, {'ALLOGRAFT_RULES': rules, 'ALLOGRAFT_POLICY': 'pool'})
            self.assertEqual(placed(result.report()), places, rules)

    def test_with_a_mistake_nothing_is_redirected(self):
        native = run(COMMAND)
        result = preloaded(COMMAND, {'ALLOGRAFT_RULES': '*:pool; szie>4:native'})
        self.assertEqual((native.status, native.out), (result.status, result.out))
        line, = result.err.splitlines()
        self.assertTrue(line.startswith('allograft: ALLOGRAFT_RULES: column 9: unknown condition "szie"'))
        self.assertTrue(line.endswith('; nothing is redirected'), line)
        self.assertFalse(result.report()['coverage']['redirecting'])


class File(Case):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='preload-')
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = os.path.join(self.folder, 'a.conf')

    def write(self, text):
        with open(self.path, 'w', encoding='utf-8') as f:
            f.write(text)

    def test_sets_what_variables_set(self):
        self.write('POLICY = managed\nRULES = size>=1MiB:native\nRULES = nth=1..4:pool\n')
        (_, result), = self.same(COMMAND, [{'ALLOGRAFT_CONFIG': self.path}])
        report = result.report()
        self.assertEqual(placed(report), {'managed': 5, 'native': 3, 'pool': 4})
        self.assertEqual([rule['hits'] for rule in report['rules']], [2, 4])
        sources = {s['name']: s.get('place', s['source']) for s in report['settings']}
        self.assertEqual(sources['ALLOGRAFT_POLICY'], self.path + ':1')
        self.assertEqual(sources['ALLOGRAFT_RULES'], self.path + ':2')
        self.assertEqual(sources['ALLOGRAFT_LOG'], 'default')

    def test_gives_way_to_variables(self):
        self.write('POLICY = managed\nRULES = size>=1MiB:native\n')
        result = preloaded(COMMAND, {'ALLOGRAFT_CONFIG': self.path, 'ALLOGRAFT_POLICY': 'pool',
                                     'ALLOGRAFT_RULES': 'nth=1:native'})
        self.assertEqual(placed(result.report()), {'pool': 10, 'native': 2})

    def test_can_say_where_the_report_goes(self):
        report = os.path.join(self.folder, 'r.json')
        self.write('STATS = %s\nPOLICY = native\n' % report)
        result = preloaded(COMMAND, {'ALLOGRAFT_CONFIG': self.path}, stats=None)
        self.assertEqual((result.status, result.err), (0, ''))
        self.assertTrue(os.path.exists(report))

    def test_can_switch_everything_off(self):
        self.write('DISABLE = 1\n')
        result = preloaded(COMMAND, {'ALLOGRAFT_CONFIG': self.path}, stats=None)
        self.assertEqual((result.out, result.err), (run(COMMAND).out, ''))

    def test_with_a_mistake_nothing_is_redirected(self):
        native = run(COMMAND)
        for text, said in (('POLICY = pool\nFREE = sink\n', self.path + ':2: column 8: FREE=sink is not allowed'),
                           ('RULES = *:pool\nRULES = *:pol\n', self.path + ':2: column 11: unknown action "pol"'),
                           ('POLCY=pool\n', self.path + ':1: column 1: unknown setting POLCY; did you mean POLICY?'),
                           ('\n' * 70000, 'ALLOGRAFT_CONFIG=' + self.path + ' too large'),
                           (None, 'ALLOGRAFT_CONFIG=' + self.path + ' cannot be read: No such file')):
            self.write(text or '')
            if text is None:
                os.remove(self.path)
            with self.subTest(said=said):
                result = preloaded(COMMAND, {'ALLOGRAFT_CONFIG': self.path})
                self.assertEqual((native.status, native.out), (result.status, result.out))
                line, = result.err.splitlines()
                self.assertTrue(line.startswith('allograft: ' + said), line)
                self.assertTrue(line.endswith('; nothing is redirected'), line)
                report = result.report()
                self.assertFalse(report['coverage']['redirecting'])
                self.assertEqual(report['coverage']['redirected'], 0)
                self.assertIn('nothing was redirected: a setting was bad', report['warnings'])

    def test_is_read_once(self):
        tracer = shutil.which('strace')
        if not tracer:
            self.skipTest('strace is not installed')
        self.write('POLICY = managed\n')
        log = os.path.join(self.folder, 'log')
        result = preloaded([tracer, '-f', '-o', log, '-e', 'trace=openat,open', COMMAND],
                           {'ALLOGRAFT_CONFIG': self.path})
        with open(log, encoding='utf-8', errors='replace') as f:
            opened = [line for line in f if 'a.conf' in line]
        self.assertEqual((result.status, len(opened)), (0, 1), opened)


class Search(Case):
    """The chapter of docs/troubleshooting.md on finding the allocation that breaks a program, with a program that one
    breaks: the driver exports no managed memory to other processes."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='preload-')
        self.addCleanup(shutil.rmtree, self.folder)
        self.command = os.path.join(os.path.dirname(LIBRARY), 'allograft')

    def program_that_needs(self, number):
        path = os.path.join(self.folder, 'program')
        with open(path, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\nexec %s %d\n' % (COMMAND, number))
        os.chmod(path, 0o755)

    def script(self):
        with open(os.path.join(ROOT, 'docs', 'troubleshooting.md'), encoding='utf-8') as f:
            text = re.search(r'<!-- bisect -->\n *```bash\n(.*?)```', f.read(), re.DOTALL)[1]
        self.assertEqual(text.count('build/allograft'), 1)
        return text.replace('build/allograft', self.command)

    def bash(self, code):
        done = subprocess.run(['bash', '-c', code], cwd=self.folder, env=self.environment(),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        return done.returncode, done.stdout, done.stderr

    def environment(self):
        env = clean_environment()
        if RUNTIME:
            env['LD_PRELOAD'] = ':'.join(RUNTIME)
        return env

    def status(self, *args):
        done = subprocess.run([self.command, 'run', *args, '--', './program'], cwd=self.folder,
                              env=self.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return done.returncode

    def test_ends_at_the_one(self):
        if any('tsan' in library for library in RUNTIME):
            self.skipTest('no shell runs with the runtime of ThreadSanitizer in it')
        for number in (1, 7, 12):
            self.program_that_needs(number)
            self.assertEqual(self.status('--policy', 'native'), 0)
            self.assertEqual(self.status('--policy', 'managed'), 1)
            self.assertEqual(self.bash(self.script()), (0, 'allocation %d\n' % number, ''))

    def test_steps_are_as_written(self):
        self.program_that_needs(7)
        for rule, status in (('nth=1..6:native', 1), ('nth=1..9:native', 0), ('nth=1..7:native', 0)):
            self.assertEqual(self.status('--policy', 'managed', '--rule', rule), status, rule)
        path = os.path.join(self.folder, 'r.json')
        self.assertEqual(self.status('--policy', 'managed', '--rule', 'nth=7:native', '--stats', path), 0)
        with open(path, encoding='utf-8') as f:
            rule, = json.load(f)['rules']
        self.assertEqual(rule, {'text': 'nth=7:native', 'hits': 1, 'bytes': 256 * KIB})
        self.assertEqual(self.status('--policy', 'managed', '--rule', 'size=256KiB:native'), 0)


if __name__ == '__main__':
    main()
