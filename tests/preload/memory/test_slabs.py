# Small blocks are cut from slabs: as natively in every answer, under every policy; and what the report says of it.

from harness import EXACT, SOME, UNDER_TSAN, Case, but_under_tsan, main, preloaded, program, run

COMMAND = program('preload_slabs')
OF_POOL = {'ALLOGRAFT_POLICY': 'pool'}
MANAGED = {'ALLOGRAFT_POLICY': 'managed'}
# Where slabs are not all: rules that give single blocks another policy; little in the cache, or none; a limit.
MORE = [{'ALLOGRAFT_RULES': 'size<2KiB:managed; nth=20..60:pool; size>=60KiB:native'},
        {'ALLOGRAFT_CACHE': '100KiB'}, {'ALLOGRAFT_SLAB': '4KiB'}, {'ALLOGRAFT_SLAB': '0'},
        {'ALLOGRAFT_SLAB': '256KiB', 'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_CACHE': '0'},
        {'ALLOGRAFT_LIMIT': '200MiB', 'ALLOGRAFT_POLICY': 'pool'}]
THREADS = ['threads', '64']
OF_ONE_THREAD = [] if UNDER_TSAN else [['answers'], ['sync'], ['sync-large'], ['sync-in-capture'], ['contexts'],
                                       ['captures'], ['async'], ['mixed'], ['cold', '300']]


def kinds(variant):
    """Managed memory says truthfully that it is managed."""
    managed = 'managed' in variant.get('ALLOGRAFT_POLICY', '') + variant.get('ALLOGRAFT_RULES', '')
    return r'^(kind:|ours:)' if managed else r'^ours:'


def slabs(*command, **settings):
    return preloaded([COMMAND] + list(command), settings).report()['slabs']


class Slabs(Case):
    def test_as_natively(self):
        for part in OF_ONE_THREAD + [THREADS]:
            self.same([COMMAND] + part, EXACT + MORE, drop=kinds)

    def test_they_are_used(self):
        for policy in ('auto', 'pool', 'managed'):
            for part in [part for part in OF_ONE_THREAD if part in (['answers'], ['mixed'])] + [THREADS]:
                report = preloaded([COMMAND] + part, {'ALLOGRAFT_POLICY': policy}).report()
                said = report['slabs']
                with self.subTest(policy=policy, part=part):
                    # Of threads, who gets the first slab cuts from it; the others may have blocks of their own by then.
                    self.assertGreater(said['blocks_cut'], 50 if part != THREADS else 0)
                    self.assertGreater(said['made'], 0)
                    self.assertEqual(said['held_bytes'], (said['made'] - said['given_back']) << 21)
                    self.assertLessEqual(said['held_bytes'], said['peak_bytes'])
                    # Every allocation is one of the three, and what the program has is counted to the byte.
                    answered = said['blocks_cut'] + report['cache']['hits'] + report['cache']['misses']
                    self.assertEqual(answered, report['coverage']['redirected'])
                    for place in report['devices'][0]['placements'].values():
                        self.assertEqual((place['current_bytes'], place['allocs']), (0, place['frees']))

    def test_up_to_the_size_that_is_set(self):
        # Of 200 blocks, 75 are at most 4 KiB + 1, 125 smaller than 20000 bytes, all at most 64 KiB.
        for size, n in (('0', 0), ('4KiB', 125), ('32KiB', 150), ('64KiB', 200)):
            # Blocks have the sizes of the cache, so a little less than 4 KiB is 4 KiB; 16 KiB are not.
            said = slabs('answers', ALLOGRAFT_SLAB=size)['blocks_cut']
            self.assertEqual(said > 0, n > 0)
            self.assertLessEqual(said, n)
        for policy in ('native', 'auto'):
            self.assertEqual(slabs('answers', ALLOGRAFT_POLICY=policy, ALLOGRAFT_SLAB='0')['made'], 0)
        self.assertEqual(slabs('answers', ALLOGRAFT_POLICY='native')['made'], 0)
        # A small limit is for the program's own bytes.
        self.assertEqual(slabs('answers', ALLOGRAFT_LIMIT='15MiB')['made'], 0)
        self.assertGreater(slabs('answers', ALLOGRAFT_LIMIT='64MiB')['made'], 0)

    @but_under_tsan
    def test_a_few_take_no_more_than_natively(self):
        # Of 5 MiB of small blocks; the driver takes them by 2 MiB as well.
        for policy in ('auto', 'pool', 'managed'):
            self.assertLessEqual(slabs('codes', '4', ALLOGRAFT_POLICY=policy)['peak_bytes'], 2 << 20)
            self.assertLessEqual(slabs('answers', ALLOGRAFT_POLICY=policy)['peak_bytes'], 8 << 20)
            # 16 threads at a time, with 6 KiB each.
            self.assertLessEqual(slabs('threads', '320', ALLOGRAFT_POLICY=policy)['peak_bytes'], 2 << 20)

    def test_many_before_anything_is_freed(self):
        # By default the first 64 are the driver's own: a process that has no more would be slower by a slab.
        for part, n, cut, made in (('codes', '64', 0, 0), ('codes', '300', 236, 1), ('cold', '300', 236, 1)):
            said = slabs(part, n)
            self.assertEqual((said['blocks_cut'], said['made']), (cut, made))
        self.assertEqual(slabs('cold', '300', ALLOGRAFT_POLICY='native')['made'], 0)

    @but_under_tsan
    def test_room(self):
        small = {'SIM_MEMORY': '64MiB'}
        device = [v for v in EXACT + MORE if 'managed' not in str(v) and 'ALLOGRAFT_LIMIT' not in v]
        self.same([COMMAND, 'full'], device, settings=small, drop=kinds)
        # What a pool has idle in parts it cannot give as a whole, with slabs or without.
        self.same([COMMAND, 'parts'], [v for v in device if 'pool' not in str(v).lower()], settings=small, drop=kinds)
        limit = {'ALLOGRAFT_LIMIT': '64MiB'}
        for policy, parts in (('auto', ('full', 'parts')), ('pool', ('full',))):
            for part in parts:
                result = preloaded([COMMAND, part], dict(limit, ALLOGRAFT_POLICY=policy))
                self.assertEqual(result.out, run([COMMAND, part], small).out, result.err)

    def test_under_pressure_they_go_back(self):
        said = slabs('full', SIM_MEMORY='64MiB')
        self.assertGreater(said['made'], 20)
        self.assertEqual(said['made'] - said['given_back'], said['held_bytes'] >> 21)
        self.assertLessEqual(said['held_bytes'], 2 << 20)

    def test_nothing_of_an_exported_slab_is_handed_out(self):
        # Natively the attribute goes with the memory. Here the driver has one for the whole slab.
        for settings, hits in (({}, 2), (OF_POOL, 3), (MANAGED, 2)):
            result = preloaded([COMMAND, 'sync'], settings)
            ours = [line for line in result.out.splitlines() if line.startswith('ours:')]
            self.assertEqual(ours, ['ours: before 0', 'ours: 1 0 0', 'ours: handed out again 0'], result.err)
            result = preloaded([COMMAND, 'sync-in-capture'], settings)
            self.assertEqual(result.report()['cache']['hits'], hits)  # small ones; of the large none is the slab

    def test_an_error_of_the_device(self):
        # Natively no allocation succeeds any more. So the driver has the last word as soon as it reports one.
        for settings in ({}, OF_POOL, MANAGED):
            fails = {'SIM_FAIL': 'cuStreamIsCapturing:0:700,cuMemAlloc_v2:0:700'}
            result = preloaded([COMMAND, 'codes', '4'], dict(settings, **fails))
            self.assertEqual(result.out.split(), ['alloc:', '700'] * 4, settings)
            self.assertEqual(result.report()['slabs']['blocks_cut'], 0)

    def test_no_room_for_a_slab(self):
        # Then the driver may still have some for the block alone.
        for settings in ({}, OF_POOL, MANAGED):
            for symbol in ('cuMemAlloc_v2', 'cuMemAllocFromPoolAsync', 'cuMemAllocManaged'):
                result = preloaded([COMMAND, 'codes', '3'], dict(settings, SIM_FAIL=symbol + ':1:2'))
                self.assertEqual(result.out.split(), ['alloc:', '0'] * 3, result.err)

    def test_managed_blocks_take_advice(self):
        result = preloaded([COMMAND, 'advice'], MANAGED)
        self.assertEqual(result.out, 'advice: 0\nprefetch: 0\n')
        result = preloaded([COMMAND, 'advice'], dict(MANAGED, ALLOGRAFT_MANAGED_BACKEND='pool'))
        self.assertIn('advice: 801\n', result.out)

    def test_ten_thousand_threads(self):
        many = 1600 if SOME else 10000  # 16 at a time
        report = preloaded([COMMAND, 'threads', str(many)]).report()
        self.assertLessEqual(report['slabs']['peak_bytes'], 2 << 20)
        place = report['devices'][0]['placements']['native']
        n = 3 * many + 2  # and two that let it begin to churn
        self.assertEqual((place['allocs'], place['frees'], place['current_bytes']), (n, n, 0))


if __name__ == '__main__':
    main()
