# Bad values and unknown names cost one line each, and the program runs on as it would natively.

from harness import Case, main, preloaded, program, run

COMMAND = program('preload_lookup_linked')

# Variable, values it refuses, words its line must contain beside the name and the value.
BAD = [
    ('ALLOGRAFT_POLICY', ('fast', 'poool', 'Pool ', ''), ('auto', 'pool', 'native', 'managed')),
    ('ALLOGRAFT_FREE', ('never', 'async'), ('auto', 'ordered', 'sync')),
    ('ALLOGRAFT_DISABLE', ('maybe', '2'), ('0', '1')),
    ('ALLOGRAFT_POOL_KEEP', ('lots', '-1', '12parsecs', '101%', '1e99GiB'), ('max',)),
    ('ALLOGRAFT_CACHE', ('lots', '-4KiB', '200%'), ('%',)),
    ('ALLOGRAFT_PENDING', ('lots', '%', '99999999999999999999'), ('%',)),
    ('ALLOGRAFT_LOG', ('loud',), ('off', 'error', 'warn', 'info', 'debug')),
]

GOOD = [
    ('ALLOGRAFT_POOL_KEEP', ('max', '0', '80%', '1GiB', '1.5GiB', '4096')),
    ('ALLOGRAFT_CACHE', ('0', '25%', '64KiB', '2GiB')),
    ('ALLOGRAFT_PENDING', ('0', '25%', '1MiB')),
    ('ALLOGRAFT_FREE', ('auto', 'ordered', 'sync')),
    ('ALLOGRAFT_LOG', ('off', 'error', 'warn')),
]

# What somebody wrote, what they meant.
MISSPELT = [
    ('ALLOGRAFT_POLICI', 'pool', 'ALLOGRAFT_POLICY'),
    ('ALLOGRAFT_FREES', 'sync', 'ALLOGRAFT_FREE'),
    ('ALLOGRAFT_STAT', 'off', 'ALLOGRAFT_STATS'),
    ('ALLOGRAFT_POOLKEEP', '0', 'ALLOGRAFT_POOL_KEEP'),
    ('ALLOGRAFT_DISABEL', '1', 'ALLOGRAFT_DISABLE'),
]


class Options(Case):
    def setUp(self):
        self.native = run(COMMAND)
        self.sane(self.native)

    def test_bad_values(self):
        for name, values, words in BAD:
            for value in values:
                with self.subTest(name=name, value=value):
                    result = preloaded(COMMAND, {name: value})
                    self.assertEqual((self.native.status, self.native.out),
                                     (result.status, result.out))
                    line, = result.err.splitlines()
                    for word in (name, value) + words:
                        self.assertIn(word, line)
                    for report in result.reports():
                        self.assertFalse(report['coverage']['redirecting'])
                        self.assertEqual(report['coverage']['redirected'], 0)

    def test_a_bad_value_is_one_line_where_no_report_is_asked_for(self):
        for settings in ({'ALLOGRAFT_POLICY': 'fast'}, {'ALLOGRAFT_STATS': '%q.json'}):
            result = preloaded(COMMAND, settings, stats=None)
            self.assertEqual((self.native.status, self.native.out), (result.status, result.out))
            line, = result.err.splitlines()
            self.assertIn('; nothing is redirected', line)
        # One that is asked for is written.
        result = preloaded(COMMAND, {'ALLOGRAFT_POLICY': 'fast', 'ALLOGRAFT_STATS': 'full'}, stats=None)
        self.assertIn('a setting was bad', result.err)

    def test_two_bad_values_make_two_lines(self):
        result = preloaded(COMMAND, {'ALLOGRAFT_POLICY': 'fast', 'ALLOGRAFT_FREE': 'never'})
        self.assertEqual(len(result.err.splitlines()), 2)
        self.assertEqual(self.native.out, result.out)

    def test_good_values(self):
        for name, values in GOOD:
            for value in values:
                with self.subTest(name=name, value=value):
                    result = preloaded(COMMAND, {name: value})
                    self.assertEqual((self.native.out, ''), (result.out, result.err))
                    self.assertEqual(result.report()['coverage']['redirected'], 6)
                    setting = {s['name']: s for s in result.report()['settings']}[name]
                    self.assertEqual(setting['source'], 'environment')

    def test_unknown_names(self):
        for name, value, meant in MISSPELT:
            with self.subTest(name=name):
                result = preloaded(COMMAND, {name: value})
                self.assertEqual(self.native.out, result.out)
                line, = result.err.splitlines()
                self.assertIn(name, line)
                self.assertRegex(line, meant + r'\b')
                self.assertEqual(result.report()['coverage']['redirected'], 6)

    def test_log_off_silences_warnings(self):
        result = preloaded(COMMAND, {'ALLOGRAFT_NOSUCH': '1', 'ALLOGRAFT_LOG': 'off'})
        self.assertEqual(result.err, '')

    def test_disabled(self):
        for value, redirected in (('1', 0), ('0', 6)):
            result = preloaded(COMMAND, {'ALLOGRAFT_DISABLE': value})
            self.assertEqual((self.native.out, ''), (result.out, result.err))
            for report in result.reports():
                self.assertEqual(report['coverage']['redirected'], redirected)

    def test_disabled_says_nothing(self):
        result = preloaded(COMMAND, {'ALLOGRAFT_DISABLE': '1'}, stats=None)
        self.assertEqual(result.err, '')

    def test_a_cleared_environment_does_no_harm(self):
        command = program('preload_clears_environment')
        self.assertEqual(run(command).out, preloaded(command).out)


if __name__ == '__main__':
    main()
