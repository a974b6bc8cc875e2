#!/usr/bin/env python3
# Runs every wrong redirect of mutants.def until the differential tests notice it; the right ones
# must pass. With --replay, --memory or --policy the same of the mistakes in replay_mutants.txt, memory_mutants.txt or
# policy_mutants.txt. Exit status 0: all noticed, each within the most seeds allowed.

import argparse
import os
import re
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, 'diff'))
import diff_run  # noqa: E402: it lies beside us
import mutate  # noqa: E402: likewise

ROW = re.compile(r'^(CONTROL|MUTANT)\((\w+), "(.*)"\)', re.M)


def read_rows(sources):
    """(number, name, what is wrong, is it right, settings)"""
    if sources:
        return [(number, name, what, right, diff_run.POLICIES[policy] + '|DIFF_MUTANT=%d' % number)
                for number, (name, policy, what, _, right) in enumerate(mutate.read(sources), 1)]
    with open(os.path.join(HERE, 'mutants.def'), encoding='utf-8') as f:
        return [(number, name, what, kind == 'CONTROL', 'DIFF_MUTANT=%d' % number)
                for number, (kind, name, what) in enumerate(ROW.findall(f.read()))]


def differing(runner, name, native, runs, first, last):
    """The first seed at which the variant differs, and how; None when there is none."""
    for seed in range(first, last + 1):
        if native[seed, 'plain'].status != 0:
            raise SystemExit('seed %d: natively status %d' % (seed, native[seed, 'plain'].status))
        wrong = diff_run.compare(native[seed, 'plain'], runs[seed, name], True)
        if wrong:
            return seed, wrong
    return None


def chunks(args, size):
    """(first, last, how many seeds came before)"""
    known = [int(seed) for seed in args.known.split(',') if seed]
    for n, seed in enumerate(known):
        yield seed, seed, n
    for start in range(args.first, args.first + args.most, size):
        yield start, min(start + size, args.first + args.most) - 1, start - args.first + len(known)


def hunt(runner, rows, args):
    """Chunk by chunk: what has been noticed needs no more seeds. Returns {name: (seeds, how)}."""
    caught, began = {}, time.monotonic()
    for start, last, before in chunks(args, 5 if runner.args.iterations else diff_run.CHUNK):
        left = [row for row in rows if row[1] not in caught and (not row[3] or before < args.control)]
        if not left:
            break
        native = runner.batch(start, last, {'plain': ''}, False)
        runs = runner.batch(start, last, {name: settings for _, name, _, _, settings in left}, True)
        for _, name, _, _, _ in left:
            found = differing(runner, name, native, runs, start, last)
            if found:
                caught[name] = (found[0] - start + before + 1, found[0], found[1])
                print('%-28s %5d seeds, %4.0f s: seed %d: %s'
                      % ((name, caught[name][0], time.monotonic() - began) + found), flush=True)
    return caught


def main():
    parser = argparse.ArgumentParser(description='every mistake must be noticed')
    parser.add_argument('--first', type=int, default=1, help='the first seed')
    parser.add_argument('--most', type=int, default=2000, help='seeds within which each is noticed')
    parser.add_argument('--control', type=int, default=200, help='seeds that right ones must pass')
    parser.add_argument('--known', default='', help='seeds that are tried first, with commas')
    parser.add_argument('--replay', help='the list of mistakes in replay')
    parser.add_argument('--memory', help='the list of mistakes in what is kept and counted')
    parser.add_argument('--policy', help='the list of mistakes in where memory comes from')
    parser.add_argument('--only', help='names of mutants, with commas')
    args = parser.parse_args()
    sources = args.replay or args.memory or args.policy
    rows = read_rows(sources)
    wrong = mutate.problems(mutate.read(sources), os.path.join(HERE, '../../..')) if sources else []
    if wrong:
        sys.exit('\n'.join(wrong))
    if args.only:
        rows = [row for row in rows if row[1] in args.only.split(',')]
    runner_args = diff_run.read_arguments(['--iterations'] if args.replay else [] if args.policy else
                                          ['--lookup', 'linked'])
    runner_args.stats = args.memory is not None
    os.environ.setdefault('DIFF_HANG', '15')  # some of the mistakes are that nothing goes on
    folder = tempfile.mkdtemp(prefix='mutants-')
    try:
        runner = diff_run.Runner(runner_args, folder)
        caught = hunt(runner, rows, args)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bad = [name for _, name, _, right, _ in rows if right == (name in caught)]
    for _, name, what, right, _ in rows:
        if name in bad:
            print('%s %s: %s' % ('a right redirect differs:' if right else 'SURVIVES:', name, what))
    n = sum(not right for _, _, _, right, _ in rows)
    print('%d of %d mutants noticed, most seeds needed: %d' % (
        sum(name in caught for _, name, _, right, _ in rows if not right), n,
        max([caught[name][0] for _, name, _, right, _ in rows if not right and name in caught]
            or [0])))
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
