# One random program, and what each form of a report says of it: text, JSON, page, diff, metrics and trace have the same
# numbers, and those that the program counted itself.

import html
import json
import os
import re
import shutil
import subprocess
import tempfile

from harness import COUNTERS, LIBRARY, RUNTIME, Case, clean_environment, main, program, some

COMMAND = os.environ['TEST_COMMAND']
NUMBERS = program('preload_numbers')
SECONDS = 120
CHUNK = 2 << 20  # what the simulated driver rounds small native memory up to
RUNS = (
    ('1', {}),
    ('2', {'ALLOGRAFT_POLICY': 'native'}),
    ('3', {'ALLOGRAFT_POLICY': 'pool'}),
    ('4', {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_FREE': 'sync'}),
    ('5', {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_RULES': 'size>=4MiB:native'}),
    ('6', {'ALLOGRAFT_CACHE': '8MiB'}),
    ('7', {'ALLOGRAFT_GUARD': 'canary'}),
    ('8', {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_POOL_KEEP': '0', 'ALLOGRAFT_CACHE': '4MiB'}),
)


def size(value):
    """As the command writes it."""
    for unit in ('B', 'KiB', 'MiB', 'GiB'):
        if value < 1024:
            return '%d B' % value if unit == 'B' else '%.2f %s' % (value, unit)
        value /= 1024


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if not key.endswith('_ns')}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def command(*words):
    done = subprocess.run([COMMAND, *words], env=dict(clean_environment(), ALLOGRAFT_COUNTERS=COUNTERS), timeout=SECONDS,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)
    if done.returncode or done.stderr:
        raise AssertionError((words, done.returncode, done.stderr))
    return done.stdout


class Run:
    """One run: what the program counted, what was said while it stood still, and its files."""

    def __init__(self, folder, seed, settings):
        self.files = {kind: os.path.join(folder, f'{seed}.{kind}') for kind in ('json', 'trace')}
        env = dict(clean_environment(), ALLOGRAFT_COUNTERS=COUNTERS, ALLOGRAFT_STATS=self.files['json'],
                   ALLOGRAFT_TRACE=self.files['trace'], ALLOGRAFT_LOG='error',
                   LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]), SIM_SEED=seed, **settings)
        with subprocess.Popen([NUMBERS, seed], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              universal_newlines=True) as process:
            counted = process.stdout.readline().split()
            assert process.stdout.readline() == 'ready\n', counted
            self.metrics = command('top', '--prometheus', '-')
            self.running, = json.loads(command('report', '--json', str(process.pid)))
            self.top, = json.loads(command('top', '--json'))['processes']
            process.stdin.close()
            assert process.wait(SECONDS) == 0
        self.allocs, self.frees, self.bytes, self.peak, self.left, self.card = map(int, counted)
        with open(self.files['json'], encoding='utf-8') as file:
            self.report = json.load(file)
        self.device, = self.report['devices']
        self.places = self.device['placements'].values()

    def sum(self, key):
        return sum(place[key] for place in self.places)

    def metric(self, name, **labels):
        """The sum of its samples that have these labels."""
        found = re.findall(r'(?m)^allograft_%s\{(.*)\} (\S+)$' % name, self.metrics)
        wanted = ['%s="%s"' % item for item in labels.items()]
        return sum(float(value) for given, value in found if all(one in given for one in wanted))


class Numbers(Case):
    def setUp(self):
        shutil.rmtree(COUNTERS, ignore_errors=True)
        os.mkdir(COUNTERS, 0o700)
        self.folder = tempfile.mkdtemp(prefix='numbers-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_every_form_says_the_same(self):
        before = None
        for seed, settings in some(RUNS, 2):
            with self.subTest(seed=seed, **settings):
                run = Run(self.folder, seed, settings)
                self.check_json(run, settings)
                self.check_text(run)
                self.check_page(run)
                self.check_metrics(run)
                self.check_trace(run)
                if before:
                    self.check_diff(before, run)
                before = run

    def check_json(self, run, settings):
        self.assertEqual((run.sum('allocs'), run.sum('frees'), run.sum('alloc_bytes'), run.sum('current_bytes')),
                         (run.allocs, run.frees, run.bytes, run.left))
        self.assertEqual(run.device['peak_bytes'], run.peak)
        frees = run.report['frees']
        late = frees['late_waits']['pending_bound'] + frees['late_waits']['returned']
        self.assertEqual(frees['waited'], frees['drained'] + frees['native'] + late)
        ways = ('null_stream', 'context_fence', 'nothing_submitted', 'watched', 'set_aside', 'drained', 'native')
        self.assertEqual(sum(frees[way] for way in ways), run.frees)
        if settings.get('ALLOGRAFT_POLICY') == 'native' or 'ALLOGRAFT_GUARD' in settings:
            self.assertEqual(frees['waited'], run.frees)
        # What the card itself counted; small native blocks share chunks there.
        given = run.device['given_peak_bytes']
        self.assertGreaterEqual(given, run.peak)
        if 'ALLOGRAFT_GUARD' not in settings:  # whose room is not of whole chunks
            self.assertLessEqual(abs(run.card - given), CHUNK, (run.card, given))
        for report in (run.running, run.report):  # the end places fences, and waits
            del report['frees']['fences'], report['frees']['late_waits']
        for key in ('devices', 'frees', 'cache', 'slabs'):
            self.assertEqual(without_times(run.running[key]), without_times(run.report[key]), key)

    def check_text(self, run):
        text = command('report', run.files['json'])
        self.assertIn(f"    the most at a time: {size(run.peak)}; of the device, with what was kept for later: "
                      f"{size(run.device['given_peak_bytes'])}\n", text)
        self.assertIn(f"  memory:    at most {size(run.peak)} at a time; {size(run.device['given_peak_bytes'])} of the "
                      f"device, with what was kept for later; 3 blocks of {size(run.left)} were never freed\n", text)
        self.assertRegex(text, f"frees that made the host wait +{run.report['frees']['waited']} of +{run.frees} ")
        if run.report['frees']['waited'] >= run.frees // 100:
            self.assertIn(f"{run.report['frees']['waited']} of {run.frees} frees waited for the device", text)

    def check_page(self, run):
        page = html.unescape(re.sub('<[^>]*>', ' ', command('report', '--html', '-', run.files['json'], run.files['trace'])))
        page = ' '.join(page.split())
        waited = run.report['frees']['waited']
        for words in (f"Peak memory {size(run.peak)} the most at a time",
                      f"Taken of the device {size(run.device['given_peak_bytes'])} at a time",
                      f"Never freed {size(run.left)} in 3 blocks",
                      f"Frees that made the host wait {100 * waited / run.frees:.1f} % {waited} of {run.frees}",
                      f"At the peak of {size(run.peak)}, after"):
            self.assertIn(words, page)

    def check_metrics(self, run):
        self.assertEqual(run.metric('waiting_frees_total'), run.report['frees']['waited'])
        self.assertEqual(run.metric('device_memory_peak_bytes', device='0'), run.peak)
        self.assertEqual(run.metric('device_given_peak_bytes', device='0'), run.device['given_peak_bytes'])
        self.assertEqual(run.metric('allocations_total'), run.allocs)
        self.assertEqual(run.metric('frees_total'), run.frees)
        self.assertEqual(run.metric('memory_bytes'), run.left)
        self.assertEqual((run.top['peak_bytes'], run.top['allocs'], run.top['frees']), (run.peak, run.allocs, run.frees))

    def check_trace(self, run):
        text = command('trace', run.files['trace'])
        for what, n in (('allocations', run.allocs), ('frees', run.frees)):
            self.assertRegex(text, r'(?m)^    %s +%d$' % (what, n))
        self.assertIn(f'peak of all: {size(run.peak)}, ', text)

    def check_diff(self, before, run):
        rows = json.loads(command('diff', '--json', before.files['json'], run.files['json']))
        found = {(row['group'], row['what']): (row['a'], row['b']) for row in rows['differences']}
        for what, values in (('peak', (before.peak, run.peak)), ('allocations', (before.allocs, run.allocs)),
                             ('taken of the device at the most', (before.device['given_peak_bytes'],
                                                                  run.device['given_peak_bytes']))):
            if values[0] != values[1]:
                self.assertEqual(found['memory', what], values)
        self.assertLessEqual(max(row['weight_percent'] for row in rows['differences']), 100)
        waited = [one.report['frees']['waited'] for one in (before, run)]
        said = [line for line in rows['verdict'] if 'frees that made the host wait' in line]
        if abs(waited[0] - waited[1]) / max(waited) >= .005:
            self.assertIn(': %d -> %d' % tuple(waited), said[0])
        else:
            self.assertEqual(said, [])


if __name__ == '__main__':
    main()
