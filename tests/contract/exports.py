# The library exports exactly the hooks, libc symbols and trampolines that the list names, without versions.

import sys

from contract import finish, read_rows, read_text, run


def exported(library):
    """Dynamic symbols the file defines, as name or name@version."""
    lines = run('nm', '-D', '--defined-only', library).splitlines()
    return {line.split()[-1] for line in lines if line.split()}


def listed(rows):
    return {r.symbol for r in rows if r.kind in ('HOOK', 'LIBC') or r.flush.startswith('TRAMPOLINE')} | {'dlsym'}


def problems(symbols, rows):
    found = []
    told = listed(rows)
    for name in sorted(symbols):
        if '@' in name:
            # A library that defines versions is passed over by look-ups that ask for another one,
            # and programs ask for dlsym@GLIBC_2.34.
            found.append('%s: exported with a version' % name)
        elif name not in told:
            found.append('%s: exported, but no row of the list says so' % name)
    for name in sorted(told - symbols):
        found.append('%s: listed, but not exported' % name)
    return found


if __name__ == '__main__':
    library, hooks = sys.argv[1:]
    finish(problems(exported(library), read_rows(read_text(hooks))), 'the exported symbols are those of hooks.def')
