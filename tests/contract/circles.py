# No circles in the command's sources: neither between files nor between folders does A use B and B, by any way, use A.
#
# A file uses another whose function or variable it names; an include alone tells less, since one header may declare
# what several files define. Definitions are what stands in the first column and is not static.

import os
import posixpath
import re
import sys

from contract import blank_comments, blank_directives, finish, list_files, read_text

FOLDER = 'tools/'

STRING = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
DEFINITION = re.compile(r'^(?!static\b|typedef\b|extern\b|struct \w+ \{|enum\b|return\b)'
                        r'[a-z][\w \t*]*?[ *](\w+)(?:\[[^\]\n]*\])*(\([^;{}]*\)\s*\{|\s*=|;)', re.M)


def flat_c(text):
    """C text without comments, strings and preprocessor lines."""
    return blank_directives(re.sub(STRING, '""', blank_comments(text)))


def definitions(text):
    return {match.group(1) for match in DEFINITION.finditer(flat_c(text))}


def graph_of(sources):
    """Path -> {path that it uses: name that it uses there}, of {path: text}."""
    owner = {name: path for path, text in sources.items() for name in definitions(text)}
    graph = {}
    for path, text in sources.items():
        names = set(re.findall(r'\b[A-Za-z_]\w*\b', flat_c(text)))
        # What a static of the same name hides is no use of another file.
        hidden = set(re.findall(r'^static\b[^;{}=(]*?\b(\w+)\s*[(=;\[]', flat_c(text), re.M))
        graph[path] = {owner[n]: n for n in sorted(names - hidden) if n in owner and owner[n] != path}
    return graph


def folders_of(graph):
    """The same between folders. Files of FOLDER itself count each for itself: one is the top, none has to be a layer."""
    def folder(path):
        return posixpath.dirname(path) if path.count('/') > 1 else path
    folders = {}
    for path, used in graph.items():
        row = folders.setdefault(folder(path), {})
        row.update({folder(p): '%s in %s' % (n, path) for p, n in used.items() if folder(p) != folder(path)})
    return folders


def find_circle(graph):
    """A list of names that lead back to the first, or None."""
    done = set()

    def walk(name, way):
        if name in way:
            return way[way.index(name):]
        if name in done:
            return None
        done.add(name)
        return next(filter(None, (walk(other, way + [name]) for other in sorted(graph.get(name, {})))), None)
    return next(filter(None, (walk(name, []) for name in sorted(graph))), None)


def problems_of(sources):
    graph = graph_of(sources)
    found = []
    for rows in (graph, folders_of(graph)):
        circle = find_circle(rows)
        if circle:
            found.append('a circle: ' + ''.join('%s -> (%s) ' % (a, rows[a][b]) for a, b in
                                                zip(circle, circle[1:] + circle[:1])) + circle[0])
    return found


if __name__ == '__main__':
    root = sys.argv[1]
    sources = {p: read_text(os.path.join(root, p)) for p in list_files(root)
               if p.startswith(FOLDER) and p.endswith('.c')}
    if not sources:
        finish(['no source found under ' + os.path.join(root, FOLDER)], '')
    finish(problems_of(sources), '%d files of the command use each other in one direction' % len(sources))
