# Every source file opens by saying what it is for; no file names a registry or a machine's paths.

import os
import re
import sys

from contract import SOURCE_SUFFIXES, finish, lines_with, list_files, read_text

NO_COMMENT = re.compile(r'#\s*(include|define|if|ifdef|ifndef|pragma|error)\b')
COMMENT = re.compile(r'(#|//|/\*|""")\s*\S')

# What it looks like, after letters that stand in it. Written in pieces, so that this file does not name them itself.
FORBIDDEN = [(letters, re.compile(pattern, re.I)) for letters, pattern in (
    ('pypi.', r'\bpypi\.' + 'org'), ('files.python', r'files\.python' + 'hosted'),
    ('deb.', r'\bdeb\.' + 'debian'), ('security.', r'security\.' + 'debian'),
    ('archive.', r'archive\.' + 'ubuntu'), ('security.', r'security\.' + 'ubuntu'),
    ('ports.', r'ports\.' + 'ubuntu'), ('npm', r'npm' + r'js\.org'),
    ('crates', r'crates' + r'\.io'), ('proxy.', r'proxy\.' + 'golang'), ('conda.', r'conda\.' + 'anaconda'),
    ('developer.download', r'developer\.download\.' + 'nvidia'),
    ('/work', r'(?<![\w.])/' + r'work/'), ('/root', r'(?<![\w.])/' + r'root/'),
    ('/home', r'(?<![\w.])/home/' + r'\w'))]


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
    lines, lowered = text.split('\n'), text.lower()
    matches = [(number, pattern.search(lines[number])) for letters, pattern in FORBIDDEN
               for number in lines_with([letters], lowered)]
    return ['%s:%d: names %s' % (path, number + 1, match.group(0)) for number, match in matches if match]


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
