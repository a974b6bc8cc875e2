# No circles: where A uses B, B uses A by no way. Neither files do nor, among the command's sources, folders.
#
# A file uses another whose function or variable its object names, as nm lists them. An include tells less, since one
# header may declare what several files define, and what a static of the same name hides is no use of another file.
#
# usage: circles.py BUILD ROOT: what BUILD has compiled of the library and the command, from the sources in ROOT

import json
import os
import posixpath
import sys

from contract import finish, run

FOLDERS = ('interpose/', 'policy/', 'graph/', 'tools/')
TARGETS = ('liballograft.so.p/', 'interpose/liballograft-base.a.p/', 'allograft.p/')
DEFINES, USES = 'TDBRVWC', 'Uvw'


def objects_of(build, root):
    """Path of a source from the root -> its object, of those that BUILD has compiled."""
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as f:
        commands = json.load(f)
    found = {}
    for command in commands:
        source = os.path.relpath(os.path.join(command['directory'], command['file']), root)
        if source.startswith(FOLDERS) and command['output'].startswith(TARGETS):
            found[source] = os.path.join(build, command['output'])
    return found


def listings_of(objects):
    """Path of a source -> the lines of nm about its object; one nm reads them all, which takes a hundredth of the time."""
    listings = {path: '' for path in objects}
    paths = {obj: path for path, obj in objects.items()}
    for line in run('nm', '-A', *paths).splitlines() if paths else ():
        obj, row = line.split(':', 1)
        listings[paths[obj]] += row + '\n'
    return listings


def symbols_of(listing):
    """(names that it defines, names that it uses), of the lines of nm."""
    rows = [line.split()[-2:] for line in listing.splitlines() if line.strip()]
    return {name for kind, name in rows if kind in DEFINES}, {name for kind, name in rows if kind in USES}


def graph_of(listings):
    """Path -> {path that it uses: name that it uses there}, of {path: lines of nm}."""
    symbols = {path: symbols_of(listing) for path, listing in listings.items()}
    owner = {name: path for path, (defined, _) in symbols.items() for name in defined}
    return {path: {owner[n]: n for n in sorted(used) if n in owner and owner[n] != path}
            for path, (_, used) in symbols.items()}


def folders_of(graph):
    """The same between folders of the command. Its top files count each for itself: one is the top."""
    def folder(path):
        return posixpath.dirname(path) if path.count('/') > 1 else path
    folders = {}
    for path, used in graph.items():
        if path.startswith('tools/'):
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


def problems_of(listings):
    graph = graph_of(listings)
    found = []
    for rows in (graph, folders_of(graph)):
        circle = find_circle(rows)
        if circle:
            found.append('a circle: ' + ''.join('%s -> (%s) ' % (a, rows[a][b]) for a, b in
                                                zip(circle, circle[1:] + circle[:1])) + circle[0])
    return found


if __name__ == '__main__':
    build, root = sys.argv[1:]
    listings = listings_of(objects_of(build, root))
    if not listings:
        finish(['nothing is compiled in ' + build], '')
    finish(problems_of(listings), '%d files use each other in one direction' % len(listings))
