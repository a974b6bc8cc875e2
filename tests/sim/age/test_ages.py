#!/usr/bin/env python3
# A program on drivers of several ages: under every policy it sees what it sees natively.

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

AGES = [age for age in os.environ['TEST_AGES'].split(',')]
FOLDERS = os.environ['TEST_AGE_FOLDERS'].split(':')
LIBRARY = os.environ['TEST_LIBRARY']
WORKLOAD = os.environ['TEST_WORKLOAD']

POLICIES = {
    'pool': {'ALLOGRAFT_POLICY': 'pool'},
    'sync': {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_FREE': 'sync'},
    'native': {'ALLOGRAFT_POLICY': 'native'},
    'managed': {'ALLOGRAFT_POLICY': 'managed'},
    'managed pool': {'ALLOGRAFT_POLICY': 'managed', 'ALLOGRAFT_MANAGED_BACKEND': 'pool'},
    'managed plain': {'ALLOGRAFT_POLICY': 'managed', 'ALLOGRAFT_MANAGED_BACKEND': 'plain',
                      'ALLOGRAFT_PREFER': 'host'},
    'launch': {'ALLOGRAFT_POLICY': 'managed', 'ALLOGRAFT_PREFETCH': 'launch'},
    'spill': {'ALLOGRAFT_LIMIT': '300KiB', 'ALLOGRAFT_OOM': 'spill', 'ALLOGRAFT_UNSPILL': '1'},
}
LISTED = subprocess.run(['ldd', LIBRARY], stdout=subprocess.PIPE, universal_newlines=True).stdout
RUNTIME = re.findall(r'lib[at]san\S* => (\S+)', LISTED)


def run(age, folder, lookup, settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith(('ALLOGRAFT_', 'SIM_'))}
    env.update(LD_LIBRARY_PATH=folder, SIM_DRIVER_VERSION=age, SIM_VIOLATION='abort')
    with tempfile.TemporaryDirectory(prefix='ages-') as place:
        report = os.path.join(place, 'report.json')
        if RUNTIME:
            env['ASAN_OPTIONS'] = 'detect_leaks=0:verify_asan_link_order=0:handle_sigill=1'
        if settings is not None:
            env.update(settings, LD_PRELOAD=':'.join(RUNTIME + [LIBRARY]), ALLOGRAFT_STATS=report)
        done = subprocess.run([WORKLOAD, lookup], env=env, stdin=subprocess.DEVNULL, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True)
        counted = None
        if os.path.exists(report):
            with open(report, encoding='utf-8') as f:
                counted = json.load(f)
        return done, counted


class Ages(unittest.TestCase):
    def test_every_age(self):
        for age, folder in zip(AGES, FOLDERS):
            for lookup in ('dlsym', 'get-proc'):
                native, _ = run(age, folder, lookup, None)
                self.assertEqual(native.returncode, 0, native.stdout + native.stderr)
                for name, settings in POLICIES.items():
                    with self.subTest(age=age, lookup=lookup, policy=name):
                        self.one(native, *run(age, folder, lookup, settings), name)

    def test_replay_says_what_is_missing(self):
        for age, folder in zip(AGES, FOLDERS):
            for lookup in ('dlsym', 'get-proc'):
                native, _ = run(age, folder, lookup, None)
                for settings in ({'ALLOGRAFT_GRAPH': 'all'},
                                 {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1',
                                  'ALLOGRAFT_GRAPH_PROFIT': '0'}):
                    with self.subTest(age=age, lookup=lookup, settings=settings):
                        done, report = run(age, folder, lookup, settings)
                        self.one(native, done, report, 'replay')
                        self.check(age, done, report)

    def check(self, age, done, report):
        """One line and a warning below 12.4, neither from then on."""
        replay = report['replay']
        if int(age) < 12040:
            self.assertEqual(replay['state'], 'unavailable')
            self.assertRegex(replay['reason'], r'^the driver has no cu[A-Z]\w+$')
            self.assertIn('nothing was replayed: ' + replay['reason'], report['warnings'])
            self.assertEqual(done.stderr, 'allograft: ALLOGRAFT_GRAPH: %s: nothing is replayed\n' % replay['reason'])
            self.assertEqual(replay['operations'], 0)
        else:
            self.assertEqual((replay['state'], replay['reason'], done.stderr), ('on', '', ''))
            self.assertFalse([w for w in report['warnings'] if 'replayed: the' in w])

    def one(self, native, done, report, name):
        self.assertEqual(done.stdout, native.stdout, done.stderr)
        self.assertEqual(done.returncode, native.returncode, done.stderr)
        self.assertTrue(report['coverage']['intercepted'])
        if name != 'native':
            self.assertGreater(report['coverage']['redirected'], 30)
        for device in report['devices']:
            for placement in device['placements'].values():
                self.assertEqual(placement['current_bytes'], 0)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
