# An allocation passes through few functions of ours, and is not deep when it calls the driver.
#
# What is counted: each function of the library that is entered between the hook's entry and its return, once, however
# often it is entered; by its name, which no other function of the product has (a test of names holds that). A function
# that the compiler puts in line counts, and so does a small one of a header: a reader meets its name all the same, and
# it would be easy to get below any bound by calling functions small. Macros do not count, nor does what the driver and
# the C library do. The hook is at depth 1; what it calls at 2.
#
# For that the library is built once more, with -finstrument-functions and a recorder (recorder.c), and preloaded into
# a program (walk.c) on the simulated driver. The program makes
#     hit      an allocation that the cache answers, as it does in a loop: many, of which one of some is timed;
#     native   one that the cache has no block for, by the default policy, so the driver is asked;
#     peak     the same, of a program that has never had so much before.
#
# usage: walk.py PROGRAM LIBRARY

import os
import re
import subprocess
import sys

from contract import finish

# Walk -> most functions, most depth to the driver's own call (None: it is not to be called).
BOUNDS = {'hit': (50, None), 'native': (90, 10), 'peak': (100, 10)}

DRIVER = 0  # among addresses


def names_of(library):
    """Address from the library's beginning -> name of the function there."""
    out = subprocess.run(['nm', '--defined-only', library], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines()]
    # What the optimizer makes of a function, such as f.cold and f.part.0, is that function.
    return {int(row[0], 16): row[2].split('.')[0] for row in rows if len(row) == 3 and row[1] in 'tTwW'}


def walks_of(output, names):
    """Walk -> list of (depth, name or DRIVER) in the order in which they were entered."""
    walks = {}
    for line in output.splitlines():
        match = re.fullmatch(r'(\w+) (\d+) ([0-9a-f]+)', line)
        if not match:
            raise ValueError('the program says: ' + line)
        address = int(match.group(3), 16)
        name = DRIVER if address == DRIVER else names[address]
        walks.setdefault(match.group(1), []).append((int(match.group(2)), name))
    return walks


def tree_of(walk):
    """Lines: each function where it is entered first."""
    met, lines = set(), []
    for depth, name in walk:
        if name not in met:
            lines.append('  ' * depth + (name or 'the driver'))
        met.add(name)
    return lines


def problems_of(name, walk, most, deepest):
    """walk: list of (depth, name or DRIVER)."""
    functions = {function for _, function in walk} - {DRIVER}
    to_driver = [depth for depth, function in walk if function == DRIVER]
    found = []
    if len(functions) > most:
        found.append('%s: enters %d functions of ours, %d is the limit' % (name, len(functions), most))
    if deepest is None and to_driver:
        found.append('%s: asks the driver for memory' % name)
    elif deepest is not None and not to_driver:
        found.append('%s: does not ask the driver for memory' % name)
    elif deepest is not None and max(to_driver) > deepest:
        found.append('%s: is %d deep when it asks the driver, %d is the limit' % (name, max(to_driver), deepest))
    return found + tree_of(walk) if found else []


def main(program, library):
    # A card of an ordinary size: how much of it is free is asked for after each 256th part that changed hands.
    env = dict(os.environ, LD_PRELOAD=library, SIM_MEMORY='80GiB')
    output = subprocess.run([program], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    walks = walks_of(output, names_of(library))
    problems = ['%s: was not walked' % name for name in sorted(BOUNDS.keys() - walks.keys())]
    for name, walk in walks.items():
        problems += problems_of(name, walk, *BOUNDS[name])
    counts = ', '.join('%s %d' % (name, len({f for _, f in walk} - {DRIVER})) for name, walk in walks.items())
    finish(problems, 'few functions of ours are entered: ' + counts)


if __name__ == '__main__':
    main(*sys.argv[1:])
