# What the fault tests share: native runs that are done once, and what a report and stderr may say.

import os
import re
import sys
import threading

from harness import (LIBRARY, PROGRAMS, RUNTIME, SOME, UNDER_TSAN, Case, main, preloaded, program, run,  # noqa: F401
                     some)

# Of runs by the thousand, of which none leaves a process behind, and none counters for somebody else.
UNCOUNTED = {'ALLOGRAFT_COUNTERS': 'off'}

natives = {}
lock = threading.Lock()


def main_but_under_tsan(reason):
    """main(), unless this is ThreadSanitizer's build."""
    if UNDER_TSAN:
        print('skipped under ThreadSanitizer: ' + reason)
        sys.exit(77)
    main()


def native_run(name, settings):
    """The native run of one of the programs; each set of settings once."""
    key = (name, tuple(sorted(settings.items())))
    with lock:
        known = natives.get(key)
    if known is None:
        known = run([program('faults_program'), name], settings, alone=True)
        with lock:
            natives[key] = known
    return known


def stderr_problem(result, native):
    """Lines of our own are welcome where something failed; anything else is not."""
    others = [line for line in result.err.splitlines()
              if not line.startswith('allograft: ') and line not in native.err.splitlines()]
    return 'said %r' % others[0] if others else None


def live_blocks(out):
    found = re.search(r'^live blocks: (\d+)$', out, re.M)
    return int(found.group(1)) if found else None


def current_blocks(report):
    return sum(place['current_blocks'] for device in report['devices']
               for place in device['placements'].values())


def report_problems(result, uncounted=0):
    """What the report counts must be what the program knows, but for some we could not see."""
    reports = result.reports()
    if len(reports) != 1:
        return '%d reports' % len(reports)
    live, counted = live_blocks(result.out), current_blocks(reports[0])
    if live is not None and not live - uncounted <= counted <= live:
        return 'the program holds %d blocks, the report %d' % (live, counted)
    for device in reports[0]['devices']:
        for name, place in device['placements'].items():
            if (place['current_blocks'] == 0) != (place['current_bytes'] == 0):
                return '%s: %d blocks but %d bytes' % (name, place['current_blocks'],
                                                       place['current_bytes'])
    return None
