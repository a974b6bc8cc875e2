"""waits.py REPORT TIMES SOURCE: does the report of waits.cu, with names, tell of every wait, once, with its kind and at
least the time of the kernel? TIMES is what the program's own clock said: nothing waited longer than that. One line, or
what is wrong and exit status 1."""

import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # python3 -I leaves it out
from marks import marked, named  # noqa: E402

MS = 1000000
KERNEL_NS = 50 * MS
KINDS = {'stream': 'sync', 'event': 'sync', 'device': 'sync', 'copy': 'copy', 'pageable': 'async_copy', 'fill': 'memset',
         'free_pinned': 'free', 'free_array': 'free'}
# Between the launch and the call time goes by, some of it on a machine that other checks share.
LEAST_NS = KERNEL_NS * 8 // 10
# The driver alone decides whether this one waits.
MAY_RETURN = {'fill'}


def main(path, times, source):
    marks = marked(source, ['wait'])
    with open(path, encoding='utf-8') as file:
        stacks = json.load(file)['waits']['stacks']
    with open(times, encoding='utf-8') as file:
        measured = {match[1]: int(match[2]) for match in re.finditer(r'^(\w+) (\d+)$', file.read(), re.M)}
    found = {}
    for stack in stacks:
        name = named(stack, source, marks)
        if name and stack['ns'] > MS:
            found.setdefault(name, []).append(stack)
    if set(measured) != set(KINDS) or set(found) - MAY_RETURN != set(KINDS) - MAY_RETURN:
        sys.exit('measured %s, found %s' % (sorted(measured), sorted(found)))
    for name, its in found.items():
        (stack,) = its
        if stack['kind'] != KINDS[name] or stack['times'] != 1 or not LEAST_NS <= stack['ns'] <= measured[name]:
            sys.exit('%s, which took %d ns: %s' % (name, measured[name], {k: stack[k] for k in ('call', 'kind', 'times', 'ns')}))
    if any(measured[name] > LEAST_NS for name in MAY_RETURN - set(found)):
        sys.exit('not found: %s' % measured)
    print(', '.join('%s %.1f ms' % (its[0]['call'], its[0]['ns'] / MS) for its in found.values()))


main(*sys.argv[1:])
