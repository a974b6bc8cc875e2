# Memory that processes give each other by IPC handles: as natively, whichever of the two ends first and
# however the memory was placed; and what the report says of it.

import json
import re

from harness import EVERY, SEEDS, Case, but_under_tsan, lines, main, preloaded, program, run

LIVES = ('pair', 'inside', 'answers', 'twice', 'bare', 'again', 'close_waits', 'host_frees_first', 'kept',
         'guest_dies', 'guest_resets', 'host_resets', 'refused', 'captures', 'threads',
         'host_forks', 'crowd', 'host_dies', 'host_dies_heir')

# Managed memory has no handle, under us as natively.
POOL = [v for v in EVERY if v.get('ALLOGRAFT_POLICY') != 'managed']
TWO_DEVICES = {'SIM_DEVICES': '2'}
OF_POOL = {'ALLOGRAFT_POLICY': 'pool'}
SMALL = {'TEST_BYTES': '20000'}  # which are cut from slabs


class Ipc(Case):
    def life(self, name, *args, **more):
        return self.same([program('preload_ipc'), name, *args], variants=POOL, **more)

    def counted(self, result):
        """The IPC counters of all processes of a run, added up."""
        total = {}
        for report in result.reports():
            for name, count in report['ipc'].items():
                total[name] = total.get(name, 0) + count
        return total

    def test_on_one_device(self):
        for name in LIVES:
            for variant, result in self.life(name, seeds=SEEDS[:2]):
                counted = self.counted(result)
                pool = variant.get('ALLOGRAFT_POLICY') == 'pool'
                with self.subTest(life=name, variant=variant):
                    if variant.get('ALLOGRAFT_POLICY') != 'auto':  # some handles are the driver's
                        self.assertEqual(counted.get('handles_given', 0) > 0, pool)
                        if name != 'refused':
                            self.assertEqual(counted.get('served', 0) > 0, pool)
                    for reason in ('refused_other_user', 'refused_malformed', 'refused_too_slow',
                                   'refused_unknown', 'unreachable', 'not_imported'):
                        self.assertEqual(counted.get(reason, 0), 0, reason)

    def test_pieces_of_slabs(self):
        for name in LIVES + ('pieces',):
            for variant, result in self.life(name, settings=SMALL, seeds=SEEDS[:1]):
                counted = self.counted(result)
                policy = variant.get('ALLOGRAFT_POLICY')
                with self.subTest(life=name, variant=variant):
                    if policy in ('pool', 'auto', 'native'):
                        self.assertEqual(counted.get('handles_given', 0) > 0, policy != 'native')
                        made = sum(report['slabs']['made'] for report in result.reports())
                        self.assertEqual(made > 0, policy != 'native')

    @but_under_tsan
    def test_on_another_device(self):
        for name in ('pair', 'answers', 'twice', 'again', 'close_waits', 'host_frees_first'):
            self.life(name, '1', settings=TWO_DEVICES, seeds=SEEDS[:2])
        for name in ('pair', 'pieces', 'close_waits'):
            self.life(name, '1', settings=dict(TWO_DEVICES, **SMALL), seeds=SEEDS[:1])

    def test_several_devices(self):
        for name in ('later_device', 'two_pools'):
            self.life(name, settings=TWO_DEVICES, seeds=SEEDS[:2])

    def test_open_on_two_devices(self):
        # What is cut from a slab has an address on each device, what is of a pool one for all.
        for more in ({}, SMALL):
            for variant, result in self.life('on_each_device', settings=dict(TWO_DEVICES, **more), seeds=SEEDS[:1]):
                counted = self.counted(result)
                if counted.get('handles_given'):
                    self.assertEqual(counted['held'], 1, variant)

    def test_one_of_two_devices_ends(self):
        for more in ({}, SMALL):
            self.life('one_device_resets', settings=dict(TWO_DEVICES, **more), seeds=SEEDS[:2])

    @but_under_tsan
    def test_each_its_own_policy(self):
        # Whoever gave the memory out decides whose handle it is.
        for host, guest in (('pool', 'native'), ('native', 'pool'), ('pool', 'managed'), ('auto', 'pool'), ('pool', 'auto')):
            for name in ('pair', 'twice', 'answers'):
                native = run([program('preload_ipc'), name])
                result = preloaded([program('preload_ipc'), name],
                                   {'ALLOGRAFT_POLICY': host, 'TEST_GUEST_POLICY': guest})
                with self.subTest(host=host, guest=guest, life=name):
                    self.assertEqual((result.out, result.status), (native.out, 0), result.err)
                    self.assertEqual(self.counted(result)['opened'] > 0, host == 'pool')

    def test_opened_too_late(self):
        # The handle of a process that has ended, and of one whose child lives on with what it had
        # open: an error at once, and one line that says what to do.
        for variant, result in (self.life('host_dies_early', quiet=False)
                                + self.life('host_dies_early_heir', quiet=False)):
            pool = variant.get('ALLOGRAFT_POLICY') == 'pool'
            with self.subTest(variant=variant):
                said = re.findall(r'^allograft: .*', result.err, re.MULTILINE)
                self.assertEqual(len(said), 1 if pool else 0, result.err)
                self.assertTrue(not pool or 'ALLOGRAFT_POLICY=native' in said[0], said)
                self.assertEqual(self.counted(result).get('unreachable', 0), 1 if pool else 0)

    def test_a_pool_that_goes_and_comes(self):
        """Threads that leave a pool and import it again meanwhile: the driver would give them the one that goes (R927)."""
        for seed in range(1, 9):
            result = preloaded([program('preload_ipc'), 'crowd'], dict(OF_POOL, SIM_STALL='8', SIM_SEED=str(seed)))
            self.assertEqual((result.status, result.out.splitlines()[0]), (0, 'the crowd ended: 0'), result.err)

    def test_managed_memory_has_none(self):
        native = run([program('preload_ipc'), 'refused'])
        result = preloaded([program('preload_ipc'), 'refused'], {'ALLOGRAFT_POLICY': 'managed'})
        self.assertNotEqual(result.status, 86)
        self.assertEqual(native.status, 0)
        self.assertEqual(len(re.findall(r'^allograft: .*ALLOGRAFT_POLICY=native', result.err,
                                        re.MULTILINE)), 1, result.err)

    def test_memory_that_can_move_has_none(self):
        """One line says so, and what to set; with that, handles are the driver's. What comes later has handles anyway."""
        moving = {'ALLOGRAFT_OOM': 'page', 'TEST_BYTES': str(2 << 20)}
        result = preloaded([program('preload_ipc'), 'refused'], moving)
        self.assertNotIn(result.status, (0, 86))
        self.assertEqual(len(re.findall(r'^allograft: .*movable memory.*ALLOGRAFT_OOM=spill', result.err,
                                        re.MULTILINE)), 1, result.err)
        self.assertEqual(sum(report['coverage']['fallbacks']['no_ipc_for_redirected'] for report in result.reports()), 1)
        native, result = run([program('preload_ipc'), 'tries_again']), preloaded([program('preload_ipc'), 'tries_again'], moving)
        self.assertEqual((native.status, native.out.splitlines()[0]), (0, 'a handle: 0'))
        self.assertEqual((result.status, result.out), (0, native.out.replace('a handle: 0', 'a handle: 1')), result.err)
        for how in ({'ALLOGRAFT_OOM': 'spill'}, {'ALLOGRAFT_RULES': '*:native'}):
            for life in ('pair', 'twice', 'host_frees_first', 'refused'):
                native = run([program('preload_ipc'), life], {'TEST_BYTES': moving['TEST_BYTES']})
                result = preloaded([program('preload_ipc'), life], dict(moving, **how))
                self.assertEqual((result.status, result.out), (0, native.out), (how, life, result.err))
                self.assertTrue('ALLOGRAFT_OOM' in how or not self.counted(result).get('opened', 0))  # slabs have ours

    def test_the_driver_fails(self):
        # Whatever call of ours fails, the program gets an error or its memory, and nothing hangs.
        command = [program('preload_ipc'), 'twice']
        for symbol in ('cuMemPoolExportToShareableHandle', 'cuMemPoolExportPointer',
                       'cuMemPoolImportFromShareableHandle', 'cuMemPoolImportPointer'):
            for code in ('1', '2', '999'):
                with self.subTest(symbol=symbol, code=code):
                    result = preloaded(command, dict(OF_POOL, SIM_FAIL='%s:1:%s' % (symbol, code)))
                    self.assertIn(result.status, (0, 98), result.out + result.err)
                    self.assertNotIn('violation', result.err)

    def test_a_pool_that_cannot_be_shared(self):
        # The handle is refused with the driver's error, and one line says what to do.
        result = preloaded([program('preload_ipc'), 'pair'],
                           dict(OF_POOL, SIM_FAIL='cuMemPoolExportToShareableHandle:0:1'))
        self.assertEqual(result.status, 98, result.out)
        self.assertIn('cuIpcGetMemHandle', result.err)
        self.assertIn('set ALLOGRAFT_POLICY=native', result.err)

    def test_shared_memory_is_not_cached(self):
        # Who did not close what he opened goes on looking at it: nobody else gets that block.
        result = preloaded([program('preload_ipc'), 'again'], OF_POOL)
        host = max(result.reports(), key=lambda r: r['ipc']['handles_given'])
        self.assertEqual(host['ipc']['handles_given'], 8)
        self.assertEqual((host['cache']['hits'], host['cache']['blocks_returned']), (0, 8))

    def test_nothing_is_held_on_to(self):
        # A pool is let go with the last block of it, and so is every descriptor of one.
        result = preloaded([program('preload_ipc'), 'twice'], dict(OF_POOL, SIM_LOG='1'))
        calls = {name: len(re.findall(r'\b%s\b' % name, result.err)) for name in
                 ('cuMemPoolImportFromShareableHandle', 'cuMemPoolImportPointer', 'cuMemPoolDestroy')}
        self.assertEqual(set(calls.values()), {21}, calls)

    def test_stale_and_forged(self):
        # A handle holds until the memory is freed, and nobody guesses one.
        result = preloaded([program('preload_ipc'), 'stale'], OF_POOL)
        self.assertEqual(lines(result.out, '^the guest'), ['forged: 1', 'free: 0', 'stale: 1'])
        self.assertEqual(self.counted(result)['refused_unknown'], 2)
        self.assertEqual(self.counted(result)['served'], 0)

    def test_kept_until_closed(self):
        result = preloaded([program('preload_ipc'), 'kept'], OF_POOL)
        self.assertEqual(lines(result.out, '^the guest'),
                         ['kept: 0, found: 0'] * 4 + ['close: 0'], result.err)
        host = max(result.reports(), key=lambda r: r['ipc']['handles_given'])
        self.assertEqual((host['ipc']['held'], host['cache']['blocks_returned']), (1, 6))
        self.assertEqual(host['devices'][0]['placements']['pool']['current_bytes'], 0)

    def test_report_of_both(self):
        result = preloaded([program('preload_ipc'), 'pair'], OF_POOL)
        host, guest = sorted(result.reports(), key=lambda r: r['ipc']['opened'])
        self.assertEqual(host['ipc']['handles_given'], 3, json.dumps(host['ipc']))
        self.assertEqual(host['ipc']['served'], 2)
        self.assertEqual((guest['ipc']['opened'], guest['ipc']['closed']), (2, 2))
        self.assertEqual(guest['ipc']['handles_given'], 0)


class WithoutUs(Case):
    def test_a_guest_without_us(self):
        # It gets the driver's error for a handle of ours, and opens native memory as ever.
        small = dict(SMALL, TEST_BARE_GUEST='1')
        for settings, code in (({'ALLOGRAFT_POLICY': 'pool'}, 1), ({'ALLOGRAFT_POLICY': 'native'}, 0),
                               ({'ALLOGRAFT_POLICY': 'auto'}, 0), (small, 1), (dict(small, ALLOGRAFT_SLAB='0'), 0)):
            result = preloaded([program('preload_ipc'), 'stranger'], dict(settings, TEST_BARE_GUEST='1'))
            self.assertEqual(result.status, 0, result.out + result.err)
            self.assertIn('open: %d\n' % code, result.out)
            self.assertIn('the guest ended: 0', result.out)
            self.assertEqual(result.report()['ipc']['served'], 0)

    def test_a_host_without_us(self):
        # Native handles are the driver's, whoever opens them.
        result = preloaded([program('preload_ipc'), 'pair'], {'ALLOGRAFT_POLICY': 'native'})
        self.assertEqual(result.status, 0, result.out + result.err)
        for report in result.reports():
            self.assertEqual(set(report['ipc'].values()), {0})

    def test_the_log_says_what_is_needed(self):
        result = preloaded([program('preload_ipc'), 'stranger'],
                           dict(OF_POOL, ALLOGRAFT_LOG='info', TEST_BARE_GUEST='1'))
        self.assertEqual(len(re.findall('needs Allograft too', result.err)), 1, result.err)


if __name__ == '__main__':
    main()
