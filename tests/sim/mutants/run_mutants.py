#!/usr/bin/env python3
# Runs every wrong redirect of mutants.def until the differential tests notice it; the right ones
# must pass. With --copies the same of copy_mutants.def, and with --library of the mistakes in library_mutants.txt.
# Exit status 0: all noticed, each within the most seeds allowed.

import argparse
import collections
import os
import re
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, 'diff'))
import diff_policies  # noqa: E402: it lies beside us
import diff_run  # noqa: E402: likewise
import mutate  # noqa: E402: likewise

# A known seed that notices in nine of ten runs is missed by all of them once in a million.
KNOWN_TRIES = 6

ROW = re.compile(r'^(CONTROL|MUTANT)\((\w+), "(.*)"\)', re.M)


Row = collections.namedtuple('Row', 'name what right settings programs report seed')


# What these redirects make no promise of: memory that others get at, streams that are made while a kernel waits, a card
# that is full, and programs that unmap memory soon after a free (which those with deep kernels do).
NOT_REDIRECTED = 'shares,late,deep'


def read_rows(library, copies):
    """programs: the options of the random programs that are to notice it; report: by what the report says, too;
    seed: one that does, or 0."""
    if library:
        return [Row(row.name, row.what, row.right,
                    diff_policies.POLICIES[row.policy] + '|DIFF_MUTANT=%d' % number,
                    (('--threads', str(row.threads)) if row.threads > 1 else
                     ('--iterations',) if '_GRAPH=' in diff_policies.POLICIES[row.policy] else ()) +
                    (('--pageable',) if '_COPY=' in diff_policies.POLICIES[row.policy] else ()) +
                    (('--large',) if '_OOM=page' in diff_policies.POLICIES[row.policy] else ()) +
                    (('--without', 'ends') if row.policy == 'amove' else ()), row.report, row.seed)
                for number, row in enumerate(mutate.read(library), 1)]
    programs = ('--lookup', 'linked') + (('--pageable',) if copies else ())
    with open(os.path.join(HERE, 'copy_mutants.def' if copies else 'mutants.def'), encoding='utf-8') as f:
        return [Row(name, what, kind == 'CONTROL', 'DIFF_MUTANT=%d' % number, programs, False, 0)
                for number, (kind, name, what) in enumerate(ROW.findall(f.read()))]


def differing(name, native, runs, first, last):
    """The first seed at which the variant differs, and how; None when there is none."""
    for seed in range(first, last + 1):
        if native[seed, 'plain'].status != 0:
            raise SystemExit('seed %d: natively status %d' % (seed, native[seed, 'plain'].status))
        wrong = diff_run.compare(native[seed, 'plain'], runs[seed, name], True)
        if wrong:
            return seed, wrong
    return None


def chunks(rows, args, size):
    """(first, last, how many seeds came before, which rows): a seed that is known to notice one is for that one, and is
    tried again where it did not: on a busy machine threads may meet in another order, and a search takes minutes."""
    for seed in sorted({row.seed for row in rows if row.seed}):
        for _ in range(KNOWN_TRIES):
            yield seed, seed, 0, [row for row in rows if row.seed == seed]
    known = [int(seed) for seed in args.known.split(',') if seed]
    for n, seed in enumerate(known):
        yield seed, seed, n, rows
    for start in range(args.first, args.first + args.most, size):
        yield start, min(start + size, args.first + args.most) - 1, start - args.first + len(known), rows


def hunt(runner, rows, args):
    """Chunk by chunk: what has been noticed needs no more seeds. Returns {name: (seeds, how)}."""
    caught, began = {}, time.monotonic()
    # Those of threads take as long as five of one, and a seed is another order of them each time.
    control = args.control // 5 if runner.args.threads > 1 else args.control
    for start, last, before, those in chunks(rows, args, 5 if runner.args.iterations else diff_run.CHUNK):
        left = [row for row in those
                if row.name not in caught and (not row.right or before < control)]
        if not left:
            continue
        native = runner.batch(start, last, {'plain': ''}, False)
        runs = runner.batch(start, last, {row.name: row.settings for row in left}, True)
        for name in (row.name for row in left):
            found = differing(name, native, runs, start, last)
            if found:
                caught[name] = (found[0] - start + before + 1, found[0], found[1])
                print('%-28s %5d seeds, %4.0f s: seed %d: %s'
                      % ((name, caught[name][0], time.monotonic() - began) + found), flush=True)
    return caught


def hunt_all(rows, args, folder):
    """Each by programs of its kind."""
    caught, without = {}, os.environ.get('DIFF_WITHOUT', '')
    for programs, report in sorted({(row.programs, row.report) for row in rows}):
        runner_args = diff_run.read_arguments(list(programs))
        runner_args.stats = report
        os.environ['DIFF_WITHOUT'] = runner_args.without or without
        caught.update(hunt(diff_run.Runner(runner_args, folder),
                           [row for row in rows if (row.programs, row.report) == (programs, report)], args))
    return caught


def tell_stale(rows, caught, library, write):
    """Known seeds that no longer notice: each costs a search from the first seed on, in every run until it is renewed.
    Of threads a seed says little: they meet in another order each time."""
    stale = {row.name: caught[row.name][1] for row in rows
             if row.seed and '--threads' not in row.programs
             and row.name in caught and caught[row.name][1] != row.seed}
    if stale:
        print('other seeds notice now (--write puts them into the list): '
              + ', '.join('%s %d' % pair for pair in sorted(stale.items())))
    if stale and write:
        with open(library, 'r+', encoding='utf-8') as f:
            text = re.sub(r'^(MUTANT (\w+) .*") \d+$',
                          lambda row: '%s %d' % (row[1], stale[row[2]]) if row[2] in stale else row[0], f.read(), flags=re.M)
            f.seek(0)
            f.write(text)
            f.truncate()


def main():
    parser = argparse.ArgumentParser(description='every mistake must be noticed')
    parser.add_argument('--first', type=int, default=1, help='the first seed')
    parser.add_argument('--most', type=int, default=2000, help='seeds within which each is noticed')
    parser.add_argument('--control', type=int, default=200, help='seeds that right ones must pass')
    parser.add_argument('--known', default='', help='seeds that are tried first, with commas')
    parser.add_argument('--library', help='the list of mistakes in the library')
    parser.add_argument('--write', action='store_true', help='put the seeds that notice now into that list')
    parser.add_argument('--copies', action='store_true', help='those of copies')
    parser.add_argument('--only', help='names of mutants, with commas')
    parser.add_argument('--part', default='1/1', help='K/N: each N-th of them, from the K-th on')
    args = parser.parse_args()
    rows = read_rows(args.library, args.copies)
    wrong = mutate.problems(mutate.read(args.library), os.path.join(HERE, '../../..')) if args.library \
        else []
    if wrong:
        sys.exit('\n'.join(wrong))
    rare = {row.name for row in mutate.read(args.library) if row.rare} if args.library else set()
    if args.only:
        rows = [row for row in rows if row.name in args.only.split(',')]
    else:
        rows = [row for row in rows if row.name not in rare]
    part, parts = (int(number) for number in args.part.split('/'))
    rows = rows[part - 1::parts]
    os.environ.setdefault('DIFF_HANG', '15')  # some of the mistakes are that nothing goes on
    if not args.library:
        os.environ['DIFF_WITHOUT'] = NOT_REDIRECTED
    folder = tempfile.mkdtemp(prefix='mutants-')
    try:
        caught = hunt_all(rows, args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bad = [row.name for row in rows if row.right == (row.name in caught)]
    for row in rows:
        if row.name in bad:
            print('%s %s: %s' % ('a right one differs:' if row.right else 'SURVIVES:', row.name, row.what))
    tell_stale(rows, caught, args.library, args.write)
    wrong = [row.name for row in rows if not row.right]
    print('%d of %d mutants noticed, most seeds needed: %d' % (
        sum(name in caught for name in wrong), len(wrong),
        max([caught[name][0] for name in wrong if name in caught] or [0])))
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
