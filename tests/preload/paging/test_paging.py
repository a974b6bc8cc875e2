# Memory that lies on the device or the host, piece by piece (ALLOGRAFT_OOM=page): the program sees what it sees
# natively, wherever the pieces are, and whatever the driver refuses.

import os
import unittest

from harness import SEEDS, SOME, Case, but_under_tsan, main, preloaded, program, share, some

COMMAND = program('preload_paging')
PAGE = {'ALLOGRAFT_OOM': 'page', 'ALLOGRAFT_PAGE_PIECE': '2MiB', 'ALLOGRAFT_LOG': 'error'}
TIGHT = dict(PAGE, ALLOGRAFT_LIMIT='12MiB')
MIB = 1 << 20
TURNS = dict(PAGE, ALLOGRAFT_LIMIT='128MiB')
CREW = {'ALLOGRAFT_COPY': 'auto', 'ALLOGRAFT_COPY_FROM': '100000', 'ALLOGRAFT_COPY_THREADS': '3'}
VARIANTS = [PAGE, TIGHT, dict(TIGHT, ALLOGRAFT_POLICY='pool'), dict(TIGHT, ALLOGRAFT_POLICY='native'),
            dict(TIGHT, ALLOGRAFT_CACHE='0'), dict(TIGHT, ALLOGRAFT_FREE='sync')]
# What is on the host stays there.
STAYING = [dict(TIGHT, ALLOGRAFT_FREE='ordered'), dict(TIGHT, ALLOGRAFT_GRAPH='all', ALLOGRAFT_GRAPH_WARMUP='1')]


# How much moves, and when, of programs that other tests run as well: a sanitizer sees nothing new in those that have most.
counted = unittest.skipIf(SOME, 'the plain build counts')


def refusals(symbols):
    """SIM_FAIL for each of the first eight calls of each symbol: one of each symbol in a run, in another order in each run;
    one alone where there is all the time."""
    each = range(8)
    if os.environ.get('TEST_EFFORT') == 'all':
        return ['%s:%d:2' % (symbol, 1 + n) for symbol in symbols for n in each]
    return [','.join('%s:%d:2' % (symbol, 1 + (n + 3 * i) % 8) for i, symbol in enumerate(symbols)) for n in each]


# Orders of blocks, a pass each: as a training uses its layers, and some blocks far more often than others.
PASSES_THERE_AND_BACK = 'abcdefghijklmnopponmlkjihgfedcba' 'agbhcidjekfl'
PASS_OF_HOT_AND_COLD = ''.join('abcd' + cold for cold in 'efghijklmnop')


def least_moved_in(names, capacity):
    """How many blocks have to come in each pass at least, if those go whose next use is last."""
    passes, on_device, came = 6, set(), 0
    for at, name in enumerate(names * passes):
        if name in on_device:
            continue
        came += at >= 3 * len(names)
        if len(on_device) == capacity:
            following = names * (passes + 1)
            on_device.remove(max(on_device, key=lambda other: following.index(other, at)))
        on_device.add(name)
    return came / (passes - 3)


@but_under_tsan
class Turns(Case):
    """What finds by itself that nothing is wrong."""

    def report_of(self, *command, sched='eager', **settings):
        result = preloaded([COMMAND, *command], dict(TURNS, SIM_SCHED=sched, **settings))
        self.assertEqual((result.status, result.out), (0, 'wrong: 0\n'), result.err)
        return result.report()

    def pressure_of(self, *command, sched='eager', **settings):
        return self.report_of(*command, sched=sched, **settings)['pressure']


class Answers(Turns):
    def at_seeds(self, *command):
        """Under every variant, and half of them under each of the other seeds; with a sanitizer under one seed in turn."""
        results = self.same([COMMAND, *command], VARIANTS, seeds=some(SEEDS)[:1])
        for i, seed in enumerate(() if SOME else SEEDS[1:]):
            results += self.same([COMMAND, *command], VARIANTS[i::2], seeds=[seed])
        return results

    def test_blocks(self):
        for variant, result in self.same([COMMAND, 'blocks'], VARIANTS):
            on_host = result.report()['pressure']['movable_on_host']
            self.assertEqual(on_host > 0, 'ALLOGRAFT_LIMIT' in variant, variant)
            self.assertEqual(result.report()['pressure']['movable_lost'], 0)

    def test_a_small_card(self):
        result = preloaded([COMMAND, 'blocks'], dict(PAGE, SIM_MEMORY='24MiB'))
        self.assertEqual((result.status, result.err), (0, ''), result.out)
        self.assertGreater(result.report()['pressure']['movable_on_host'], 0)

    def test_passes(self):
        self.at_seeds('passes', '3')

    def test_frees(self):
        for _, result in self.at_seeds('frees'):
            self.assertEqual(result.report()['pressure']['movable_lost'], 0)

    def test_turns(self):
        """Ranges of which some pieces are on the device and some on the host go, too."""
        variants = [dict(TURNS, ALLOGRAFT_CACHE='0')]
        for _, result in self.same([COMMAND, 'turns', '3', '3'], variants):
            self.assertEqual(result.report()['pressure']['movable_lost'], 0)

    def test_stream_ordered(self):
        variants = [dict(one, ALLOGRAFT_RULES='*:async=page') for one in VARIANTS]
        for _, result in self.same([COMMAND, 'ordered', '3'], variants, seeds=SEEDS):
            report = result.report()
            self.assertEqual((report['async']['paged'], report['pressure']['movable_lost']), (3 * 2 * 8 + 1, 0))
        unwaited = 'after a free: 600\nthe same block: yes\nafter an allocation: 600\nwrong: 0\n'
        for one in (variants[0], dict(variants[0], ALLOGRAFT_CACHE='0')):
            result = preloaded([COMMAND, 'ordered', '0'], dict(one, SIM_SCHED='reluctant'))
            self.assertEqual(result.out, unwaited + 'beside a kernel that waits: at once\n' + 2 * unwaited, one)

    def test_graphs(self):
        self.same([COMMAND, 'graphs', '3', '3'], [TURNS], seeds=SEEDS)

    def test_exit(self):
        """What is kept when the driver ends is not lost."""
        for _, result in self.same([COMMAND, 'exit'], VARIANTS):
            self.assertEqual(result.report()['pressure']['movable_lost'], 0)

    def test_an_end_while_pieces_move(self):
        result = preloaded([COMMAND, 'end'], PAGE)
        self.assertEqual((result.status, result.out, result.err), (0, '', ''))
        self.assertEqual(result.report()['pressure']['moves'], 1)

    def test_copies_that_wait(self):
        self.at_seeds('waits')
        self.same([COMMAND, 'waits'], STAYING)

    def test_a_context_whose_copies_wait(self):
        self.at_seeds('waits-in-context')

    def test_copies_that_do_not_wait(self):
        self.same([COMMAND, 'at-once'], VARIANTS + STAYING)

    def test_frees_in_captures(self):
        self.same([COMMAND, 'captured'], VARIANTS + [{}, {'ALLOGRAFT_POLICY': 'pool'}, {'ALLOGRAFT_POLICY': 'managed'}])

    def test_a_context_that_ends(self):
        self.same([COMMAND, 'reset'], VARIANTS)

    def test_other_programs(self):
        for name in ('ranges', 'queries', 'attributes', 'edges', 'order', 'capture'):
            self.same(program('preload_' + name), [PAGE], drop='^more than all')  # it is had here


    def test_it_is_said(self):
        for limit, lines in (('max', 0), ('12MiB', 1)):
            result = preloaded([COMMAND, 'blocks'], dict(PAGE, ALLOGRAFT_LIMIT=limit, ALLOGRAFT_LOG='warn'))
            self.assertEqual(result.status, 0)
            self.assertEqual(result.err.count('lies on the host'), lines, result.err)

    def test_pieces_move(self):
        # All work is done when its call returns: however busy the machine, the device is idle in time.
        for free in ('auto', 'sync'):
            variant = dict(TIGHT, SIM_SCHED='eager', ALLOGRAFT_FREE=free)
            pressure = preloaded([COMMAND, 'passes', '3'], variant).report()['pressure']
            for key in ('moves', 'moved_in_bytes', 'moved_out_bytes', 'in_place_bytes'):
                self.assertGreater(pressure[key], 0, key)

    def test_prefetches_beside_moves(self):
        """Managed memory of a rule is prefetched before launches, and the rest moves."""
        result = preloaded([COMMAND, 'turns', '4', '5'], dict(TURNS, SIM_SCHED='eager', ALLOGRAFT_PREFETCH='launch',
                                                              ALLOGRAFT_RULES='nth=1:managed'))
        self.assertEqual((result.status, result.out), (0, 'wrong: 0\n'), result.err)
        self.assertGreater(result.report()['pressure']['moved_in_bytes'], 0)
        self.assertGreater(result.report()['managed']['launch_prefetches'], 0)

    @counted
    def test_it_is_said_what_keeps_memory_where_it_is(self):
        for settings, why in (({'ALLOGRAFT_GRAPH': 'all'}, 'it stays there, since ALLOGRAFT_GRAPH replays'),
                              ({'ALLOGRAFT_FREE': 'ordered'}, 'it stays there, since ALLOGRAFT_FREE=ordered'),
                              ({}, 'or moves')):
            result = preloaded([COMMAND, 'turns', '2', '5'], dict(TURNS, ALLOGRAFT_LOG='warn', SIM_SCHED='eager', **settings))
            self.assertEqual((result.status, result.out), (0, 'wrong: 0\n'), result.err)
            self.assertIn(why, result.err)
            self.assertEqual(len(result.err.splitlines()), 1, result.err)
            self.assertEqual(result.report()['pressure']['moves'] > 0, not settings)

    @counted
    def test_moves_before_the_first_of_many_uses(self):
        """From the second pass on, what is used often does not cross the bus for its first use. Of a graph that is
        known from the beginning. (65 pieces are filled in place.)"""
        for part, in_place in (('turns', 300), ('graphs', 80)):
            result = preloaded([COMMAND, part, '10', '20'], dict(TURNS, SIM_SCHED='eager'))
            pressure = result.report()['pressure']
            self.assertGreater(pressure['moved_in_bytes'], 9 * 60 * 2 ** 21, part)
            self.assertLess(pressure['in_place_bytes'], in_place * 2 ** 21, part)

    @counted
    def test_goes_as_if_the_future_were_known(self):
        """In passes of any order, once it was seen twice, hardly more comes than must. (What is used least recently would
        go four times as often in the second one, and what has the longest period half as often again in the first.)"""
        for names in (PASSES_THERE_AND_BACK, PASS_OF_HOT_AND_COLD):
            moved = [self.moved_in(passes, names) for passes in (4, 10)]
            least = least_moved_in(names, capacity=7)
            self.assertLessEqual((moved[1] - moved[0]) / 6, 1.15 * least * 16 * 2 ** 20, names)

    def test_how_far_from_the_bus(self):
        """What moving took is told beside what the bus alone takes for as many bytes, which is no more."""
        pressure = self.pressure_of('turns', '4', '20')
        self.assertGreater(pressure['bus_gib_ns'], 0)
        self.assertEqual(pressure['move_least_ns'], max(pressure['moved_in_bytes'], pressure['moved_out_bytes'])
                         * pressure['bus_gib_ns'] // 2 ** 30)
        self.assertLessEqual(pressure['move_least_ns'], pressure['move_copy_ns'] + pressure['move_map_ns'])
        self.assertLessEqual(pressure['move_copy_ns'] + pressure['move_map_ns'], pressure['move_ns'])

    def test_whose_memory_it_is(self):
        """What moves and is used on the host is counted by the stack that allocated it; with a cache by the last of those."""
        for cache in ('0', '1GiB'):
            report = self.report_of('sites', '6', '20', '4', ALLOGRAFT_STACKS='16', ALLOGRAFT_CACHE=cache)
            stacks = {stack['ever']['bytes'] // MIB: stack.get('moved') for stack in report['holders']['stacks']}
            self.assertEqual(set(stacks), {256, 192, 64})
            self.assertIsNone(stacks[256])
            keys = {'in_bytes': 'moved_in_bytes', 'out_bytes': 'moved_out_bytes', 'in_place_bytes': 'in_place_bytes'}
            for key, all_of_them in keys.items():
                self.assertEqual(sum(moved[key] for moved in stacks.values() if moved), report['pressure'][all_of_them], key)
            cold, hot = stacks[192], stacks[64]
            self.assertGreater(cold['in_place_bytes'], 5 * 128 * MIB)
            if cache == '0':
                self.assertGreaterEqual(hot['in_bytes'], 64 * MIB)
                self.assertGreaterEqual(cold['out_bytes'], 60 * MIB)
                self.assertLess(hot['in_place_bytes'], 5 * 64 * MIB)

    def test_whose_memory_it_is_by_samples(self):
        """Of blocks of 16 MiB, of which one in so many bytes counts, nearly all do, and each stands for itself."""
        report = self.report_of('sites', '6', '20', '4', ALLOGRAFT_STACKS='16', ALLOGRAFT_CACHE='0', ALLOGRAFT_STACKS_SAMPLE='64KiB')
        moved = sum(stack.get('moved', {'in_bytes': 0})['in_bytes'] for stack in report['holders']['stacks'])
        self.assertEqual(moved, report['pressure']['moved_in_bytes'])

    def test_whose_memory_it_is_without_stacks(self):
        self.assertNotIn('holders', self.report_of('sites', '2', '20', '4'))

    @counted
    def test_comes_before_its_launch(self):
        """What is foretold comes together: in fewer than half as many moves as there are pieces that come."""
        pressure = [self.pressure_of('small', passes, '3') for passes in ('4', '10')]
        moves, pieces = (pressure[1][key] - pressure[0][key] for key in ('moves', 'moved_in_bytes'))
        pieces //= 2 ** 21
        self.assertGreaterEqual(pieces, 6 * 64)
        self.assertLess(2 * moves, pieces)
        self.assertLess(pieces, 6 * 80)  # and none of them for nothing

    def test_a_refused_launch(self):
        """It leaves nothing in its stream, which is as idle as before."""
        for _, result in self.same([COMMAND, 'refused'], [dict(TURNS, SIM_SCHED='adversarial')], seeds=SEEDS):
            self.assertGreater(result.report()['pressure']['movable_on_host'], 0)

    def test_parts_of_blocks(self):
        self.same([COMMAND, 'small', '3', '3'], [TURNS])

    @counted
    def test_a_pool_of_the_program(self):
        """Parts of a block of a GiB come and go as blocks of their own do: of 512 pieces in turn all that have no room, 120
        or more of which there is. (Taken for used as a whole, it stayed where it was, and each launch tried in vain.)"""
        pressure = [self.pressure_of('pool', passes, '3', ALLOGRAFT_LIMIT='256MiB') for passes in ('3', '9')]
        pieces = (pressure[1]['moved_in_bytes'] - pressure[0]['moved_in_bytes']) / 6 / 2 ** 21
        self.assertTrue(512 - 128 <= pieces <= 1.1 * (512 - 120), pieces)
        # What is learnt first is each process's own: later passes use less there than one of them would.
        self.assertLess(pressure[1]['in_place_bytes'] - pressure[0]['in_place_bytes'], (512 - 128) * 2 ** 21)

    def test_mappings_of_the_program(self):
        """They are no work, and end no moving."""
        result = preloaded([COMMAND, 'own-mapping'], dict(TURNS, SIM_SCHED='eager'))
        self.assertEqual((result.status, result.out), (0, 2 * 'wrong: 0\n'), result.err)
        pressure = result.report()['pressure']
        self.assertEqual(pressure['moving_ended'], 0)
        self.assertGreater(pressure['moved_in_bytes'], 0)

    def test_slow_for_the_first_time(self):
        """While a function is timed for the first time, other launches of it do not use memory of the host. (65 pieces are
        filled there, and each of them would be used once.)"""
        pressure = self.pressure_of('slow', '1', sched='reluctant')
        self.assertGreaterEqual(pressure['moved_in_bytes'], 4 * 8 * 2 ** 21)
        self.assertLess(pressure['in_place_bytes'], (65 + 5 * 8) * 2 ** 21)

    def test_a_long_queue(self):
        """A device that has much to do becomes idle later than in 50 ms, and is waited for."""
        pressure = self.pressure_of('queue', sched='reluctant')
        self.assertGreaterEqual(pressure['moved_in_bytes'], 8 * 2 ** 21)

    def moved_in(self, passes, names):
        result = preloaded([COMMAND, 'turns', str(passes), '3', names], dict(TURNS, SIM_SCHED='eager'))
        self.assertEqual((result.status, result.out), (0, 'wrong: 0\n'), result.err)
        return result.report()['pressure']['moved_in_bytes']

    @counted
    def test_used_once_in_place(self):
        result = preloaded([COMMAND, 'turns', '4', '1'], dict(TURNS, SIM_SCHED='eager'))
        pressure = result.report()['pressure']
        self.assertEqual([pressure[key] for key in ('moves', 'moved_in_bytes', 'bus_gib_ns', 'move_least_ns')], [0] * 4)
        self.assertGreater(pressure['in_place_bytes'], 4 * 60 * 2 ** 21)

    @counted
    def test_room_that_an_exchange_leaves(self):
        """What goes so that both ways are busy from the first is no room for what is used once, where a piece is an eighth
        of the limit and more, either: one block comes, for as long as it is used most, or a few while prices are learnt."""
        for piece in ('16MiB', '24MiB'):
            pressure = self.pressure_of('turns', '6', '1', 'pppppabcdefghijklmno', ALLOGRAFT_PAGE_PIECE=piece)
            self.assertLessEqual(pressure['moved_in_bytes'], 96 * MIB, piece)
            self.assertGreater(pressure['moved_in_bytes'], 0, piece)

    @counted
    def test_kernels_that_use_little(self):
        """Six kernels that write two pages of a block each are no reason for it to come, once one was seen to take next to
        nothing where it is. (Before, a few blocks do.)"""
        for piece in ('2MiB', '16MiB'):
            few, many = (self.pressure_of('edges', passes, '6', ALLOGRAFT_PAGE_PIECE=piece) for passes in ('4', '12'))
            self.assertLess(few['moved_in_bytes'], 256 * MIB, piece)
            self.assertLessEqual(many['moved_in_bytes'] - few['moved_in_bytes'], 64 * MIB, piece)

    @counted
    def test_kernels_that_use_a_part(self):
        """Four launches that are given nine blocks, and write a quarter of them each, cost as much as one that writes all. Once
        some were timed, one or two of them come in a pass for what is used often, not all nine."""
        few, many = (self.pressure_of('quarters', passes, '20', ALLOGRAFT_PAGE_PIECE='16MiB') for passes in ('6', '18'))
        self.assertLess(few['moved_in_bytes'], 512 * MIB)
        self.assertLessEqual(many['moved_in_bytes'] - few['moved_in_bytes'], 12 * 2 * 16 * MIB)

    @counted
    def test_a_launch_that_uses_all(self):
        """Where nothing can go that the launch does not use as much, nobody waits for the device, and what lies on the host
        counts as used there, each time."""
        few, many = (self.pressure_of('whole', launches, '1') for launches in ('5', '25'))
        self.assertEqual([many[key] for key in ('moves', 'move_batches', 'moves_in_vain', 'moved_out_bytes')], [0] * 4)
        a_launch = (many['in_place_bytes'] - few['in_place_bytes']) / 20
        self.assertTrue(128 * MIB <= a_launch <= 144 * MIB, a_launch)

    @counted
    def test_what_a_launch_uses_most(self):
        """Of what a launch uses, that which it uses most comes for that which it uses least, and then nothing moves; also where
        the kernels are those of graphs within the graph."""
        for deep in ('0', '1', '3'):
            few, many = (self.pressure_of('whole', launches, '5', '0', deep) for launches in ('12', '24'))
            self.assertGreaterEqual(few['moved_in_bytes'], 100 * MIB, deep)
            self.assertEqual(few['moved_in_bytes'], many['moved_in_bytes'], deep)
            a_launch = (many['in_place_bytes'] - few['in_place_bytes']) / 12
            self.assertLess(a_launch, 1.5 * 128 * MIB, deep)  # 8 blocks once; five times as much before
            self.assertGreater(a_launch, 0, deep)

    @counted
    def test_what_a_launch_uses_at_length(self):
        """Of kernels of a graph that nobody has timed, those with shared memory are taken to use theirs more than once."""
        few, many = (self.pressure_of('whole', launches, '1', '16384') for launches in ('12', '24'))
        self.assertGreaterEqual(few['moved_in_bytes'], 100 * MIB)
        self.assertEqual(few['moved_in_bytes'], many['moved_in_bytes'])

    @counted
    def test_what_a_graph_fills(self):
        """A block that has to stay where it is, for a node that fills it, comes to the device before; or after, if a capture
        made the node, which is set again then."""
        for part in ('filled', 'filled-by-capture'):
            few, many = (self.pressure_of(part, launches) for launches in ('10', '20'))
            self.assertGreaterEqual(few['moved_in_bytes'], 16 * MIB, part)
            self.assertEqual(few['in_place_bytes'], many['in_place_bytes'], part)
            self.assertEqual(few['stays_on_host_bytes'], 0, part)

    def test_nodes_that_cannot_be_set_again(self):
        """Of what a capture made nothing moves if the driver refuses to set it at first, and the capture fails if it does
        later: two fills and a copy are set before, and after."""
        settings = dict(TURNS, SIM_SCHED='eager')
        result = preloaded([COMMAND, 'filled-by-capture', '3'], dict(settings, SIM_FAIL='cuGraphMemsetNodeSetParams:1:2'))
        self.assertEqual((result.status, result.out), (0, 'wrong: 0\n'), result.err)
        pressure = result.report()['pressure']
        self.assertEqual((pressure['moved_in_bytes'], pressure['stays_on_host_bytes']), (0, 16 * MIB))
        result = preloaded([COMMAND, 'filled-by-capture', '3'], dict(settings, SIM_FAIL='cuGraphMemsetNodeSetParams:3:2'))
        self.assertNotEqual(result.status, 0)
        self.assertIn('cuStreamEndCapture(stream, &graph) returned 2, not 0', result.err)

    @counted
    def test_copies_and_fills(self):
        """They count as kernels do: of the pieces that lie on the host in a pass (17 of 32 or more), those that are used
        often are in place for their first uses only, three at the highest price, and come for the later passes at once."""
        for part in ('fills', 'within'):
            result = preloaded([COMMAND, part, '4', '5'], dict(TURNS, SIM_SCHED='eager', ALLOGRAFT_LIMIT='32MiB'))
            self.assertEqual((result.status, result.out), (0, 'wrong: 0\n'), result.err)
            pressure = result.report()['pressure']
            self.assertGreaterEqual(pressure['moved_in_bytes'], 4 * 17 * 2 ** 21, part)
            self.assertLess(pressure['in_place_bytes'], 4 * 17 * 2 ** 21, part)

    @counted
    def test_copies_across(self):
        """What crosses the bus in any case does so once where the memory lies: it is neither moved nor counted."""
        result = preloaded([COMMAND, 'across', '3', '5'], dict(TURNS, SIM_SCHED='eager', ALLOGRAFT_LIMIT='32MiB'))
        self.assertEqual((result.status, result.out), (0, 'wrong: 0\n'), result.err)
        pressure = result.report()['pressure']
        self.assertGreater(pressure['movable_on_host'], 0)
        self.assertEqual([pressure[key] for key in ('moves', 'moved_in_bytes', 'in_place_bytes')], [0, 0, 0])

    def test_pageable_copies(self):
        """They are the crew's, over pieces of both kinds as elsewhere; but not where the block stays where it is."""
        for _, result in self.same([COMMAND, 'blocks'], [dict(variant, **CREW) for variant in VARIANTS]):
            copies, moves = (result.report()[section] for section in ('copies', 'pressure'))
            self.assertGreaterEqual(copies['crew'], 4, copies)
            self.assertGreaterEqual(copies['crew_bytes'], 4 * 7 * MIB)
            self.assertEqual(moves['movable_lost'], 0)
        self.same([COMMAND, 'waits'], [dict(TIGHT, **CREW)])

    def test_copies_and_fills_in_any_order(self):
        for part in ('fills', 'within', 'across'):
            self.same([COMMAND, part, '2', '2'], [dict(TURNS, ALLOGRAFT_LIMIT='32MiB')], says='wrong: 0\n')

    def test_slow_in_place(self):
        """A kernel that uses memory of the host for much longer than that takes to cross the bus gets it moved, though it
        uses it once only."""
        result = preloaded([COMMAND, 'slow', '4'], dict(TURNS, SIM_SCHED='reluctant'))
        self.assertEqual((result.status, result.out), (0, 'wrong: 0\n'), result.err)
        self.assertGreater(result.report()['pressure']['moved_in_bytes'], 30 * 2 ** 21)

    def test_slow_by_one_operand(self):
        """What a product is written to crosses the bus once, its factors many times: the one says nothing of the others."""
        moved = [self.pressure_of('product', passes, sched='reluctant')['moved_in_bytes'] for passes in ('1', '4')]
        self.assertGreater(moved[1] - moved[0], 2 * 30 * 2 ** 21)

    def test_slow_beside_a_thread(self):
        """What one thread launches on its default stream says nothing of what is under way on another one's."""
        self.assertGreater(self.pressure_of('slow-beside-other', '4', sched='reluctant')['moved_in_bytes'], 100 * 2 ** 21)

    def test_slow_on_new_streams(self):
        """What is under way on a stream when that is destroyed is timed to its end, and to nothing of the next stream."""
        self.assertGreater(self.pressure_of('slow-on-new-streams', '4', sched='reluctant')['moved_in_bytes'], 100 * 2 ** 21)

    @counted
    def test_parts_of_blocks_that_end(self):
        """What a kernel uses is no more than lies between its address and the end of the block, where that is least: parts
        of blocks come alone, 128 pieces a pass less those for which there is room, or some more."""
        moved = [self.pressure_of('parts', passes, '20')['moved_in_bytes'] for passes in ('3', '9')]
        pieces = (moved[1] - moved[0]) / 6 / 2 ** 21
        self.assertTrue(0 < pieces <= 1.2 * (128 - 56), pieces)

    @counted
    def test_named_twice(self):
        """A piece that a launch is given two addresses of comes once."""
        once, twice = (self.pressure_of(part, '4', '20')['moved_in_bytes'] for part in ('turns', 'within-twice'))
        self.assertGreater(once, 0)
        self.assertLess(twice, 1.1 * once)


class Ahead(Case):
    """Where little of the device is left, a sixteenth of what it has is made of the host's memory, by a thread of ours."""
    SETTINGS = dict(TURNS, ALLOGRAFT_CACHE='0', ALLOGRAFT_FREE='sync')

    def pressure(self, command, **more):
        result = preloaded([COMMAND, *command.split()], dict(self.SETTINGS, **more))
        self.assertEqual((result.status, result.err), (0, ''), result.out)
        self.assertNotRegex(result.out, 'too few|wrong: [1-9]')
        return result.report()['pressure']

    def test_made_and_given_back(self):
        pressure = self.pressure('ahead')
        self.assertEqual((pressure['ahead_bytes'], pressure['ahead_given_back_bytes']), (8 << 20, 8 << 20))
        self.assertEqual((pressure['movable_on_host'], pressure['movable_lost']), (0, 0))

    def test_far_from_the_limit(self):
        self.assertEqual(self.pressure('far')['ahead_bytes'], 0)

    def test_an_end_meanwhile(self):
        for _ in some(range(4)):
            self.pressure('soon')

    def test_a_driver_that_refuses(self):
        for n in some((55, 57, 60)):
            self.pressure('turns 1 3', SIM_FAIL='cuMemCreate:%d:2' % n)


class Places(Case):
    EAGER = dict(PAGE, SIM_SCHED='eager')

    def pressure(self, command, settings):
        result = preloaded([COMMAND, command], settings)
        self.assertEqual((result.status, result.err), (0, ''), result.out)
        self.assertNotRegex(result.out, 'wrong: [1-9]')
        return result.out, result.report()['pressure']

    def test_where_the_program_wants_it(self):
        out, pressure = self.pressure('place', self.EAGER)
        said = [line for line in out.splitlines() if not line.startswith('wrong')]
        self.assertEqual(said, ['host: 0', 'device: 0', 'a byte: 0', 'auto: 0', 'beside work: 0', 'under way 1', 'small: 3',
                                "nobody's: 3", 'nothing: 2', 'nowhere: 2', 'too much: 2', 'held: 3'])
        # The first block, a piece of the second, the third once the kernel had ended. All of it comes back: when it is to,
        # and, after the blocks were freed, since it is used again and again.
        self.assertEqual((pressure['moved_out_bytes'], pressure['moved_in_bytes']), (10 * MIB, 10 * MIB))
        self.assertGreaterEqual(pressure['in_place_bytes'], 4 * 4 * MIB)

    @but_under_tsan
    def test_without_room(self):
        out, pressure = self.pressure('room', dict(self.EAGER, ALLOGRAFT_LIMIT='12MiB'))
        self.assertIn('device: 0', out)
        self.assertGreaterEqual(pressure['moved_in_bytes'], 4 * MIB)

    @but_under_tsan
    def test_a_driver_that_refuses(self):
        calls = ('cuMemMap', 'cuMemUnmap', 'cuMemSetAccess', 'cuMemcpyDtoDAsync_v2', 'cuStreamSynchronize')
        for refused in some(refusals(calls), 2):
            with self.subTest(refused=refused):
                self.pressure('room', dict(TIGHT, SIM_SCHED='eager', SIM_FAIL=refused))

    @but_under_tsan
    def test_without_moving_memory(self):
        for settings in ({}, dict(PAGE, ALLOGRAFT_GRAPH='all')):
            out, pressure = self.pressure('room', settings)
            self.assertEqual((out.splitlines()[0], pressure['moves']), ('device: 0' if settings else 'device: 3', 0))


class Threads(Turns):
    def test_threads(self):
        self.same([COMMAND, 'threads'], VARIANTS, seeds=SEEDS)

    def test_turns_of_threads(self):
        """What one moves is chosen by what others log."""
        self.assertGreater(self.pressure_of('turns-of-threads')['moves'], 0)

    def test_places_of_threads(self):
        """Where memory is to lie, several threads say at the same time."""
        self.assertGreater(self.pressure_of('places-of-threads')['moves'], 0)

    def test_questions_while_pieces_move(self):
        self.assertGreater(self.pressure_of('questions')['moved_in_bytes'], 0)

    def test_small_blocks_are_set_while_they_move(self):
        self.assertGreater(self.pressure_of('small-questions', ALLOGRAFT_CACHE='0')['moved_in_bytes'], 0)

    def test_kept_before_it_comes(self):
        """A block that is to stay where it is does not come any more for a launch that began before."""
        pressure = self.pressure_of('kept')
        self.assertEqual((pressure['moved_in_bytes'], pressure['stays_on_host_bytes']), (0, 16 * MIB))


CALLS = ('cuMemAddressReserve', 'cuMemCreate', 'cuMemMap', 'cuMemSetAccess', 'cuMemUnmap', 'cuMemAddressFree',
         'cuMemRelease', 'cuMemGetAllocationGranularity')


@but_under_tsan
class Refused(Turns):
    def test_each_call(self):
        """Whatever the driver refuses once, the bytes are right."""
        for part in (['frees'], ['passes', '2']):
            for refused in some(refusals(CALLS), 2):
                with self.subTest(part=part, refused=refused):
                    result = preloaded([COMMAND, *part], dict(TIGHT, SIM_FAIL=refused))
                    self.assertEqual((result.status, result.err), (0, ''), result.out)
                    self.assertEqual(result.out, 'wrong: 0\n')

    def test_whether_the_device_is_idle(self):
        """Nothing moves under work that is not done, where the driver does not tell that it is not."""
        for refused in ('cuCtxRecordEvent:0:2', 'cuEventQuery:0:2'):
            with self.subTest(refused=refused):
                self.assertEqual(self.pressure_of('unfinished', SIM_FAIL=refused)['moves'], 0)

    def test_a_swap(self):
        """What is refused while pieces change places that the launch itself uses: 128 pieces were made and mapped before."""
        symbols = {'cuMemcpyDtoDAsync': 0, 'cuMemUnmap': 0, 'cuMemCreate': 128, 'cuMemMap': 128, 'cuMemSetAccess': 128}
        runs = [','.join('%s:%d:2' % (symbol, before + 1 + (n + 3 * i) % 16) for i, (symbol, before) in enumerate(symbols.items()))
                for n in range(0, 16, 4)]
        runs += ['%s:%d:2' % (symbol, before + n) for symbol, before in symbols.items() for n in (1, 2, 5)]
        for refused in some(share(runs), 4):
            with self.subTest(refused=refused):
                result = preloaded([COMMAND, 'whole', '8', '5'], dict(TURNS, SIM_SCHED='eager', SIM_FAIL=refused))
                self.assertEqual((result.status, result.out), (0, 'wrong: 0\n'), result.err)
                self.assertEqual(result.report()['pressure']['movable_lost'], 0)


if __name__ == '__main__':
    main()
