# Pageable memory that threads of ours copy: the same bytes, and each call returns when it may.

import mmap
import re
import unittest

from harness import SEEDS, Case, but_under_tsan, main, preloaded, program, run, share

SMALLEST = {'ALLOGRAFT_COPY': 'auto', 'ALLOGRAFT_COPY_FROM': '1', 'ALLOGRAFT_COPY_THREADS': '3'}
VARIANTS = [SMALLEST,
            dict(SMALLEST, ALLOGRAFT_POLICY='pool', ALLOGRAFT_COPY_THREADS='8'),
            dict(SMALLEST, ALLOGRAFT_POLICY='native', ALLOGRAFT_COPY_FROM='100000'),
            dict(SMALLEST, ALLOGRAFT_POLICY='managed'),
            dict(SMALLEST, ALLOGRAFT_WAITS='1'),
            dict(SMALLEST, ALLOGRAFT_GRAPH='all', ALLOGRAFT_GRAPH_WARMUP='1')]
AUTO = {'ALLOGRAFT_COPY': 'auto', 'ALLOGRAFT_COPY_THREADS': '3'}



def can_reach():
    """Does the kernel get pages without a fault (Linux 5.14; no emulator does)? Else the copies are the driver's."""
    try:
        mmap.mmap(-1, mmap.PAGESIZE).madvise(22)
    except OSError:
        return False
    return True


REACHES = can_reach()


THREADS_SAY = 'threads: 0 wrong\n'
KINDS_SAY = ''.join('way %d, %d bytes: 0 wrong, errno 0\n' % (way, n)
                    for n in (1, 63, 4097, 100000) for way in range(5) for _ in range(2))


class Pageable(Case):
    def crewed(self, part, least=1, variants=VARIANTS, **more):
        """The program does the same under each variant, and in the first one the crew made so many copies."""
        results = self.same([program('preload_pageable'), part], variants=variants, **more)
        for variant, result in results:
            if variant == SMALLEST and REACHES:
                self.assertGreaterEqual(result.report()['copies']['crew'], least)
        return results

    @but_under_tsan
    def test_kinds_of_memory(self):
        self.crewed('kinds', 60)

    def test_an_older_kernel_leaves_them_to_the_driver(self):
        for _, result in self.same([program('preload_pageable'), 'older'], variants=VARIANTS[:1]):
            self.assertEqual(result.report()['copies']['crew'], 0)

    @but_under_tsan
    def test_long_rows(self):
        self.crewed('rows', 3)

    def test_order_on_streams(self):
        self.crewed('order', 6, seeds=SEEDS)

    def test_threads(self):
        self.crewed('threads', seeds=SEEDS, says=THREADS_SAY)

    def test_a_fault_is_the_calling_threads(self):
        self.crewed('faults', 2)

    def test_signals_come_and_are_not_lost(self):
        self.crewed('signals', 40, says=THREADS_SAY + KINDS_SAY + 'signals come: 1; they are blocked: 0\n')

    def test_a_thread_is_cancelled(self):
        self.crewed('cancelled', 40, says=5 * 'cancelled: 1\n' + KINDS_SAY)

    def test_contexts_end(self):
        self.crewed('contexts', 40, says=''.join('context %d: 0 wrong\n' % i for i in range(4)) + KINDS_SAY)

    @but_under_tsan
    def test_captures(self):
        self.same([program('preload_pageable'), 'captures'], variants=VARIANTS)

    @but_under_tsan
    def test_a_capture_begins_meanwhile(self):
        self.same([program('preload_pageable'), 'meanwhile'], variants=VARIANTS, settings={'SIM_SCHED': 'lazy'})

    def test_behind_a_kernel_that_waits_for_the_program(self):
        self.crewed('behind', 3, seeds=SEEDS)

    def test_a_handler_runs_while_the_legacy_stream_is_waited_for(self):
        self.same([program('preload_pageable'), 'handled'], variants=VARIANTS)

    @but_under_tsan
    def test_memory_that_nobody_has_touched(self):
        for variant, result in self.same([program('preload_pageable'), 'untouched'], variants=[SMALLEST, AUTO],
                                         says='out: the same 1; around it 0 0\nin: 0 wrong\n'):
            # By default the first has to show that slots would gain; and whether they did, decides about the last.
            least = 4 if variant == SMALLEST else 2
            self.assertGreaterEqual(result.report()['copies']['crew'], least if REACHES else 0)

    @unittest.skipUnless(REACHES, 'an older kernel')
    def test_uploads_in_a_row_are_the_crews(self):
        says = ''.join('way %d, 8 uploads of 4194304 bytes: 0 wrong\n' % way for way in range(5))
        for variant, result in self.same([program('preload_pageable'), 'row'], variants=[SMALLEST], seeds=SEEDS, says=says):
            copies = result.report()['copies']
            self.assertEqual((copies['crew'], copies['queued']), (5 * (8 + 3), 0))

    @unittest.skipUnless(REACHES, 'an older kernel')
    def test_one_behind_a_kernel_is_the_drivers(self):
        for variant, result in self.same([program('preload_pageable'), 'kernels'], variants=[SMALLEST], seeds=SEEDS):
            copies = result.report()['copies']
            self.assertEqual((copies['crew'], copies['queued']), (9 * 2, 9))

    def test_large_ones_wait_for_the_work_before_them(self):
        # The last variant is a ring that has room for all of these uploads at once.
        variants = VARIANTS + [dict(SMALLEST, ALLOGRAFT_COPY_FROM='1000000')]
        self.same([program('preload_pageable'), 'large'], variants=variants, settings={'SIM_SCHED': 'lazy'},
                  says=''.join('turn %d: 0 wrong\n' % turn for turn in range(8)))

    @unittest.skipUnless(REACHES, 'an older kernel')
    def test_one_after_the_legacy_streams_work_waits_for_it(self):
        # As on an H100: of more than 2 MiB. The simulated device does nothing before somebody waits for it.
        variant = dict(SMALLEST, ALLOGRAFT_COPY_FROM='2MiB')
        [(_, result)] = self.same([program('preload_pageable'), 'legacy'], variants=[variant],
                                  settings={'SIM_SCHED': 'lazy'})
        self.assertEqual(re.findall('MiB: (.*)', result.out), [
            "the legacy stream's work is " + state for state in ('not done', 'done', 'done', 'done', 'not done', 'done')])
        self.assertEqual(re.findall('(.*) wrong', result.out), 6 * ['0'])
        # Those of 2 MiB beside the legacy stream are the driver's, but the first on a non-blocking stream.
        self.assertEqual(result.report()['copies']['crew'], 2 + 1 + 6)

    def test_a_forked_child(self):
        results = self.same([program('preload_pageable'), 'forks'], variants=VARIANTS, quiet=False)
        self.assertTrue(results)

    @but_under_tsan
    def test_errors_are_the_drivers(self):
        # Beside managed memory lies what is no device's.
        self.crewed('errors', 2, variants=[v for v in VARIANTS if v.get('ALLOGRAFT_POLICY') != 'managed'])

    def shown(self, part, **settings):
        result = preloaded([program('preload_pageable'), part], dict(AUTO, **settings))
        self.assertEqual((result.status, result.err), (0, ''))
        return result.out, result.report()['copies']

    @but_under_tsan
    def test_a_process_that_copies_little_has_nothing_of_ours(self):
        out, copies = self.shown('little')
        self.assertEqual(out, '40 copies of 1048575 bytes: 0 wrong; threads of ours: 0, registered: 0\n'
                              '2 copies of 16777216 bytes: 0 wrong; threads of ours: 0, registered: 0\n')
        self.assertEqual(sum(copies.values()), 0)

    @but_under_tsan
    def test_nor_is_it_asked_anything(self):
        asked = [re.findall(r'^sim: \[\d+\] (cuPointer\w+|cuStreamQuery|cuStreamGet\w+)', result.err, re.M)
                 for result in (run([program('preload_pageable'), 'little'], {'SIM_LOG': '1'}),
                                preloaded([program('preload_pageable'), 'little'], dict(AUTO, SIM_LOG='1')))]
        self.assertEqual(asked[1], asked[0])

    @but_under_tsan  # the crew's threads do there what they do in the parts above
    @unittest.skipUnless(REACHES, 'an older kernel')
    def test_one_that_copies_much(self):
        out, copies = self.shown('much')
        self.assertEqual(out, '4 copies of 167772160 bytes: 0 wrong; threads of ours: 2, registered: 1\n')
        self.assertGreaterEqual(copies['crew'], 1)
        # The first was needed to see that slots would gain.
        self.assertEqual(sum(copies[key] for key in ('crew', 'slower', 'timed')), 3)

    @but_under_tsan
    @unittest.skipUnless(REACHES, 'an older kernel')
    def test_slots_that_the_driver_refuses_take_no_memory(self):
        for fails, rings in ('cuMemHostRegister_v2:1:2', 0), ('cuMemHostRegister_v2:9:2', 1):
            out, _ = self.shown('refused', SIM_FAIL=fails)
            self.assertIn('rings: %d' % rings, out)

    @but_under_tsan
    def test_a_device_that_reads_the_hosts_memory(self):
        for attribute in share(('18', '100')):  # it is integrated; it uses the host's page tables
            out, copies = self.shown('much', SIM_ATTRIBUTES=attribute + '=1')
            self.assertIn('threads of ours: 0', out)
            self.assertEqual(copies['crew'], 0)


if __name__ == '__main__':
    main()
