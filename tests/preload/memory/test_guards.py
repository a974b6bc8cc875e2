# Guards find who writes outside of a block, or into a freed one, and name block, place and caller exactly; in right
# programs they find nothing and change nothing.

import re

from harness import Case, but_under_tsan, main, preloaded, program, run, some

COMMAND = program('preload_guards')
POLICIES = ('auto', 'pool', 'native', 'managed')
MODES = ('poison', 'canary', 'page')
FREED, REUSED = 'when it was freed', 'before it was used again'
CONTEXT, EXIT = 'when its context ended', 'when the process ended'
NO_WRONG = ('written_before', 'written_behind', 'written_after_free')

# Part of the program: what is found: (where, bytes of the block, first offset, wrong bytes, when, was it freed).
AROUND = {
    'behind': [('behind', 1000, 1000, 12, FREED)],
    'behind-by-copy': [('behind', 2001, 2008, 5, FREED)],
    'before': [('before', 3000, -8, 8, FREED)],
    'leaked': [('before', 4000, -1, 1, EXIT), ('behind', 4000, 4000, 1, EXIT)],
    'context': [('behind', 8000, 8000, 2, CONTEXT)],
}
AFTER = {
    'freed-by-kernel': [('after the free of', 5000, 400, 16, EXIT)],
    'freed-by-copy': [('after the free of', 6000, 5994, 6, EXIT)],
    'freed-large': [('after the free of', 1 << 20, 5, 5, EXIT)],
    'freed-elsewhere': [('after the free of', 7000, 0, 4, EXIT)],
}


def guarded(mode, *args, **settings):
    settings = {'ALLOGRAFT_' + name: value for name, value in settings.items()}
    return preloaded([COMMAND, *args], dict(settings, ALLOGRAFT_GUARD=mode))


def found(report):
    return [(f['written'], f['bytes'], f['first_offset'], f['wrong_bytes'], f['found'])
            for f in report['guard']['findings']]


class Guards(Case):
    def finds(self, mode, parts, policy):
        for part, wanted in parts.items():
            with self.subTest(mode=mode, part=part, policy=policy):
                result = guarded(mode, part, POLICY=policy)
                self.assertEqual((result.status, result.out), (0, 'done\n'), result.err)
                report = result.report()
                self.assertEqual(found(report), wanted)
                self.assertEqual(sum(report['guard'][key] for key in NO_WRONG), len(wanted))
                self.told(result.err, report)

    def told(self, err, report):
        """A line on stderr for each finding, with what the report says."""
        lines = [line for line in err.splitlines() if line.startswith('allograft: guard: ')]
        self.assertEqual(err.splitlines(), lines)
        findings = report['guard']['findings']
        self.assertEqual(len(lines), len(findings))
        for line, finding in zip(lines, findings):
            callers = [finding['allocated_by'], finding['freed_by']]
            for caller in filter(None, callers):
                self.assertRegex(caller, r'^preload_guards\+0x[0-9a-f]+$')
            self.assertEqual(len(set(callers)), 2)
            self.assertEqual(callers[1] is None, finding['found'] in (CONTEXT, EXIT)
                             and finding['written'] != 'after the free of')
            self.assertEqual(line, 'allograft: guard: %d bytes were written %s the block of %d bytes at %s, the first '
                             'at offset %d; allocated by %s, %s, found %s'
                             % (finding['wrong_bytes'], finding['written'], finding['bytes'], finding['address'],
                                finding['first_offset'], callers[0],
                                'freed by ' + callers[1] if callers[1] else 'not freed', finding['found']))

    def test_canaries_find_what_is_written_around_a_block(self):
        for policy in POLICIES:
            self.finds('canary', AROUND, policy)

    def test_so_do_the_rests_of_pages(self):
        for policy in ('auto', 'pool', 'native'):
            self.finds('page', AROUND, policy)

    def test_poison_finds_what_is_written_after_a_free(self):
        for policy in POLICIES:
            self.finds('poison', AFTER, policy)

    @but_under_tsan
    def test_they_say_so_before_the_memory_is_used_again(self):
        result = preloaded([COMMAND, 'freed-by-kernel', 'all-memory'],
                           {'ALLOGRAFT_GUARD': 'poison', 'SIM_MEMORY': '256MiB'})
        self.assertEqual(found(result.report()), [('after the free of', 5000, 400, 16, REUSED)])

    def test_poison_is_read(self):
        self.assertEqual(guarded('poison', 'fresh', 'stale').out,
                         'fresh: ffffffff\nstale: 0\nstale: dbdbdbdb\ndone\n')

    def test_pages_stop_what_lies_beyond_them(self):
        for part, wrong in (('freed-by-kernel', 'freed by cuMemUnmap'), ('beyond', 'no memory is known at this address')):
            result = guarded('page', part)
            self.assertIn('sim: violation', result.err, part)
            self.assertIn(wrong, result.err, part)
        # The driver sees at the call that nothing is there.
        self.assertIn('cuMemcpyHtoD_v2(p, ones, bytes) returned 1', guarded('page', 'freed-by-copy').err)

    def test_several_are_found(self):
        report = guarded('canary', 'behind', 'before', 'leaked').report()
        self.assertEqual(found(report), AROUND['behind'] + AROUND['before'] + AROUND['leaked'])

    def test_threads(self):
        for mode in ('canary', 'page'):
            report = guarded(mode, 'threads').report()
            self.assertEqual(found(report), 4 * [('behind', 1504, 1504, 16, FREED)])
        self.assertEqual(found(guarded('poison', 'threads-right').report()), [])

    def test_contexts_of_other_threads_end(self):
        """While a free gives back what was kept of theirs."""
        for mode in some(MODES):
            result = preloaded([COMMAND, 'contexts'], {'ALLOGRAFT_GUARD': mode, 'SIM_MEMORY': '64MiB'})
            self.assertEqual((result.status, result.out, result.err), (0, 'done\n', ''), mode)

    def test_more_than_there_are_rows(self):
        result = guarded('canary', *(20 * ['behind']))
        report = result.report()
        self.assertEqual((len(report['guard']['findings']), report['guard']['written_behind']), (16, 20))
        self.assertEqual(result.err.count('allograft: guard:'), 20)

    def test_right_programs_see_no_difference(self):
        variants = [{'ALLOGRAFT_GUARD': mode, 'ALLOGRAFT_POLICY': policy} for mode in MODES for policy in POLICIES]
        for variant, result in self.same([COMMAND, 'clean'], variants):
            counted = result.report()['guard']
            self.assertEqual([counted[key] for key in NO_WRONG], [0, 0, 0])
            managed = variant == {'ALLOGRAFT_GUARD': 'page', 'ALLOGRAFT_POLICY': 'managed'}
            if managed:
                self.assertEqual((counted['guarded'], counted['checked']), (0, 0))
                continue
            self.assertGreater(counted['guarded'], 160)
            self.assertGreater(counted['checked'], 160)
            self.assertEqual(counted['unguarded_capture_open'], 1)
            self.assertEqual((counted['unchecked_capture_open'], counted['unchecked_async']), (1, 1))

    def test_pages_are_no_mappings_of_the_program(self):
        self.same([program('preload_paging'), 'blocks'], [{'ALLOGRAFT_GUARD': 'page'}])

    def test_what_lies_before_a_block_is_not_its(self):
        policies = [{'ALLOGRAFT_POLICY': policy} for policy in POLICIES]
        policies.append({'ALLOGRAFT_POLICY': 'managed', 'ALLOGRAFT_MANAGED_BACKEND': 'plain'})
        self.same([COMMAND, 'neighbours'], [dict(policy, ALLOGRAFT_GUARD=mode) for mode in MODES for policy in policies])

    @but_under_tsan
    def test_all_memory_can_be_had(self):
        for mode in MODES:
            for policy in ('auto', 'pool', 'native'):
                result = preloaded([COMMAND, 'all-memory'], {'ALLOGRAFT_GUARD': mode, 'ALLOGRAFT_POLICY': policy,
                                                            'SIM_MEMORY': '256MiB'})
                self.assertEqual(result.out, 'all memory: 1\ndone\n', (mode, policy))

    @but_under_tsan
    def test_all_of_a_limit_can_be_had(self):
        variants = [{'ALLOGRAFT_GUARD': mode, 'ALLOGRAFT_POLICY': policy, 'ALLOGRAFT_LIMIT': '64MiB'}
                    for mode in MODES for policy in ('auto', 'pool')]
        self.same([COMMAND, 'in-turns'], variants)

    def test_memory_in_use_is_the_programs(self):
        """Bytes are those that the program asked for, not those around them, nor of freed blocks that are kept."""
        for mode in MODES:
            report = guarded(mode, 'sizes').report()
            native = report['devices'][0]['placements']['native']
            self.assertEqual((native['allocs'], native['alloc_bytes'], native['current_bytes']), (2, 3000, 2000))

    def test_freed_memory_is_free(self):
        for variant, result in self.same([COMMAND, 'room'], [{'ALLOGRAFT_GUARD': mode, 'ALLOGRAFT_POLICY': policy}
                                                            for mode in MODES for policy in ('auto', 'pool', 'native')]):
            self.assertEqual(result.report()['guard']['unguarded_other_calls'], 2)

    def test_exporters_and_handles(self):
        for mode in ('canary', 'page'):
            result = guarded(mode, 'handle')
            self.assertEqual(result.out, 'handle: 1\nof a later block: 0\ndone\n')
            self.assertIn('blocks from now on are not guarded', result.err)
            report = result.report()
            self.assertEqual((report['guard']['unguarded_shared'], report['guard']['checked']), (1, 1))
            self.assertEqual(report['coverage']['fallbacks']['no_ipc_for_redirected'], 1)
        for policy in ('auto', 'pool', 'native'):
            result = guarded('poison', 'handle', POLICY=policy)
            self.assertEqual((result.out, result.err), ('handle: 0\nof a later block: 0\ndone\n', ''))
            report = result.report()
            # Another process may have the first one open: it stays as it is.
            self.assertEqual((report['guard']['guarded'], report['guard']['unguarded_shared']), (2, 1), policy)
            self.assertEqual(report['coverage']['fallbacks']['no_ipc_for_redirected'], 0)

    def test_without_virtual_memory_pages_are_ordinary_ones(self):
        result = preloaded([COMMAND, 'clean'], {'ALLOGRAFT_GUARD': 'page', 'SIM_FAIL': 'cuMemAddressReserve:0:1'})
        self.assertEqual(result.out, run([COMMAND, 'clean']).out)
        counted = result.report()['guard']
        self.assertEqual(counted['guarded'], 0)
        self.assertGreater(counted['unguarded_failed'], 160)

    def test_canaries_that_cannot_be_written(self):
        # As when another thread begins a capture meanwhile: the room for them is not the program's all the same.
        native = run([COMMAND, 'clean']).out
        for policy in POLICIES:
            fails = {'SIM_FAIL': 'cuMemcpyHtoDAsync_v2:0:1', 'ALLOGRAFT_POLICY': policy}
            result = preloaded([COMMAND, 'clean'], dict(fails, ALLOGRAFT_GUARD='canary'))
            if policy != 'managed':
                self.assertEqual(result.out, native, policy)
            counted = result.report()['guard']
            self.assertEqual(counted['guarded'], 0)
            self.assertGreater(counted['unguarded_failed'], 100)

    def test_the_text_report_begins_with_them(self):
        result = preloaded([COMMAND, 'behind'], {'ALLOGRAFT_GUARD': 'canary', 'ALLOGRAFT_STATS': 'stderr'}, stats=None)
        self.assertRegex(result.err, re.compile(
            r'^  what guards found\n    12 bytes written behind a block of 1000 B \(1000 bytes\), the first at offset '
            r'1000\n      allocated by preload_guards\+0x\w+, freed by preload_guards\+0x\w+; found when it was freed\n',
            re.MULTILINE))

    @but_under_tsan
    def test_off_is_off(self):
        (_, result), = self.same([COMMAND, 'clean'], [{}])
        self.assertEqual(sum(n for n in result.report()['guard'].values() if isinstance(n, int)), 0)


if __name__ == '__main__':
    main()
