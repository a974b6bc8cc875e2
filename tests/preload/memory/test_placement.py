# Managed memory lies where settings say; limits are kept and told; what does not fit is spilled, moved
# back, and given to nobody too early.

import time

from harness import SECONDS, Case, but_under_tsan, main, preloaded, program, run, share, some

COMMAND = program('preload_placement')
MIB = 1 << 20
DEVICE, HOST, INVALID = 0, -1, -2
MANAGED = {'ALLOGRAFT_POLICY': 'managed'}


def say(result, key):
    """The figures behind "key: ", in order."""
    return [line.split(': ', 1)[1] for line in result.out.splitlines() if line.startswith(key + ': ')]


@but_under_tsan
class Where(Case):
    def where(self, size, **settings):
        result = preloaded([COMMAND, 'where', str(size)],
                           dict(MANAGED, **{'ALLOGRAFT_' + k: v for k, v in settings.items()}))
        self.assertEqual((result.status, result.err), (0, ''), settings)
        self.assertEqual(say(result, 'wrong'), ['0'])
        self.assertEqual(say(result, 'range'), ['1 1'])
        self.assertEqual(say(result, 'free again'), ['1'])
        self.assertNotEqual(say(result, 'range of what was freed'), ['0'])
        self.assertEqual(say(result, 'the same again'), ['1'])
        self.assertEqual(say(result, 'managed again'), ['1'])
        facts = [int(say(result, key)[0]) for key in ('prefers', 'accessed by', 'read mostly', 'brought to')]
        return facts, result.report()

    def test_plain(self):
        for settings, expected, advice, prefetches in (
                ({}, [DEVICE, INVALID, 0, DEVICE], 1, 1),
                ({'PREFETCH': 'off'}, [DEVICE, INVALID, 0, INVALID], 1, 0),
                ({'PREFER': 'none', 'ACCESS': 'none'}, [INVALID, INVALID, 0, DEVICE], 0, 1),
                ({'PREFER': 'none'}, [INVALID, DEVICE, 0, DEVICE], 1, 1),
                ({'PREFER': 'host'}, [HOST, DEVICE, 0, INVALID], 2, 0),
                ({'PREFER': 'host', 'ACCESS': 'none'}, [HOST, INVALID, 0, INVALID], 1, 0),
                ({'READ_MOSTLY': '1'}, [DEVICE, INVALID, 1, DEVICE], 2, 1)):
            with self.subTest(settings=settings):
                facts, report = self.where(4 * MIB, MANAGED_BACKEND='plain', **settings)
                self.assertEqual(facts, expected)
                self.assertEqual(report['managed']['advice'], advice)
                self.assertEqual(report['managed']['prefetches'], prefetches)
                self.assertEqual(report['managed']['prefetch_bytes'], prefetches * 4 * MIB)
                place = 'host' if settings.get('PREFER') == 'host' else 'managed'
                self.assertEqual(report['devices'][0]['placements'][place]['allocs'], 2)

    def test_small_blocks_share_pages_and_are_not_advised(self):
        facts, report = self.where(MIB, MANAGED_BACKEND='plain', PREFER='host', READ_MOSTLY='1')
        self.assertEqual(facts, [INVALID, INVALID, 0, INVALID])
        self.assertEqual(report['managed']['advice'], 0)

    def test_backend_is_chosen_by_size_and_advice(self):
        def is_plain(size, **settings):
            return self.where(size, **settings)[1]['managed']['advice'] > 0

        self.assertFalse(is_plain(4 * MIB))
        self.assertTrue(is_plain(33 * MIB))
        self.assertFalse(is_plain(33 * MIB, MANAGED_BACKEND='pool'))
        self.assertTrue(is_plain(4 * MIB, MANAGED_BACKEND='plain'))
        self.assertTrue(is_plain(4 * MIB, PREFER='host'))
        self.assertTrue(is_plain(4 * MIB, MANAGED_BACKEND='pool', READ_MOSTLY='1'))

    def test_old_drivers_have_no_managed_pool(self):
        result = preloaded([COMMAND, 'where', str(4 * MIB)],
                           dict(MANAGED, SIM_DRIVER_VERSION='12040', ALLOGRAFT_MANAGED_BACKEND='pool'))
        self.assertEqual((result.status, result.err), (0, ''))
        self.assertEqual(result.report()['managed']['advice'], 1)

    def test_device_without_concurrent_access_says_so_once(self):
        result = preloaded([COMMAND, 'where', '4096'], dict(MANAGED, SIM_ATTRIBUTES='89=0'))
        self.assertEqual(result.status, 0)
        self.assertEqual(say(result, 'managed'), ['0'])
        self.assertEqual(result.err.count('concurrent managed access'), 1, result.err)
        self.assertEqual(result.report()['coverage']['fallbacks']['no_concurrent_managed_access'], 2)


@but_under_tsan
class Oversubscription(Case):
    def where(self, **settings):
        variables = {'ALLOGRAFT_' + k: v for k, v in settings.items()}
        return preloaded([COMMAND, 'where', str(96 * MIB)], dict(MANAGED, SIM_MEMORY='64MiB', **variables))

    def test_only_where_asked_for(self):
        for backend in ('plain', 'pool', 'auto'):
            refused = self.where(MANAGED_BACKEND=backend)
            self.assertRegex(refused.err, r'cuMemAlloc.* returned 2, not 0')
            self.assertEqual(refused.report()['pressure']['refused'], 1)
            result = self.where(MANAGED_BACKEND=backend, OVERSUBSCRIBE='1')
            self.assertEqual((result.status, result.err, say(result, 'wrong')), (0, '', ['0']))

    def test_what_prefers_the_host_needs_no_room_on_the_device(self):
        result = self.where(PREFER='host')
        self.assertEqual((result.status, result.err, say(result, 'wrong')), (0, '', ['0']))
        self.assertEqual(result.report()['devices'][0]['placements']['host']['allocs'], 2)


@but_under_tsan
class Budget(Case):
    def budget(self, **settings):
        result = preloaded([COMMAND, 'budget'], {'ALLOGRAFT_' + k: v for k, v in settings.items()})
        self.assertEqual((result.status, result.err), (0, ''), result.out)
        return result

    def test_is_told_and_kept(self):
        for policy in ('pool', 'native', 'managed'):
            with self.subTest(policy=policy):
                result = self.budget(POLICY=policy, LIMIT='8MiB')
                self.assertEqual(result.out.splitlines(), [
                    'total: 8 MiB, free: 8 MiB', 'pieces: 8, then 2', 'free: 0 KiB',
                    'memory without an address: 2', 'rows: 2', 'free after one: 1024 KiB',
                    'of another size: 0', 'memory without an address: 0', 'no more: 2', 'and again: 0',
                    'all back: 1'])
                pressure = result.report()['pressure']
                self.assertEqual((pressure['over_limit'], pressure['refused']), (3, 3))

    def test_forgets_what_the_driver_refused(self):
        """The card is full before the limit is reached: what was asked of the driver in vain is nobody's."""
        self.same([COMMAND, 'refused'], [{'ALLOGRAFT_POLICY': policy, 'ALLOGRAFT_LIMIT': '80MiB'}
                                         for policy in ('auto', 'pool', 'native')], settings={'SIM_MEMORY': '64MiB'})

    def test_holds_in_a_capture_and_after_an_error(self):
        for policy in ('auto', 'pool', 'native', 'managed'):
            with self.subTest(policy=policy):
                result = preloaded([COMMAND, 'captured'], {'ALLOGRAFT_POLICY': policy, 'ALLOGRAFT_LIMIT': '8MiB',
                                                           'SIM_VIOLATION': 'count'})
                self.assertEqual(result.out.splitlines(), [
                    'rows: 0', 'rows: 0', 'rows: 2', 'rows: 2', 'free: 2048 KiB', 'free after one: 5120 KiB',
                    'too much: 2', 'a bad kernel: 700', 'too much after that: 700'])
                spills = preloaded([COMMAND, 'captured'], {'ALLOGRAFT_POLICY': policy, 'ALLOGRAFT_LIMIT': '8MiB',
                                                           'ALLOGRAFT_OOM': 'spill', 'SIM_VIOLATION': 'count'})
                self.assertEqual(spills.out.splitlines()[-3:], [
                    'too much: 0', 'a bad kernel: 700', 'too much after that: 700'])

    def test_is_a_part_of_the_device(self):
        result = self.budget(LIMIT='25%')
        total = int(say(run([COMMAND, 'budget']), 'total')[0].split()[0])
        self.assertEqual(int(say(result, 'total')[0].split()[0]), total // 4)


class Spill(Case):
    def spill(self, what='spill', **settings):
        result = preloaded([COMMAND, what], {'ALLOGRAFT_' + k: v for k, v in settings.items()})
        self.assertEqual((result.status, result.err), (0, ''), result.out)
        self.assertEqual(set(say(result, 'wrong')), {'0'})
        return result

    def test_what_fits_stays_on_the_device(self):
        result = self.spill(LIMIT='8MiB', OOM='spill')
        lines = result.out.splitlines()
        self.assertEqual(lines[:5], ['%d: managed %d' % (i, i > 1) for i in range(5)])
        self.assertEqual(say(result, 'free of 1'), ['%d prefers -1' % i for i in (2, 3, 4)])
        report = result.report()
        self.assertEqual(report['devices'][0]['placements']['spilled']['allocs'], 3)
        self.assertEqual(report['devices'][0]['placements']['spilled']['current_bytes'], 0)
        self.assertEqual(report['pressure']['spilled'], 3)

    def test_moves_back_what_was_spilled_first(self):
        for policy in ('pool', 'native'):
            result = self.spill(POLICY=policy, LIMIT='8MiB', OOM='spill', UNSPILL='1')
            self.assertEqual(say(result, 'free of 0'), ['2 prefers 0', '3 prefers -1', '4 prefers -1'])
            self.assertEqual(say(result, 'free of 1'), ['2 prefers 0', '3 prefers 0', '4 prefers -1'])
            pressure = result.report()['pressure']
            self.assertEqual((pressure['unspilled'], pressure['unspilled_bytes']), (3, 12 * MIB))

    def test_real_want_of_memory(self):
        result = preloaded([COMMAND, 'spill'], {'SIM_MEMORY': '16MiB', 'ALLOGRAFT_OOM': 'spill'})
        self.assertEqual((result.status, result.err), (0, ''), result.out)
        self.assertEqual(set(say(result, 'wrong')), {'0'})
        self.assertGreater(result.report()['pressure']['spilled'], 0)

    def test_threads(self):
        for settings in ({'LIMIT': '4MiB', 'OOM': 'spill'}, {'LIMIT': '4MiB', 'OOM': 'spill', 'UNSPILL': '1'},
                         {'LIMIT': '4MiB', 'OOM': 'spill', 'UNSPILL': '1', 'CACHE': '0'},
                         {'POLICY': 'managed', 'LIMIT': '6MiB', 'OOM': 'spill', 'UNSPILL': '1'}):
            for seed in some(range(1, 4)):
                with self.subTest(settings=settings, seed=seed):
                    variables = {'ALLOGRAFT_' + k: v for k, v in settings.items()}
                    result = preloaded([COMMAND, 'threads'], dict(variables, SIM_SEED=str(seed)))
                    self.assertEqual((result.status, result.err), (0, ''), result.out)
                    self.assertEqual(say(result, 'wrong'), ['0'])
                    for name, place in result.report()['devices'][0]['placements'].items():
                        self.assertEqual(place['current_bytes'], 0, name)


class Waits(Case):
    def test_are_bounded(self):
        """The other thread's free is behind a kernel that only this thread can end."""
        for mode in share(('auto', 'ordered')):
            with self.subTest(free=mode):
                began = time.monotonic()
                result = preloaded([COMMAND, 'waits'], {'SIM_MEMORY': '96MiB', 'ALLOGRAFT_POLICY': 'pool',
                                                        'ALLOGRAFT_FREE': mode})
                self.assertEqual((result.status, result.err), (0, ''))
                self.assertEqual(result.out.splitlines(),
                                 ['more than is free until the kernel ends: 2', 'and then: 0'])
                self.assertLess(time.monotonic() - began, SECONDS / 2)
                self.assertGreater(result.report()['pressure']['waits_in_vain'], 0)


if __name__ == '__main__':
    main()
