# The library exports exactly the hooks, libc symbols and passages that the lists name, without versions.

import sys

from contract import finish, read_passages, read_rows, read_text, run


def exported(library):
    """Dynamic symbols the file defines, as name or name@version."""
    lines = run('nm', '-D', '--defined-only', library).splitlines()
    return {line.split()[-1] for line in lines if line.split()}


def listed(rows, passages):
    return ({r.symbol for r in rows if r.kind in ('HOOK', 'LIBC')} | {'dlsym'}
            | {p.symbol for p in passages if p.kind == 'PASSAGE'})


def problems(symbols, rows, passages=()):
    found = []
    told = listed(rows, passages)
    for name in sorted(symbols):
        if '@' in name:
            # A library that defines versions is passed over by look-ups that ask for another one,
            # and programs ask for dlsym@GLIBC_2.34.
            found.append('%s: exported with a version' % name)
        elif name not in told:
            found.append('%s: exported, but no row of the lists says so' % name)
    for name in sorted(told - symbols):
        found.append('%s: listed, but not exported' % name)
    return found


if __name__ == '__main__':
    library, hooks, passages = sys.argv[1:]
    finish(problems(exported(library), read_rows(read_text(hooks)),
                    read_passages(read_text(passages))),
           'the exported symbols are those of hooks.def and passages.def')
