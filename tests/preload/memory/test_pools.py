# The program's own stream-ordered pools answer as natively, under every policy and with their settings, and
# the report tells what was done with each.

from harness import EXACT, SEEDS, Case, but_under_tsan, main, preloaded, program

KEEP = [{'ALLOGRAFT_APP_POOL_KEEP': size} for size in ('max', '10%', '64MiB')]
MANAGED = [{'ALLOGRAFT_RULES': '*:async=managed'},
           {'ALLOGRAFT_RULES': 'size<1KiB:native; thread=preload_pool*:async=managed'}]

# Lines that a setting is there to change: what pools hold, and that managed memory says that it is. It
# has no dma-buf, as all managed memory.
CHANGED = r'^(held:|attribute [56] is|kind:|dma-buf:)'


def changed(variant):
    return CHANGED if variant in KEEP + MANAGED else None


class Pools(Case):
    def pools(self, part, variants=(), **more):
        return self.same([program('preload_pools'), part], list(variants) or EXACT + KEEP + MANAGED,
                         drop=changed, **more)

    def report(self, part, settings=None):
        result = preloaded([program('preload_pools'), part], dict(settings or {}, SIM_SEED='1'))
        self.assertEqual(result.status, 0, result.out + result.err)
        return result.report()

    def rows(self, report, kind):
        return [row for row in report['app_pools'] if row['kind'] == kind]


class Same(Pools):
    def test_codes(self):
        self.pools('codes')

    def test_current(self):
        self.pools('current')

    def test_captures(self):
        self.pools('captures', seeds=SEEDS)

    def test_threads(self):
        self.pools('threads', seeds=SEEDS)

    def test_share(self):
        self.pools('share')

    def test_levels(self):
        self.pools('levels')

    def test_many(self):
        self.pools('many', KEEP[:1] + MANAGED[:1] + [{}])

    def test_fork(self):
        self.pools('fork')

    def test_reset(self):
        self.pools('reset')

    def test_devices(self):
        self.pools('devices', settings={'SIM_DEVICES': '2'})

    @but_under_tsan
    def test_per_thread_default_stream(self):
        for part in ('codes', 'current', 'captures', 'threads', 'share', 'levels'):
            results = self.same([program('preload_pools_per_thread'), part],
                                [{}] + KEEP[:1] + MANAGED[:1], drop=changed)
            for _, result in results:
                hooks = result.report()['coverage']['hooks']
                self.assertGreater(hooks.get('cuMemFreeAsync_ptsz', 0), 0)
                self.assertNotIn('cuMemFreeAsync', hooks)

    @but_under_tsan
    def test_older_drivers(self):
        for version in ('11040', '12020', '12090'):
            for part in ('codes', 'captures', 'levels', 'threads'):
                self.pools(part, [{}] + KEEP[:1] + MANAGED[:1],
                           settings={'SIM_DRIVER_VERSION': version})

    def test_failing_calls(self):
        for symbol in ('cuMemPoolGetAttribute', 'cuMemPoolSetAttribute', 'cuDeviceGetDefaultMemPool',
                       'cuMemAllocAsync', 'cuMemPoolCreate', 'cuStreamIsCapturing'):
            result = preloaded([program('preload_pools'), 'threads'],
                               {'ALLOGRAFT_APP_POOL_KEEP': 'max', 'SIM_FAIL': symbol + ':1:2'})
            with self.subTest(symbol=symbol):
                self.assertIn(result.status, (0, 98), result.out + result.err)
                result.report()


class Told(Pools):
    def test_nothing_when_there_are_none(self):
        result = preloaded(program('preload_order'))
        self.assertNotIn('app_pools', result.report())
        text = preloaded(program('preload_order'), stats='r.txt')
        self.assertNotIn("the program's own pools", list(text.files.values())[0])

    def test_text(self):
        result = preloaded([program('preload_pools'), 'levels'], stats='r.txt')
        text, = result.files.values()
        self.assertRegex(text, r"the program's own pools\n")
        self.assertRegex(text, r'default +0 +1 +- +8\.00 MiB +8\.00 MiB +32\.00 MiB\n')

    def test_levels(self):
        report = self.report('levels')
        default, = self.rows(report, 'default')
        self.assertEqual((default['device'], default['allocs'], default['frees']), (0, 1, None))
        self.assertEqual(default['alloc_bytes'], 8 << 20)
        self.assertEqual(default['used_high_bytes'], 8 << 20)
        self.assertEqual(default['reserved_high_bytes'], 32 << 20)
        used = sorted((row['allocs'], row['used_high_bytes']) for row in self.rows(report, 'created'))
        self.assertEqual(used, [(2, 8 << 20), (2, 8 << 20)])  # its own high mark was reset by then
        self.assertEqual(report['async']['freed'], 5)

    def test_frees_of_the_only_pool(self):
        result = preloaded([program('preload_pools'), 'fork'])
        parents, = [r for r in result.reports() if 'app_pools' in r]  # the child's has none
        default, = self.rows(parents, 'default')
        self.assertEqual((default['allocs'], default['frees']), (2, 2))

    def test_threads(self):
        report = self.report('threads')
        default, = self.rows(report, 'default')
        created = self.rows(report, 'created')
        self.assertEqual(default['allocs'], 160)
        self.assertEqual([row['allocs'] for row in created], [20] * 8)
        self.assertTrue(all(row['destroyed'] for row in created))
        self.assertEqual(report['async']['freed'], 320)

    def test_graph_nodes_are_not_allocations(self):
        report = self.report('captures')
        self.assertEqual(report['async']['captured'], 12)

    def test_imported(self):
        imported, = self.rows(self.report('share'), 'imported')
        self.assertEqual((imported['allocs'], imported['failed']), (0, 1))
        self.assertGreater(imported['other_calls'], 1)

    def test_more_pools_than_rows(self):
        report = self.report('many')
        self.assertEqual(len(report['app_pools']), 64)
        self.assertEqual(sum(row['allocs'] for row in report['app_pools']), 380)
        others, = self.rows(report, 'others')
        self.assertEqual(others['device'], None)
        self.assertGreater(others['allocs'], 300)

    def test_devices(self):
        result = preloaded([program('preload_pools'), 'devices'], {'SIM_DEVICES': '2'})
        rows = self.rows(result.report(), 'default')
        self.assertEqual([(row['device'], row['allocs']) for row in rows], [(0, 3), (1, 3)])
        result = preloaded([program('preload_pools'), 'devices'],
                           {'SIM_DEVICES': '2', 'ALLOGRAFT_RULES': 'device=1:async=managed'})
        self.assertEqual(result.report()['async']['managed'], 3)

    def test_current_pool(self):
        report = self.report('current')
        self.assertEqual([row['allocs'] for row in self.rows(report, 'default')], [4])
        self.assertEqual([row['allocs'] for row in self.rows(report, 'created')], [1])

    def test_ours_are_not_told(self):
        for policy in ('pool', 'managed'):
            result = preloaded(program('preload_order'), {'ALLOGRAFT_POLICY': policy})
            self.assertNotIn('app_pools', result.report())
        report = self.report('current', MANAGED[0])
        self.assertEqual(self.rows(report, 'managed'), [])
        self.assertEqual(sum(row['allocs'] for row in self.rows(report, 'default')), 0)


@but_under_tsan
class Kept(Pools):
    def held(self, settings):
        result = preloaded([program('preload_pools'), 'levels'], settings)
        return dict(line.split(': ')[1:] for line in result.out.splitlines() if line.startswith('held:'))

    def test_only_what_was_left_at_0(self):
        self.assertEqual(self.held({}), {'default': '0', 'created': '0', 'chosen 0': '0', 'chosen 5 MiB': '0',
                                          'chosen max': '33554432'})
        kept = {'default': '33554432', 'created': '33554432', 'chosen 0': '0', 'chosen 5 MiB': '0',
                'chosen max': '33554432'}
        for size in ('max', '50%', '64MiB'):
            self.assertEqual(self.held({'ALLOGRAFT_APP_POOL_KEEP': size}), kept)
        self.assertEqual(self.held({'ALLOGRAFT_APP_POOL_KEEP': '1%'}), self.held({}))  # of 1 GiB: too small

    def test_told(self):
        report = self.report('levels', KEEP[0])
        self.assertEqual(report['async']['thresholds_raised'], 3)
        self.assertTrue(all(row['threshold_raised'] for row in report['app_pools']))

    def test_not_in_a_capture(self):
        report = self.report('captures', KEEP[0])
        default, = self.rows(report, 'default')
        self.assertTrue(default['threshold_raised'])


@but_under_tsan
class Limited(Pools):
    WANTED = ['free: 16 of 64 MiB', '32 MiB more: 2', '32 MiB more from a pool: 2',
              '32 MiB more of cuMemAlloc: 2', 'without a context: 201', 'of a pool: 201', 'of cuMemAlloc: 201',
              'free: 0', 'free: 0', '32 MiB: 0', 'free: 0',
              '32 MiB of cuMemAlloc: 0', '32 MiB more: 2', 'free: 0', '32 MiB: 0']

    def test_as_on_a_card_of_that_size(self):
        for settings in ({}, {'ALLOGRAFT_POLICY': 'managed'}, KEEP[0], MANAGED[0]):
            result = preloaded([program('preload_pools'), 'limit'],
                               dict(settings, ALLOGRAFT_LIMIT='64MiB'))
            self.assertEqual((result.status, result.out.splitlines()), (0, self.WANTED), settings)
            self.assertGreaterEqual(result.report()['pressure']['over_limit'], 3)

    def test_what_the_driver_refuses_anyway(self):
        """No rule fails a call that finds no context: the CUDA runtime makes one current then, and asks again."""
        result = preloaded([program('preload_pools'), 'limit'],
                           {'ALLOGRAFT_RULES': 'size>=32MiB,call=async:fail', 'SIM_MEMORY': '256MiB'})
        codes = result.out.splitlines()
        self.assertEqual((result.status, codes[1:3], codes[4:7]), (0, self.WANTED[1:3], self.WANTED[4:7]), result.err)

    def test_without_a_limit_it_is_the_drivers(self):
        self.pools('limit', [{}], settings={'SIM_MEMORY': '64MiB'})
        self.pools('limit', [{}], settings={'SIM_MEMORY': '256MiB'})


@but_under_tsan
class Managed(Pools):
    def test_redirected(self):
        report = self.report('current', MANAGED[0])
        self.assertEqual(report['async']['managed'], 4)
        self.assertEqual(report['async']['managed_bytes'], 3 * 4096 + (1 << 20))

    def test_not_where_the_programs_pool_is_current(self):
        report = self.report('current', MANAGED[0])
        self.assertEqual(report['async']['managed_own_pool'], 1)
        self.assertEqual([row['allocs'] for row in self.rows(report, 'created')], [1])

    def test_has_no_dma_buf(self):
        result = preloaded([program('preload_pools'), 'current'], MANAGED[0])
        self.assertIn('dma-buf: 1\n', result.out)

    def test_first_rule_decides(self):
        for rules, n in (('size<8KiB:pool; *:async=managed', 1), ('*:async=pass; *:async=managed', 0),
                         ('nth=2..3:async=managed', 1), ('from=libnothing*:async=managed', 0),
                         ('from=preload_pools:async=managed', 4), ('device=1:async=managed', 0),
                         ('device=0,size=1..8KiB:async=managed', 3)):
            report = self.report('current', {'ALLOGRAFT_RULES': rules})
            self.assertEqual(report['async']['managed'], n, rules)

    def test_not_while_a_capture_is_open(self):
        report = self.report('captures', MANAGED[0])
        self.assertGreater(report['async']['managed_capture_open'], 0)
        self.assertGreater(report['async']['managed'], 0)

    def test_not_without_managed_pools(self):
        report = self.report('current', dict(MANAGED[0], SIM_DRIVER_VERSION='12090'))
        self.assertEqual(report['async']['managed'], 0)
        self.assertEqual(report['async']['managed_unavailable'], 4)

    def test_not_beyond_the_device(self):
        report = self.report('codes', MANAGED[0])
        self.assertGreater(report['async']['managed_exhausted'], 0)

    def test_pool_that_is_refused(self):
        report = self.report('current', dict(MANAGED[0], SIM_FAIL='cuMemPoolCreate:2:801'))
        self.assertEqual(report['async']['managed_unavailable'], 4)


if __name__ == '__main__':
    main()
