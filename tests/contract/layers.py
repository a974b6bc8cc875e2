# Includes only go down: entries and lifecycle > graph > policy > driver > base.

import os
import posixpath
import re
import sys

from contract import blank_comments, finish, list_files, read_text

# The first folder that a path lies in gives its layer. What stands between the program and the driver is split in two:
# the side that calls the driver (1) and the side that the program calls (4).
LAYERS = [
    ('interpose/base/', 0),
    ('interpose/driver/', 1),
    ('interpose/settings/', 1),
    ('interpose/report/', 1),
    ('policy/', 2),
    ('graph/', 3),
    ('interpose/', 4),
]
LAYER_NAMES = ['base', 'driver, settings, report', 'policy', 'graph', 'entries and lifecycle']

# Parts that take all they need as parameters: they may know the names of counters, count nothing.
PURE = re.compile(r'^(interpose/settings/rules|policy/(decide|managed/(spans|lru|residency))'
                  r'|graph/(record/op|learn/(history|matcher|profit)))\.')
NOT_FOR_PURE = re.compile(r'(^|/)(driver|symbols|lifecycle|context|log)\.h$')
COUNTING = re.compile(r'\b(ag_stats_\w+\s*\(|ag_cu\b)')

# The one file that includes CUDA's header: it must set __CUDA_API_VERSION_INTERNAL first.
CUDA_HEADER = re.compile(r'^cuda\w*\.h$')
CUDA_INCLUDER = 'interpose/driver/abi.h'


def layer_of(path):
    return next((layer for folder, layer in LAYERS if path.startswith(folder)), None)


def includes(text):
    for number, line in enumerate(blank_comments(text).splitlines(), 1):
        match = re.match(r'\s*#\s*include(?:_next)?\s*(["<])([^">]+)[">]', line)
        if match:
            yield number, match.group(2)


def find_target(path, name, known):
    """The project's file that an include names from the root; or None and the file it means beside it."""
    if name in known:
        return name, None
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    return None, beside if beside in known else None


def problems_of(path, text, known):
    found = []
    if PURE.match(path):
        found += ['%s: a pure part uses %s' % (path, match.group(1))
                  for match in COUNTING.finditer(blank_comments(text))]
    for line, name in includes(text):
        where = '%s:%d: ' % (path, line)
        if CUDA_HEADER.match(name) and path != CUDA_INCLUDER:
            found.append(where + 'includes %s; only %s may' % (name, CUDA_INCLUDER))
        if PURE.match(path) and NOT_FOR_PURE.search(name):
            found.append(where + 'a pure part includes %s' % name)
        target, beside = find_target(path, name, known)
        if beside:
            found.append(where + 'includes %s; from the root that is "%s"' % (name, beside))
        if target is None:
            continue
        below = layer_of(target)
        if below is None:
            found.append(where + 'includes %s, which is no part of the library' % target)
        elif below > layer_of(path):
            found.append(where + 'layer "%s" includes %s of layer "%s" above it'
                         % (LAYER_NAMES[layer_of(path)], target, LAYER_NAMES[below]))
    return found


if __name__ == '__main__':
    root = sys.argv[1]
    known = {p for p in list_files(root) if p.endswith(('.c', '.h', '.def', '.S'))}
    problems, n = [], 0
    for path in sorted(known):
        if layer_of(path) is not None:
            problems += problems_of(path, read_text(os.path.join(root, path)), known)
            n += 1
    if n == 0:
        problems = ['no source of the library found under ' + root]
    finish(problems, 'the includes of %d files only go down' % n)
