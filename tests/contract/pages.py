# The pages: README is short, links and anchors resolve, the index reaches every page, names of files are files, every
# folder of the library and every source of policy/ has its place in the tables of docs/architecture.md, tables and charts
# of measured figures are what docs/results/ says.

import importlib
import os
import posixpath
import re
import sys

from contract import finish, list_files, read_text

INDEX = 'docs/README.md'
ARCHITECTURE = 'docs/architecture.md'
README_LINES = 250

FENCE = re.compile(r'^ *(```|~~~)')
HEADING = re.compile(r'^#{1,6} +(.*?) *#*$')
LINK = re.compile(r'\]\(([^()\s]+)(?: "[^"]*")?\)|\b(?:src|srcset|href)="([^"]+)"')
FOREIGN = re.compile(r'^[a-z][a-z+.-]*:')
FOLDERS = ('interpose', 'policy', 'graph', 'tools', 'tests', 'docs')
NAME = re.compile(r'(?<![\w/.-])((?:%s)/(?:[\w./*-]|<\w+>)*[\w*])' % '|'.join(FOLDERS))
# `render.c`, said without its folder; only of pages that are about the sources.
BARE = re.compile(r'`([\w*-]+\.(?:c|h|S|def|cu|py|sh|in))`')

LIBRARY = re.compile(r'(?:interpose|policy|graph)/.*\.[chS]$')

# Built, not in the repository.
NOT_KEPT = {'tests/sim/demo/demo-sim', 'tests/sim/runtime/libcudart.so.13'}
# NVIDIA's.
FOREIGN_NAMES = {'cuda.h', 'cudaTypedefs.h'}
# Names of the GPU suite's checks, which look like names of files, and the pages that name them.
CHECKS = re.compile(r'`(graph/[\w*-]+)`')
PAGES_OF_CHECKS = {'tests/gpu/README.md', 'docs/performance.md'}


def is_page(path):
    return path.endswith('.md') and (path.startswith('docs/') or path.count('/') == 0 or path.startswith('tests/'))


def is_about_sources(path):
    return path in ('CONTRIBUTING.md', 'docs/architecture.md') or path.startswith('tests/')


def prose(text):
    """The lines of a page, with those of code blocks empty."""
    lines, fence = [], None
    for line in text.splitlines():
        mark = FENCE.match(line)
        if mark and fence in (None, mark.group(1)):
            fence = None if fence else mark.group(1)
            lines.append('')
        else:
            lines.append('' if fence else line)
    return lines


def without_code(line):
    return re.sub(r'(`+)(?:(?!\1).)*\1', '', line)


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    found, times = set(), {}
    for line in prose(text):
        heading = HEADING.match(line)
        if heading:
            words = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading.group(1))
            name = re.sub(r'[^\w\- ]', '', words.lower()).replace(' ', '-')
            found.add('%s-%d' % (name, times[name]) if name in times else name)
            times[name] = times.get(name, 0) + 1
    return found


def links(text):
    """(line number, target) of each link of a page to something of ours."""
    for number, line in enumerate(prose(text), 1):
        for target in (a or b for a, b in LINK.findall(without_code(line))):
            if not FOREIGN.match(target):
                yield number, target


def resolve(page, target):
    """The path and the anchor that a link of this page names."""
    path, _, anchor = target.partition('#')
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page, anchor


def link_problems(pages, there):
    """pages: texts by path. there: every path that a link may name, folders too."""
    problems = []
    for page, text in sorted(pages.items()):
        for number, target in links(text):
            path, anchor = resolve(page, target)
            if path not in there:
                problems.append('%s:%d: links to %s, which is not there' % (page, number, path))
            elif anchor and (path not in pages or anchor not in anchors(pages[path])):
                problems.append('%s:%d: %s has no heading #%s' % (page, number, path, anchor))
    return problems


def reach_problems(pages):
    """The README links to the index, and the index to every page of docs/."""
    def linked(page):
        return {resolve(page, target)[0] for _, target in links(pages[page])}
    problems = [] if INDEX in linked('README.md') else ['README.md: does not link to ' + INDEX]
    docs = {page for page in pages if page.startswith('docs/')} - {INDEX}
    return problems + ['%s: does not link to %s' % (INDEX, page) for page in sorted(docs - linked(INDEX))]


def name_problems(page, text, there):
    """Names that look like files of ours are files of ours; * and <word> stand for any characters."""
    problems, base_names = [], {posixpath.basename(path) for path in there} | FOREIGN_NAMES
    for number, line in enumerate(text.splitlines(), 1):
        if page in PAGES_OF_CHECKS:
            line = CHECKS.sub('', line)
        wanted = [(name, there) for name in NAME.findall(line)]
        if is_about_sources(page):
            wanted += [(name, base_names) for name in BARE.findall(line)]
        for name, names in wanted:
            escaped = re.escape(re.sub(r'<\w+>', '*', name)).replace(r'\*', '.*')
            pattern = re.compile(escaped + (r'\.?\w*$' if '*' in name else '$'))
            if name not in NOT_KEPT and not any(pattern.match(path) for path in names):
                problems.append('%s:%d: names %s, which is not there' % (page, number, name))
    return problems


def length_problems(text, limit=README_LINES):
    n = len(text.splitlines())
    return ['README.md: %d lines; at most %d' % (n, limit)] if n > limit else []


def with_folders(paths):
    there = set(paths) | {'.'}
    for path in paths:
        while posixpath.dirname(path):
            path = posixpath.dirname(path)
            there.add(path)
    return there


def table_rows(text, head):
    """The cells of each row of the table with that first cell in its head, the names in code only."""
    _, _, table = text.partition('| %s |' % head)
    return [[re.findall('`([^`]+)`', cell) for cell in row.split(' | ')] for row in table.split('\n\n')[0].splitlines()[2:]]


def place_problems(text, paths):
    """What the tables of folders and of floors do not have."""
    folders = {cells[0][0]: cells[1] for cells in table_rows(text, 'folder') if cells[0]}
    floors = [name for cells in table_rows(text, 'floor') for name in cells[1]]
    problems = []
    for folder in sorted({posixpath.dirname(path) + '/' for path in paths if LIBRARY.match(path)}):
        row = max((name for name in folders if folder.startswith(name)), key=len, default='')
        below = folder[len(row):].split('/')[0] + '/'
        if folder != row and below not in folders.get(row, ()):
            problems.append('%s: the table of folders does not have %s' % (ARCHITECTURE, folder))
    for path in paths:
        name = path.removeprefix('policy/')
        if path.startswith('policy/') and path.endswith('.c') and not any(
                name == floor or floor.endswith('/') and name.startswith(floor) for floor in floors):
            problems.append('%s: no floor of policy/ has %s' % (ARCHITECTURE, path))
    return problems


def figure_problems(root):
    """What docs/performance.py says of its page, of tables of other pages, and of its charts."""
    sys.path.insert(0, os.path.join(root, 'docs'))
    return importlib.import_module('performance').problems()


def problems_of(pages, there):
    problems = length_problems(pages['README.md']) + link_problems(pages, there) + reach_problems(pages)
    for page, text in sorted(pages.items()):
        problems += name_problems(page, text, there)
    return problems


def read_pages(root, paths):
    return {path: read_text(os.path.join(root, path)) for path in paths if is_page(path)}


if __name__ == '__main__':
    listed = list_files(sys.argv[1])
    read = read_pages(sys.argv[1], listed)
    finish(problems_of(read, with_folders(listed)) + place_problems(read[ARCHITECTURE], listed) +
           figure_problems(sys.argv[1]),
           '%d pages: links, names of files, places of files, length of README, figures' % len(read))
