# Includes only go down: entries and lifecycle > graph > policy > core. Those of CUDA are there without a toolkit.

import os
import posixpath
import re
import sys

from contract import blank_comments, finish, list_files, read_text

# The first folder that a path lies in gives its layer. What stands between the program and the driver is split in two:
# the core, which calls the driver (0 and 1), and the side that the program calls (4).
LAYERS = [
    ('interpose/core/base/', 0),
    ('interpose/core/driver/', 1),
    ('interpose/core/settings/', 1),
    ('interpose/core/report/', 1),
    ('policy/', 2),
    ('graph/', 3),
    ('interpose/', 4),
]
LAYER_NAMES = ['base', 'driver, settings, report', 'policy', 'graph', 'entries and lifecycle']

# Parts that take all they need as parameters say "Pure." in the head comment of their header or source (a sentence may
# go on after it: "Pure: the caller has the clock."). They may know the names of counters, count nothing.
PURE = re.compile(r'(?:^|[.:?)]\s+|\n\s*)Pure[.:;]')
HEAD = re.compile(r'\s*(/\*.*?\*/)', re.S)
NOT_FOR_PURE = re.compile(r'(^|/)(driver|symbols|lifecycle|context|log)\.h$')
# Sums, and these counters, are of what is passed.
COUNTING = re.compile(r'\b(ag_stats_(?!sum_of|counter_of|app_pool_sum)\w+\s*\(|ag_cu\b)')

# The one file that includes CUDA's header: it must set __CUDA_API_VERSION_INTERNAL first.
CUDA_HEADER = re.compile(r'^cuda\w*\.h$')
CUDA_INCLUDER = 'interpose/core/driver/abi.h'


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


def says_pure(text):
    head = HEAD.match(text)
    words = re.sub(r'(?m)^\s*/?\*+/?[ \t]*', '', head.group(1)) if head else ''
    return PURE.search(words) is not None


def pure_parts(sources):
    """Stems (paths without their suffix) of the parts that call themselves pure; sources: path -> text."""
    return {posixpath.splitext(path)[0] for path, text in sources.items() if says_pure(text)}


def pure_problems(path, text):
    found = ['%s: a pure part uses %s' % (path, match.group(1))
             for match in COUNTING.finditer(blank_comments(text))]
    return found + ['%s:%d: a pure part includes %s' % (path, line, name)
                    for line, name in includes(text) if NOT_FOR_PURE.search(name)]


def problems_of(path, text, known):
    found = []
    for line, name in includes(text):
        where = '%s:%d: ' % (path, line)
        if CUDA_HEADER.match(name) and path != CUDA_INCLUDER:
            found.append(where + 'includes %s; only %s may' % (name, CUDA_INCLUDER))
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


# The headers of CUDA that sources may include: those of the packages that tools/setup.sh installs where there is no
# toolkit. What is compiled only where more is there may include that.
CUDA_HEADERS = {'cuda.h', 'cudaTypedefs.h', 'cuda_runtime.h', 'cuda_runtime_api.h'}
MAY_NEED_MORE = re.compile(r'tests/(gpu|apps)/|tests/preload/replay/nvtx\.c$')


def header_problems(path, text):
    if MAY_NEED_MORE.match(path):
        return []
    return ['%s: includes %s, which a machine without a toolkit does not get' % (path, name)
            for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]+<((?:cu|nv)\w*(?:/\w+)?\.h)>', blank_comments(text), re.M)
            if name not in CUDA_HEADERS]


if __name__ == '__main__':
    root = sys.argv[1]
    known = {p for p in list_files(root) if p.endswith(('.c', '.h', '.def', '.S'))}
    sources = {path: read_text(os.path.join(root, path)) for path in sorted(known)
               if layer_of(path) is not None or path.startswith('tools/')}
    pure = pure_parts(sources)
    problems, n = [], 0
    for path, text in sources.items():
        if posixpath.splitext(path)[0] in pure:
            problems += pure_problems(path, text)
        if layer_of(path) is not None:
            problems += problems_of(path, text, known)
            n += 1
    for path in list_files(root):
        if path.endswith(('.c', '.h', '.def', '.cpp', '.cu')):
            problems += header_problems(path, read_text(os.path.join(root, path)))
    if n == 0 or not pure:
        problems.append('%d sources of the library found under %s, %d pure parts' % (n, root, len(pure)))
    finish(problems, 'the includes of %d files only go down, %d parts are pure' % (n, len(pure)))
