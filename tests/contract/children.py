# What a forked child resets has one name, ag_MODULE_begin_child(), and one table: children[] of interpose/lifecycle.c.
# Locks and arenas are of it: a thread that is none of the child's may hold them.

import os
import re
import sys

from contract import blank_comments, finish, list_files, read_text

TABLE_FILE = 'interpose/lifecycle.c'
PRODUCT = re.compile(r'^(interpose|policy|graph)/.*\.[ch]$')
DEFINED = re.compile(r'^(?:static )?\w[\w ]*?\**(\w+)\([^;{}]*\)\n\{\n(.*?)^\}', re.M | re.S)
RESETS = re.compile(r'\b\w+_begin_child\b')
HELD = re.compile(r'\bAG_(LOCK|ARENA)_INIT\(')
NAMED = re.compile(r'(?:\}|\bstruct ag_\w+)\s+(\w+)\s*=\s*(?:\{[^;]*?\.(\w+)\s*=\s*)?$')
OTHER_NAMES = re.compile(r'\bag_\w*_(?:forget_all|forget_in_child|in_child|after_fork|atfork)\s*\(')


def table_rows(text):
    found = re.search(r'\bchildren\[\]\)\(void\) = \{(.*?)\};', blank_comments(text), re.S)
    return re.findall(r'\w+', found.group(1)) if found else []


def never_free(path, text):
    """The locks and arenas that are initialised when the library is loaded, but not in a forked child."""
    clean = blank_comments(text)
    for match in HELD.finditer(clean):
        before = clean[clean.rfind(';', 0, match.start()) + 1:match.start()].replace('\n', ' ')
        named = NAMED.search(before)
        if not named or 'define' in before:
            continue
        name = '.'.join(part for part in named.groups() if part)
        reset = 'ag_lock_init' if match.group(1) == 'LOCK' else 'ag_arena_begin_child'
        if not re.search(r'\b%s\(&%s\b' % (reset, re.escape(name)), clean):
            yield '%s: %s: a forked child does not call %s(&%s)' % (path, name, reset, name)


def problems(sources):
    """sources: path -> text. What no row of the table reaches, rows that stand twice, other names."""
    rows = table_rows(sources.get(TABLE_FILE, ''))
    if not rows:
        return ['%s: no table children[]' % TABLE_FILE]
    found = ['%s: %s has %d rows' % (TABLE_FILE, name, rows.count(name))
             for name in sorted(set(rows)) if rows.count(name) > 1]
    calls, where = {}, {}
    for path, text in sorted(sources.items()):
        clean = blank_comments(text)
        found += ['%s: %s: such a function is called ag_MODULE_begin_child'
                  % (path, match.group(0).rstrip('( ')) for match in OTHER_NAMES.finditer(clean)
                  if '_is_' not in match.group(0)]
        for name, body in DEFINED.findall(clean):
            if RESETS.fullmatch(name):
                calls[name] = set(RESETS.findall(body))
                where[name] = path
        found += never_free(path, text)
    reached, open_names = set(), list(rows)
    while open_names:
        name = open_names.pop()
        if name not in reached:
            reached.add(name)
            open_names += calls.get(name, ())
    return found + ['%s: nothing in a forked child calls %s' % (where[name], name)
                    for name in sorted(calls) if name not in reached]


def main(root):
    names = [name for name in list_files(root) if PRODUCT.match(name)]
    sources = {name: read_text(os.path.join(root, name)) for name in names}
    finish(problems(sources), 'a forked child resets every module, by one table')


if __name__ == '__main__':
    main(*sys.argv[1:])
