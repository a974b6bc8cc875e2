# Every symbol of hooks.def has one row in passages.def, of a kind that fits: is what is withheld flushed?

import sys

from contract import finish, read_passages, read_rows, read_text

FITS = {'HOOK': ('FIRST', 'SELF', 'STILL'), 'CALL': ('PASSAGE', 'STILL'),
        'UNHOOKED': ('PASSAGE', 'STILL')}


def problems(rows, passages):
    found = []
    kinds = {r.symbol: r.kind for r in rows if r.kind in FITS}
    seen = {}
    for row in passages:
        other = seen.setdefault(row.symbol, row)
        if other is not row:
            found.append('passages.def:%d: %s has a row at line %d already'
                         % (row.line, row.symbol, other.line))
        elif row.symbol not in kinds:
            found.append('passages.def:%d: hooks.def does not name %s' % (row.line, row.symbol))
        elif row.kind not in FITS[kinds[row.symbol]]:
            found.append('passages.def:%d: %s is an AG_%s of hooks.def, so a row AG_%s'
                         % (row.line, row.symbol, kinds[row.symbol],
                            ' or AG_'.join(FITS[kinds[row.symbol]])))
    found += ['%s: passages.def has no row for it; AG_%s when in doubt'
              % (name, 'FIRST' if kinds[name] == 'HOOK' else 'PASSAGE')
              for name in sorted(set(kinds) - set(seen))]
    return found


if __name__ == '__main__':
    rows, passages = read_rows(read_text(sys.argv[1])), read_passages(read_text(sys.argv[2]))
    finish(problems(rows, passages) if rows and passages else ['no rows found'],
           'all %d symbols have one row in passages.def' % len(passages))
