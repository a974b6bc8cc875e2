# The default policy: native memory, kept from the first allocation after a free on.

import re
import time

from harness import EXACT, SECONDS, UNDER_TSAN, Case, but_under_tsan, main, preloaded, program, run, share, some

COMMAND = program('preload_churn')
ROOM = program('preload_launch_room')
NEIGHBOUR = program('preload_neighbour')
# Managed memory has no handles.
DEVICE = [v for v in EXACT if v.get('ALLOGRAFT_POLICY') != 'managed']
# Driver calls that a program which never allocates after a free causes, natively and preloaded.
CALLS = re.compile(r'^sim: \[\d+\] (cu\w+)', re.M)
OURS = r'^cu(Ctx|Device|Driver|GetProcAddress|Init|MemGetInfo|MemAllocPitch|PointerGet|StreamIsCapturing)'


class Churn(Case):
    @but_under_tsan
    def test_as_natively(self):
        for part in (['few'], ['turns', '100'], ['answers'], ['exported']):
            self.same([COMMAND] + part, DEVICE + [{'ALLOGRAFT_CACHE': '64KiB'}, {'ALLOGRAFT_CACHE': '0'},
                                                  {'ALLOGRAFT_LIMIT': '64MiB'}])
        self.same([COMMAND, 'devices'], EXACT, settings={'SIM_DEVICES': '2'})

    @but_under_tsan
    def test_a_program_that_never_churns_is_native(self):
        native = run([COMMAND, 'few'], {'SIM_LOG': '1'})
        result = preloaded([COMMAND, 'few'], {'SIM_LOG': '1'})
        ours, natives = ([call for call in CALLS.findall(r.err) if not re.match(OURS, call)] for r in (result, native))
        self.assertEqual(ours.count('cuMemAlloc_v2'), 64)
        pitches = len([c for c in CALLS.findall(result.err) if c == 'cuMemAllocPitch_v2'])
        self.assertEqual(ours[pitches:], natives)  # each of those frees what it asked for
        report = result.report()
        self.assertEqual(report['pool'], {'made': 0})
        self.assertEqual((report['coverage']['redirected'], report['coverage']['passed']), (64, 0))
        self.assertEqual((report['frees']['native'], report['cache']['misses']), (64, 64))

    @but_under_tsan
    def test_churn_is_served_by_the_cache(self):
        result = preloaded([COMMAND, 'turns', '400'])
        report = result.report()
        self.assertEqual(report['pool']['made'], 0)
        self.assertGreater(report['cache']['hits'], 250)
        self.assertLess(report['frees']['native'], 20)
        self.assertEqual(report['devices'][0]['placements']['native']['allocs'], 400)
        self.assertEqual(report['devices'][0]['placements']['native']['current_bytes'], 0)

    @but_under_tsan
    def test_what_misses_is_native(self):
        # Memory of a pool belongs to no context: copies in executable graphs do not come to be of it.
        places = preloaded([COMMAND, 'turns', '400'], {'ALLOGRAFT_CACHE': '0'}).report()['devices'][0]['placements']
        self.assertEqual(places['native']['allocs'], 400)
        self.assertEqual({name for name, place in places.items() if place['allocs']}, {'native'})

    def test_threads(self):
        for settings, made in (({}, 0), ({'ALLOGRAFT_CACHE': '0'}, 0), ({'ALLOGRAFT_POLICY': 'pool'}, 1)):
            for _, result in self.same([COMMAND, 'threads', '50'], [settings]):
                report = result.report()
                self.assertEqual(report['pool']['made'], made)
                self.assertEqual(report['coverage']['redirected'], 800)
                for place in report['devices'][0]['placements'].values():
                    self.assertEqual(place['current_bytes'], 0)

    @but_under_tsan
    def test_what_makes_a_pool(self):
        for settings, made in (({'ALLOGRAFT_POLICY': 'pool'}, 1), ({'ALLOGRAFT_POOL_KEEP': '1GiB'}, 1),
                               ({'ALLOGRAFT_FREE': 'ordered'}, 1), ({'ALLOGRAFT_RULES': 'nth=9:pool'}, 1),
                               ({'ALLOGRAFT_POLICY': 'native'}, 0)):
            self.assertEqual(preloaded([COMMAND, 'turns', '100'], settings).report()['pool']['made'], made, settings)

    @but_under_tsan
    def test_a_rule_gives_memory_of_a_pool_to_no_others(self):
        for slab in ('0', '64KiB'):
            places = preloaded([COMMAND, 'turns', '100'], {'ALLOGRAFT_RULES': 'nth=1..9:pool', 'ALLOGRAFT_SLAB': slab})
            places = places.report()['devices'][0]['placements']
            self.assertEqual((places['pool']['allocs'], places['native']['allocs']), (9, 91), slab)

    @but_under_tsan
    def test_exported_blocks_go_back(self):
        # A free before churn, and the two exported ones, are the driver's. A piece of a slab has a handle of ours.
        report = preloaded([COMMAND, 'exported'], {'ALLOGRAFT_SLAB': '0'}).report()
        self.assertEqual((report['frees']['native'], report['ipc']['handles_given']), (3, 0))
        report = preloaded([COMMAND, 'exported']).report()
        self.assertEqual((report['frees']['native'], report['ipc']['handles_given']), (2, 1))

    @but_under_tsan
    def test_what_is_kept_is_bounded(self):
        # The program has 137 MiB at most, and freed blocks of 1,605 MiB, each of another size.
        for settings in ({}, {'ALLOGRAFT_POLICY': 'pool'}):
            for _, result in self.same([COMMAND, 'phases', '30'], [settings]):
                cache = result.report()['cache']
                self.assertLessEqual(cache['peak_bytes'], (137 * 11 // 10 + 2) << 20)
                self.assertGreater(cache['blocks_returned'], 10)
            # The pool, too, holds no more: there is room on a device of 300 MiB.
            result = preloaded([COMMAND, 'phases', '30'], dict(settings, SIM_MEMORY='300MiB', ALLOGRAFT_CACHE='max'))
            self.assertEqual(result.report()['pressure']['trimmed'], 0)
            # Where it goes round in all of them, for once more what it has.
            for _, result in self.same([COMMAND, 'phases', '150'], [dict(settings, SIM_MEMORY='8GiB')]):
                cache = result.report()['cache']
                self.assertGreater(cache['peak_bytes'], (137 * 15 // 10) << 20)
                self.assertLessEqual(cache['peak_bytes'], (137 * 21 // 10 + 2) << 20)

    @but_under_tsan
    def test_sizes_that_vary(self):
        # What it asks for again and again comes from larger blocks: neither from the driver, nor from a pool.
        for settings, made in (({}, 0), ({'ALLOGRAFT_POLICY': 'pool'}, 1)):
            for _, result in self.same([COMMAND, 'varied', '1000'], [dict(settings, SIM_MEMORY='8GiB')]):
                report = result.report()
                self.assertEqual(report['pool']['made'], made)
                self.assertLess(report['cache']['misses'], 50)
                self.assertLess(report['cache']['blocks_returned'], 40)
                self.assertLessEqual(report['cache']['peak_bytes'], (72 * 21 // 10 + 2) << 20)

    @but_under_tsan
    def test_blocks_in_use_are_not_much_too_large(self):
        # Of blocks of 12 MiB, where the cache has some of 30, one may be too large, by a tenth of what the program has
        # had; none by more than a 64th of the device, or of the limit.
        for memory, limit, hits in (('4GiB', 'max', 1), ('1GiB', 'max', 0), ('4GiB', '1GiB', 0)):
            settings = {'SIM_MEMORY': memory, 'ALLOGRAFT_CACHE': 'max', 'ALLOGRAFT_LIMIT': limit}
            cache = preloaded([COMMAND, 'too-large'], settings).report()['cache']
            self.assertEqual((cache['hits'], cache['blocks_returned']), (hits, 1))

    @but_under_tsan
    def test_a_card_that_is_nearly_full(self):
        # What the driver loads with a launch has room, as natively.
        room = {'SIM_MEMORY': '64MiB', 'SIM_LAZY': '2MiB'}
        for settings in ({}, {'ALLOGRAFT_POLICY': 'pool'}):
            for _, result in self.same([COMMAND, 'full'], [settings], settings=room):
                self.assertGreater(result.report()['cache']['blocks_returned'], 0)
        # Attribute 18: where the device uses the host's memory, what is free says nothing.
        shared = dict(room, SIM_ATTRIBUTES='18=1', SIM_LAZY='0')
        for _, result in self.same([COMMAND, 'full'], [{}], settings=shared):
            self.assertEqual(result.report()['cache']['blocks_returned'], 0)
        # A pool that was asked for gives back only what it has whole.
        self.same([COMMAND, 'was-full'], [{}], settings=room)
        self.same([COMMAND, 'full-slabs'], [{}], settings=room)
        self.same([COMMAND, 'full-handles'], [{}], settings=room)
        self.same([COMMAND, 'full-elsewhere'], [{}], settings={'SIM_MEMORY': '64MiB', 'SIM_DEVICES': '2'})
        self.same([COMMAND, 'full-graph'], [{}], settings={'SIM_MEMORY': '64MiB', 'SIM_UPLOAD': '1MiB'})

        three = {'SIM_MEMORY': '64MiB', 'SIM_CONTEXT': '20MiB', 'SIM_DEVICES': '3'}
        for _, result in self.same([COMMAND, 'full-context'], [{}], settings=three):
            self.assertEqual(result.out, 'created: 0\nretained: 0\ngreen: 0\n')

    def test_a_launch_finds_room(self):
        # More than is left for it beforehand: 48 MiB for its code, 832 for the local memory of its threads.
        every = {'ALLOGRAFT_GRAPH': 'all'}
        variants = [{}, {'ALLOGRAFT_POLICY': 'pool'}, {'ALLOGRAFT_FREE': 'sync'}, every,
                    dict(every, ALLOGRAFT_GRAPH_PROFIT='0', ALLOGRAFT_POLICY='pool'),
                    {'ALLOGRAFT_PREFETCH': 'launch'}]
        for kind in ('kernel', 'extended', 'cooperative'):
            for way in ('', 'thread-'):
                self.same([ROOM, way + kind], variants, settings={'SIM_LAZY': '48MiB'})
        for kind in ('graph', 'upload', 'loop'):
            self.same([ROOM, kind], variants)

    @but_under_tsan
    def test_a_launch_finds_room_among_guarded_blocks(self):
        # Guards fill 7 GiB in each: once by itself, and once as a graph. What is asked again is one function for all.
        for how, settings in share((('kernel', {'SIM_LAZY': '48MiB'}), ('graph', {}))):
            self.same([ROOM, how], [{'ALLOGRAFT_GUARD': 'poison'}], settings=settings)

    @but_under_tsan
    def test_managed_memory_has_room(self):
        # What is kept would have its pages come and go with each kernel.
        for how in ('managed', 'prefetch', 'prefetch-to', 'batch', 'advice'):
            for _, result in self.same([ROOM, how], [{}, {'ALLOGRAFT_POLICY': 'pool'}, {'ALLOGRAFT_CACHE': 'max'},
                                                     {'ALLOGRAFT_GRAPH': 'all'}]):
                self.assertEqual(result.out, 'on the device: 768 MiB\n')

    def test_another_process_has_room(self):
        # What is kept is asked for, or not, without a call of the driver in either case.
        kept = [{}, {'ALLOGRAFT_CACHE': 'max'}, {'ALLOGRAFT_POLICY': 'pool'}, {'ALLOGRAFT_FREE': 'sync'},
                {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_CACHE': 'max'}]
        # What the cache may not have is the pool's.
        pooled = {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_CACHE': '5%'}
        commands = [['1048576', 'threads'], ['1048576'], ['4096'], ['48000000']]
        for command in commands[:1] if UNDER_TSAN else some(commands):
            for _, result in self.same([NEIGHBOUR] + command, kept + [pooled],
                                       says='the neighbour misses 0 MiB\nwrong words: 0\n'):
                cache = result.report()['cache']
                self.assertGreater(cache['hits'], 10000)

    @but_under_tsan
    def test_what_loads_code_is_tried_again(self):
        once = ('cuLibraryGetModule', 'cuModuleGetFunction', 'cuKernelGetFunction', 'cuFuncLoad', 'cuFuncGetAttribute',
                'cuKernelGetAttribute', 'cuOccupancyMaxActiveBlocksPerMultiprocessor',
                'cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags', 'cuGraphExecUpdate_v2')
        for symbol in once:
            self.same([ROOM, 'tries'], [{'SIM_FAIL': symbol + ':1:2'}])

    @but_under_tsan
    def test_a_card_that_is_full_in_a_capture(self):
        # Of a pool what stays may lie in three steps of 32 MiB, though it would find room in two.
        for memory, settings in share((('160MiB', {}), ('184MiB', {'ALLOGRAFT_POLICY': 'pool'}),
                                       ('184MiB', {'ALLOGRAFT_FREE': 'ordered'}))):
            for _, result in self.same([COMMAND, 'full-capture'], [settings], settings={'SIM_MEMORY': memory}):
                self.assertGreater(result.report()['pressure']['trimmed'], 0)
        # As on a card of that size.
        limited = preloaded([COMMAND, 'full-capture'], {'SIM_MEMORY': '1GiB', 'ALLOGRAFT_LIMIT': '160MiB'})
        self.assertEqual(limited.out.count('asked: 0'), 3)

    def test_a_capture_beside_a_wait(self):
        self.same([COMMAND, 'capture-beside'], [{}, {'ALLOGRAFT_POLICY': 'pool'}, {'ALLOGRAFT_FREE': 'ordered'}],
                  settings={'SIM_MEMORY': '160MiB'})

    def test_memory_that_another_thread_gives_back(self):
        self.same([COMMAND, 'return-beside'], [{'ALLOGRAFT_CACHE': 'max'}, {'ALLOGRAFT_CACHE': 'max', 'ALLOGRAFT_POLICY': 'pool'}],
                  settings={'SIM_MEMORY': '256MiB'})
        self.same([COMMAND, 'evict-beside'], [{}], settings={'SIM_MEMORY': '256MiB'})
        for what, room in (('free-beside', {}), ('calls-beside', {}), ('launch-beside', {'SIM_LAZY': '14MiB'}),
                           ('graph-beside', {'SIM_UPLOAD': '2MiB'})):
            self.same([COMMAND, what], [{'ALLOGRAFT_CACHE': 'max'}], settings=dict(room, SIM_MEMORY='160MiB'))
        for what in ('create-return', 'async-return'):
            self.same([COMMAND, what], [{'ALLOGRAFT_LIMIT': '256MiB'}], settings={'SIM_MEMORY': '1GiB'})
        for what in ('limit-beside', 'limit-rows'):
            self.same([COMMAND, what], [{'ALLOGRAFT_CACHE': 'max', 'ALLOGRAFT_LIMIT': '160MiB'}], settings={'SIM_MEMORY': '1GiB'})

    def test_memory_before_the_driver(self):
        for _, result in self.same([COMMAND, 'early'], [{}, {'ALLOGRAFT_LIMIT': '50%'}]):
            self.assertGreater(result.report()['cache']['hits'], 10)

    def test_the_primary_context_is_not_destroyed(self):
        self.same([COMMAND, 'destroy'], [{}, {'ALLOGRAFT_POLICY': 'pool'}])

    def test_a_kernel_that_waits_for_the_host(self):
        # Natively an allocation does not wait for it; ours waits for the driver to take a block back, but not for long.
        began = time.monotonic()
        self.same([COMMAND, 'waits'], DEVICE)
        self.assertLess(time.monotonic() - began, SECONDS / 2)

    def test_no_pool_where_the_device_has_none(self):
        result = preloaded([COMMAND, 'turns', '400'], {'ALLOGRAFT_POLICY': 'pool', 'SIM_FAIL': 'cuMemPoolCreate:0:801'})
        report = result.report()
        self.assertEqual((report['pool']['made'], report['coverage']['passed']), (0, 400))
        self.assertEqual(len(re.findall('no pool on device 0', result.err)), 1)


if __name__ == '__main__':
    main()
