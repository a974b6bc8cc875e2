# Rules fail the calls that they say they fail, by the driver's own error, and no others.

import itertools

from harness import Case, main, preloaded, program

COMMAND = program('preload_fails')
MEMORY = ('device', 'pitch', 'async', 'from-pool', 'managed', 'virtual')
HOST = ('host', 'host-flags', 'register')
KINDS = MEMORY + HOST + ('pool', 'graph', 'graph-parameters')
# The key of the report that counts each kind of call.
COUNTED = {'pitch': 'device', 'from-pool': 'async', 'host-flags': 'host', 'register': 'host',
           'graph-parameters': 'graph'}
POLICIES = ('auto', 'pool', 'native', 'managed')
OUT_OF_MEMORY = 2
TURNS = 12


def sizes():
    """Bytes of a kind's calls: each is tried again where it has failed, which the caller says by send(True)."""
    for turn in range(TURNS):
        bytes_ = 4096 * (turn + 1)
        if (yield bytes_):
            yield bytes_


def expected(kinds, fails):
    """Of each kind what the program prints: fails(n, kind, bytes), n counting the calls of all of these kinds."""
    found, numbers = {}, itertools.count(1)
    for kind in KINDS:
        text, calls = '', sizes()
        try:
            bytes_ = next(calls)
            while True:
                failed = kind in kinds and fails(next(numbers), kind, bytes_)
                text += 'F' if failed else '.'
                bytes_ = calls.send(failed)
        except StopIteration:
            pass
        found[kind] = text
    return found


def printed(result):
    return dict(line.split(': ') for line in result.out.splitlines())


def injected(report):
    return {key: count for key, count in report['injected'].items() if count}


class Fails(Case):
    def runs(self, rules, policy='auto', *args):
        result = preloaded([COMMAND, *args], {'ALLOGRAFT_RULES': rules, 'ALLOGRAFT_POLICY': policy})
        self.assertEqual((result.status, result.err), (0, ''), rules)
        return result

    def fails(self, rules, kinds, which, policy='auto'):
        """The run under `rules`, which holds for calls of these kinds and fails those that `which` says."""
        result = self.runs(rules, policy)
        wanted = expected(kinds, which)
        self.assertEqual(printed(result), wanted, rules)
        report = result.report()
        counts = {}
        for kind, text in wanted.items():
            key = COUNTED.get(kind, kind)
            if 'F' in text:
                counts[key] = counts.get(key, 0) + text.count('F')
        self.assertEqual(injected(report), counts, rules)
        rule = report['rules'][-1]
        self.assertEqual(rule['failed'], sum(counts.values()))
        self.assertEqual(rule['held'], sum(len(wanted[kind]) for kind in kinds))
        said = 'rules failed %d calls on purpose, as out of memory' % sum(counts.values())
        self.assertEqual(said in report['warnings'], bool(counts))
        return report

    def test_every_call_of_memory_of_the_device(self):
        for policy in POLICIES:
            report = self.fails('*:fail', MEMORY, lambda n, kind, bytes_: True, policy)
            native = report['devices'][0]['placements']['native']
            self.assertEqual((native['allocs'], native['failed']), (0, 4 * TURNS))

    def test_calls_whose_memory_the_rule_keeps(self):
        """Alone beside fail, host= holds for pinned memory; with other actions, for that of the device, too."""
        self.fails('*:fail,every=2,host=cache', HOST, lambda n, kind, bytes_: n % 2 == 0)
        self.fails('*:native,fail,host=fast', MEMORY + HOST, lambda n, kind, bytes_: True)
        self.fails('*:native; call=host|device:fail,host=fast', HOST, lambda n, kind, bytes_: True)

    def test_calls_by_kind(self):
        for kinds, names in ((HOST, 'host'), (('pool',), 'pool'), (('graph', 'graph-parameters'), 'graph'),
                             (('managed',), 'managed'), (('virtual',), 'virtual'), (('async', 'from-pool'), 'async'),
                             (('device', 'pitch'), 'device'), (('pool', 'managed'), 'managed|pool'), (KINDS, 'any')):
            with self.subTest(names=names):
                self.fails('call=%s:fail' % names, kinds, lambda n, kind, bytes_: True)

    def test_each_nth(self):
        for policy in POLICIES:
            self.fails('*:fail,every=3', MEMORY, lambda n, kind, bytes_: n % 3 == 0, policy)
        self.fails('call=any:fail,every=2', KINDS, lambda n, kind, bytes_: n % 2 == 0)

    def test_after_so_many(self):
        self.fails('call=any:fail,after=40', KINDS, lambda n, kind, bytes_: n > 40)
        self.fails('call=device:fail,after=5,every=2', ('device', 'pitch'),
                   lambda n, kind, bytes_: n > 5 and (n - 5) % 2 == 0)
        self.fails('*:fail,after=100000', MEMORY, lambda n, kind, bytes_: False)

    def test_over_so_many_bytes(self):
        passed = 0

        def over(n, kind, bytes_):
            nonlocal passed
            if passed + bytes_ > 96 << 10:
                return True
            passed += bytes_
            return False
        self.fails('call=host:fail,over=96KiB', ('host', 'host-flags', 'register'),
                   lambda n, kind, bytes_: over(n, kind, 65536 if kind == 'register' else bytes_))
        passed = 0
        self.fails('call=managed:fail,over=96KiB', ('managed',), over)

    def test_at_random_but_the_same_in_each_run(self):
        first = printed(self.runs('call=any:fail,chance=0.3,seed=7'))
        self.assertEqual(first, printed(self.runs('call=any:fail,chance=30%,seed=7')))
        self.assertNotEqual(first, printed(self.runs('call=any:fail,chance=0.3,seed=8')))
        self.assertNotEqual(first, printed(self.runs('call=any:fail,chance=0.3')))
        self.assertEqual(printed(self.runs('call=any:fail,chance=1,seed=3')),
                         expected(KINDS, lambda n, kind, bytes_: True))
        letters = ''.join(first.values())
        self.assertGreater(letters.count('F'), len(letters) // 6)
        self.assertGreater(letters.count('.'), len(letters) // 2)

    def test_with_the_other_conditions(self):
        rules = self.runs('size>=24KiB,call=device|managed:fail')
        for kind in ('device', 'managed'):
            self.assertEqual(printed(rules)[kind], 5 * '.' + 7 * 'FF')
        self.assertEqual(printed(self.runs('nth=3,call=host:fail'))['host'], '..F..........')
        self.assertEqual(printed(self.runs('nth=3,call=host:fail'))['register'], 12 * '.')
        for rule in ('thread=nobody:fail', 'from=libnobody*:fail', 'device=1:fail'):
            self.assertEqual(printed(self.runs(rule)), expected((), None), rule)
        for rule in ('thread=preload_fails:fail', 'from=preload_fail?:fail', 'device=0:fail'):
            self.assertEqual(printed(self.runs(rule)), expected(MEMORY, lambda *call: True), rule)

    def test_a_size_leaves_calls_without_one_alone(self):
        result = printed(self.runs('size>=0,size<=1GiB,call=any:fail'))
        for kind in KINDS:
            without = kind in ('pool', 'graph', 'graph-parameters')
            self.assertEqual(result[kind], 12 * '.' if without else 12 * 'FF', kind)

    def test_the_first_rule_decides_and_leaves_what_it_lets_pass_to_the_next(self):
        result = self.runs('call=device:fail,every=4; size>=32KiB:managed; *:fail', 'pool')
        self.assertEqual(printed(result)['device'], expected(('device',), lambda n, kind, bytes_:
                                                             n % 4 == 0 or bytes_ < 32 << 10)['device'])
        first, second, third = result.report()['rules']
        large = sum(i >= 7 for i in range(TURNS)) * 2
        self.assertEqual((first['hits'], third['hits']), (0, 0))
        self.assertGreater(second['hits'], large // 2)
        self.assertEqual(third['held'], third['failed'])
        result = self.runs('*:native; *:fail')
        self.assertEqual(printed(result), expected((), None))
        self.assertEqual(result.report()['rules'][0]['hits'], 24)
        # With another action in the rule it decides also what passes.
        result = self.runs('*:managed,fail,every=2; *:fail')
        self.assertEqual(printed(result)['device'], expected(('device',), lambda n, *rest: n % 2 == 0)['device'])
        self.assertEqual(result.report()['devices'][0]['placements']['managed']['allocs'], 24)

    def test_threads_share_the_count(self):
        for rule, failed in (('*:fail,every=10', 100), ('*:fail,after=900', 100), ('*:fail,over=400KiB', 900)):
            self.assertEqual(self.runs(rule, 'auto', 'threads').out, 'failed: %d of 1000\n' % failed, rule)
        once = self.runs('*:fail,chance=0.1,seed=5', 'auto', 'threads').out
        self.assertEqual(once, self.runs('*:fail,chance=0.1,seed=5', 'auto', 'threads').out)

    def test_what_the_driver_refuses_it_refuses_itself(self):
        self.same([COMMAND, 'mistakes'], [{'ALLOGRAFT_POLICY': p, 'ALLOGRAFT_RULES': 'call=any:fail'}
                                          for p in POLICIES])

    def test_captures(self):
        natively = preloaded([COMMAND, 'captures'], {'ALLOGRAFT_DISABLE': '1'}).out.splitlines()
        self.assertEqual(natively[0], 'relaxed: 0')
        result = self.runs('*:fail', 'auto', 'captures')
        lines = result.out.splitlines()
        # The driver decides whether an allocation is legal; what becomes a node takes no memory.
        self.assertEqual(lines[0], 'relaxed: %d' % OUT_OF_MEMORY)
        self.assertEqual(lines[1:], natively[1:])
        self.assertEqual(injected(result.report()), {'device': 2, 'capture_open': 2})

    def test_a_forked_child_counts_its_own(self):
        for report in self.runs('*:fail,every=2', 'auto', 'fork').reports():
            self.assertEqual((report['rules'][0]['held'], report['rules'][0]['failed']), (2, 1))

    def test_memory_is_failed_and_not_spilled(self):
        result = preloaded(COMMAND, {'ALLOGRAFT_RULES': 'call=device:fail', 'ALLOGRAFT_OOM': 'spill'})
        self.assertEqual(printed(result)['device'], 12 * 'FF')

    def test_is_logged_where_asked(self):
        result = preloaded(COMMAND, {'ALLOGRAFT_RULES': 'nth=2,call=graph:fail', 'ALLOGRAFT_LOG': 'info'})
        self.assertEqual([line for line in result.err.splitlines() if 'fails' in line],
                         ['allograft: rule 1 (nth=2,call=graph:fail) fails a call for 0 bytes'])

    def test_disabled_fails_nothing(self):
        result = preloaded(COMMAND, {'ALLOGRAFT_RULES': 'call=any:fail', 'ALLOGRAFT_DISABLE': '1'})
        self.assertEqual(printed(result), expected((), None))


if __name__ == '__main__':
    main()
