# Every source file opens by saying what it is for; no file names a registry or a machine's paths.

import os
import re
import sys

from contract import SOURCE_SUFFIXES, finish, list_files, read_text

NO_COMMENT = re.compile(r'#\s*(include|define|if|ifdef|ifndef|pragma|error)\b')
COMMENT = re.compile(r'(#|//|/\*|""")\s*\S')

# Written in pieces, so that this file does not name them itself.
FORBIDDEN = [re.compile(p, re.I) for p in (
    r'\bpypi\.' + 'org', r'files\.python' + 'hosted',
    r'\bdeb\.' + 'debian', r'security\.' + 'debian',
    r'archive\.' + 'ubuntu', r'security\.' + 'ubuntu', r'ports\.' + 'ubuntu', r'npm' + r'js\.org',
    r'crates' + r'\.io', r'proxy\.' + 'golang', r'conda\.' + 'anaconda',
    r'developer\.download\.' + 'nvidia',
    r'(?<![\w.])/' + r'work/', r'(?<![\w.])/' + r'root/', r'(?<![\w.])/home/' + r'\w')]


def first_line_problem(path, text):
    lines = text.splitlines()
    if lines and lines[0].startswith('#!'):
        lines = lines[1:]
    # A comment may open on a line of its own: its words follow at once.
    opening = ' '.join(lines[:2] if lines and lines[0] == '/*' else lines[:1])
    if not COMMENT.match(opening) or NO_COMMENT.match(opening):
        return '%s: does not open with a comment that says what the file is for' % path
    return None


def forbidden_problems(path, text):
    return ['%s:%d: names %s' % (path, number, match.group(0))
            for number, line in enumerate(text.splitlines(), 1)
            for match in filter(None, (p.search(line) for p in FORBIDDEN))]


def is_source(path):
    return path.endswith(SOURCE_SUFFIXES) or path == '.ci/run'


def problems_of(path, text):
    found = forbidden_problems(path, text)
    if is_source(path):
        found += filter(None, [first_line_problem(path, text)])
    return found


if __name__ == '__main__':
    root = sys.argv[1]
    problems, n = [], 0
    for path in list_files(root):
        with open(os.path.join(root, path), 'rb') as f:
            if b'\0' in f.read(4096):
                continue
        problems += problems_of(path, read_text(os.path.join(root, path)))
        n += 1
    if n == 0:
        problems = ['no file found under ' + root]
    finish(problems, '%d files say what they are for and name no registry' % n)
