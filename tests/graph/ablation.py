#!/usr/bin/env python3
"""What each of replay's heuristics is good for, in the model of loops.c: the table of docs/performance.md.

usage: ablation.py ROOT [--check] [--base LIBRARY] [--cc COMPILER] [--include FOLDER]... [--jobs N] [--only WORD]
  --base   the archive of interpose/core/base and the report, as meson builds it
  --check  only: is every place of ablation.txt found exactly once?
  --only   rows whose name contains the word

Each row of ablation.txt is built once, without what it names, in a folder that goes again; nothing of it can get into
the library. The figures are modelled times: without it, over with it, of each loop and program on both hosts.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROW = re.compile(r'^WITHOUT "([^"]*)"\n(.*?)(?=^WITHOUT|\Z)', re.M | re.S)
PLACE = re.compile(r'^(\S+)\n<<<\n(.*?)^===\n(.*?)^>>>\n', re.M | re.S)
Row = collections.namedtuple('Row', 'name places')


def rows_of(path):
    with open(path, encoding='utf-8') as f:
        text = re.sub(r'^#( .*)?\n', '', f.read(), flags=re.M)
    return [Row(name, PLACE.findall(body)) for name, body in ROW.findall(text)]


def pattern(old):
    """Whole lines, however the formatter breaks and aligns them."""
    return re.compile(r'^[ \t]*' + r'\s+'.join(map(re.escape, old.split())) + r'[ \t]*\n', re.M)


def problems(rows, root):
    found = []
    for row in rows:
        if not row.places:
            found.append('%s: replaces nothing' % row.name)
        for file, old, _ in row.places:
            with open(os.path.join(root, file), encoding='utf-8') as f:
                times = len(pattern(old).findall(f.read()))
            if times != 1:
                found.append('%s: %d times in %s: %s' % (row.name, times, file, old.strip()))
    return found


def sources():
    """Those of the program, as meson.build names them."""
    with open(os.path.join(HERE, 'meson.build'), encoding='utf-8') as f:
        listed = re.search(r"executable\(\s*'graph_loops',(.*?)c_args", f.read(), re.S).group(1)
    files = [os.path.normpath(os.path.join('tests/graph', name)) for name in re.findall(r"'([^']+\.c)'", listed)]
    return files


def compiled(options, source, to):
    """Compiles one; the folder of its headers is the root's."""
    done = subprocess.run([options.cc, '-c', '-O1', '-w', '-D_GNU_SOURCE', '-std=gnu11', '-pthread', '-o', to,
                           '-I' + options.root, '-I' + os.path.join(options.root, 'tests/graph')] +
                          ['-I' + path for path in options.include] + [source],
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return to


def run(options, objects, row, folder):
    """us by host and name, without what the row names; None: with all. objects: of all sources."""
    objects = dict(objects)
    texts = {}
    for file, old, new in row.places if row else ():
        if file not in texts:
            with open(os.path.join(options.root, file), encoding='utf-8') as f:
                texts[file] = f.read()
        texts[file] = pattern(old).sub(lambda _, there=new: there, texts[file])
    for file, text in texts.items():
        source = os.path.join(folder, os.path.basename(file))
        with open(source, 'w', encoding='utf-8') as f:
            f.write(text)
        objects[file] = compiled(options, source, source + '.o')
    program = os.path.join(folder, 'loops')
    subprocess.run([options.cc, '-pthread', '-Wl,--wrap=clock_gettime', '-o', program] + list(objects.values()) +
                   [options.base], check=True)
    said = subprocess.run([program, 'plain'], stdout=subprocess.PIPE, text=True, check=True).stdout
    figures = [line.split('\t') for line in said.splitlines() if line.count('\t') == 2]
    return {(host, name): float(us) for host, name, us in figures}


def told(times):
    """The loops that lose most, those that gain, and between what the rest lies."""
    worst = {}
    for (_, name), value in times.items():
        if abs(value - 1) > abs(worst.get(name, 1) - 1):
            worst[name] = value
        worst.setdefault(name, value)
    order = sorted(worst, key=worst.get, reverse=True)
    named = [name for name in order if worst[name] >= 1.02][:4] + [name for name in order if worst[name] <= 0.98][-2:]
    rest = [worst[name] for name in order if name not in named] or [1]
    return '%s | %.2f to %.2f' % ('; '.join('%s %.2f' % (name, worst[name]) for name in named) or 'none',
                                  min(rest), max(rest))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root')
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--cc', default='cc')
    parser.add_argument('--include', action='append', default=[])
    parser.add_argument('--base', default='build/interpose/liballograft-base.a')
    parser.add_argument('--jobs', type=int, default=1)
    parser.add_argument('--only', default='')
    options = parser.parse_args()
    options.root = os.path.abspath(options.root)
    rows = rows_of(os.path.join(HERE, 'ablation.txt'))
    wrong = problems(rows, options.root)
    if wrong or not rows:
        sys.exit('\n'.join(wrong) or 'no rows')
    if options.check:
        return
    rows = [row for row in rows if options.only in row.name]
    print('| without | times as long: the loops and programs that lose most, or gain | the others |\n|---|---|---|')
    with tempfile.TemporaryDirectory(prefix='ablation-') as folder:
        objects = {file: compiled(options, os.path.join(options.root, file),
                                  os.path.join(folder, file.replace('/', '-') + '.o')) for file in sources()}
        usual = run(options, objects, None, folder)

        def without(number):
            place = os.path.join(folder, str(number))
            os.mkdir(place)
            return run(options, objects, rows[number], place)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for row, us in zip(rows, pool.map(without, range(len(rows)))):
                print('| %s | %s |' % (row.name, told({key: us[key] / usual[key] for key in usual})), flush=True)


main()
