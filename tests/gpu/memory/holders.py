"""holders.py REPORT SOURCE: does the report of holders.cu, with names, tell of every leak and of nothing else, and of
the holder of most at the peak first? One line, or what is wrong and exit status 1."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # python3 -I leaves it out
from marks import marked, named  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
LEAKS = {'Weights': (3 * MIB, 1, 'device'), 'work': (192 * KIB, 3, 'device'), 'pool': (48 * KIB, 1, 'pool'),
         'pinned': (12 * KIB, 1, 'host'), 'plugin': (256 * KIB, 1, 'managed')}


def main(path, source):
    marks = marked(source, ['leak', 'holder'])
    with open(path, encoding='utf-8') as file:
        stacks = json.load(file)['holders']['stacks']
    found = {}
    for stack in stacks:
        ended = stack.get('ended', {'bytes': 0, 'blocks': 0})
        total = [stack['live'][key] + ended[key] for key in ('bytes', 'blocks')]
        name = named(stack, source, marks)
        if total[0]:
            before = found.get(name, (0, 0))
            found[name] = (before[0] + total[0], before[1] + total[1], stack['kind'])
    if found != LEAKS:
        sys.exit('never freed: %s' % found)
    first = max((s for s in stacks if s['kind'] in ('device', 'pool')), key=lambda s: s['peak']['bytes'])
    if (named(first, source, marks), first['peak']['bytes']) != ('hold_most', 600 * MIB):
        sys.exit('at the peak first: %s, %d bytes' % (named(first, source, marks), first['peak']['bytes']))
    print('%d leaks named, and the holder of most' % len(found))


main(*sys.argv[1:])
