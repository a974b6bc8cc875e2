#!/usr/bin/env python3
# Writes copies of sources of the library with the mistakes of library_mutants.txt in them, of which
# the variable DIFF_MUTANT switches one on. The number of a mistake is its place in the list, from 1.
#
#   mutate.py --files LIST              the sources that have any
#   mutate.py LIST ROOT FOLDER          all of them, as mutated_NAME in the folder
# A place that is not found exactly once is left out, and run_mutants.py fails: the list is to be kept
# up with the sources.

import collections
import os
import re
import sys

ROW = re.compile(r'^(MUTANT|CONTROL|RARE) (\w+) (\w+)(?::(\d+))?(\+report)? "([^"]*)"(?: (\d+))?\n(.*?)(?=^MUTANT|^CONTROL|^RARE|\Z)',
                 re.M | re.S)
Row = collections.namedtuple('Row', 'name policy threads report what seed places right rare')
PLACE = re.compile(r'^(\S+)\n<<<\n(.*?)^===\n(.*?)^>>>\n', re.M | re.S)

SWITCH = '''#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
static int ag_mutant(void)
{
    static int number = -1;

    if (number < 0)
        number = getenv("DIFF_MUTANT") ? atoi(getenv("DIFF_MUTANT")) : 0;
    return number;
}
'''


def read(path):
    """Its rows; places: [(file, old, new)]."""
    with open(path, encoding='utf-8') as f:
        text = re.sub(r'^#( .*)?\n', '', f.read(), flags=re.M)
    return [Row(name, policy, int(threads or 1), bool(report), what, int(seed or 0), PLACE.findall(body),
                kind == 'CONTROL', kind == 'RARE')
            for kind, name, policy, threads, report, what, seed, body in ROW.findall(text)]


def pattern(old):
    """Whole lines, however the formatter breaks and aligns them."""
    return re.compile(r'^[ \t]*' + r'\s+'.join(map(re.escape, old.split())) + r'[ \t]*\n', re.M)


def mutated(rows, source, text):
    n = 0
    for number, row in enumerate(rows, 1):
        for file, old, new in row.places:
            if file != source:
                continue
            if len(pattern(old).findall(text)) != 1:
                continue
            there = new.replace('MUTANT', '(ag_mutant() == %d)' % number)
            text = pattern(old).sub(lambda _: there, text)
            n += 1
    return SWITCH + '#line 1\n' + text if n else text


def problems(rows, root):
    found = []
    for row in rows:
        for file, old, _ in row.places:
            with open(root + '/' + file, encoding='utf-8') as f:
                n = len(pattern(old).findall(f.read()))
            if n != 1:
                found.append('%s: the place of %s is there %d times' % (file, row.name, n))
    return found


def write(path, text):
    """What is there already is left as old as it is, and is not compiled again."""
    if os.path.exists(path):
        with open(path, encoding='utf-8') as f:
            if f.read() == text:
                return
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)


def main():
    rows = read(sys.argv[2] if sys.argv[1] == '--files' else sys.argv[1])
    sources = sorted({place[0] for row in rows for place in row.places})
    if sys.argv[1] == '--files':
        print('\n'.join(sources))
        return
    _, _, root, folder = sys.argv
    for source in sources:
        with open(os.path.join(root, source), encoding='utf-8') as f:
            write(os.path.join(folder, 'mutated_' + os.path.basename(source)), mutated(rows, source, f.read()))


if __name__ == '__main__':
    main()
