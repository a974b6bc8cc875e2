# What the contract checks share: reading hooks.def, listing sources, asking binutils, reporting.

import os
import re
import subprocess
import sys

SKIP = 77

SOURCE_SUFFIXES = ('.c', '.h', '.S', '.s', '.cu', '.cpp', '.def', '.py', '.sh', '.map', '.build')
SKIPPED_FOLDERS = re.compile(r'^(build.*|\.git|__pycache__|subprojects|\.venv)$')


def finish(problems, what):
    """Ends the process: prints every problem, or one line that says what held."""
    for problem in problems:
        print(problem)
    if problems:
        print('%d problem(s): %s' % (len(problems), what))
        sys.exit(1)
    print('holds: ' + what)
    sys.exit(0)


def skip(why):
    print('skipped: ' + why)
    sys.exit(SKIP)


def read_text(path):
    with open(path, encoding='utf-8', errors='replace') as f:
        return f.read()


def lines_with(letters, lowered):
    """The numbers of the lines of a text with some of the letters; to look for letters is quicker than for expressions."""
    numbers = set()
    for part in letters:
        number, counted, at = 0, 0, lowered.find(part)
        while at >= 0:
            number += lowered.count('\n', counted, at)
            numbers.add(number)
            counted, at = at, lowered.find(part, at + 1)
    return sorted(numbers)


def run(*command):
    """Standard output of a binutils command, which must succeed. The C locale keeps its words."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True,
                          env=dict(os.environ, LC_ALL='C')).stdout


def blank_comments(text):
    """C text with comments replaced by spaces; line numbers and string literals stay."""
    def blank(match):
        found = match.group(0)
        return found if found[0] in '"\'' else re.sub(r'[^\n]', ' ', found)
    pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*'
    return re.sub(pattern, blank, text, flags=re.S)


def blank_directives(text):
    """C text with preprocessor lines, continued ones too, replaced by spaces."""
    pattern = r'(?m)^[ \t]*#(?:[^\n\\]|\\\n|\\.)*'
    return re.sub(pattern, lambda m: re.sub(r'[^\n]', ' ', m.group(0)), text)


class Row:
    """One row of hooks.def: kind HOOK (HOOK_IF too), CALL, UNHOOKED or LIBC, its arguments as text."""

    def __init__(self, kind, args, line):
        self.kind = kind
        self.line = line
        self.args = args
        # HOOK and CALL name the base first, the driver's symbol second.
        self.symbol = args[1] if kind in ('HOOK', 'CALL') and len(args) > 1 else args[0]
        # What happens to withheld work before the driver's function runs.
        self.flush = {'HOOK': args[5:6], 'CALL': args[5:6], 'UNHOOKED': args[1:2]}.get(kind, [])
        self.flush = self.flush[0] if self.flush else ''


def read_rows(text):
    rows = []
    # A #define of a row's macro is no row.
    clean = blank_directives(blank_comments(text))
    pattern = r'\bAG_(HOOK|CALL|UNHOOKED|LIBC)(?:_IF)?\s*\(((?:[^()"]|\(\w+\)|"(?:\\.|[^"\\])*")*)\)'
    for match in re.finditer(pattern, clean):
        args = re.findall(r'"(?:\\.|[^"\\])*"|[^,\s][^,"]*', match.group(2))
        rows.append(Row(match.group(1), [a.strip() for a in args],
                        clean.count('\n', 0, match.start()) + 1))
    return rows


def list_files(root):
    """Paths under root that belong to the project: git's list, else all but build folders."""
    try:
        listed = subprocess.run(
            ['git', '-C', root, 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        names = [n.decode('utf-8', 'replace') for n in listed.split(b'\0') if n]
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, found in os.walk(root):
            folders[:] = [d for d in folders if not SKIPPED_FOLDERS.match(d)]
            names += [os.path.relpath(os.path.join(folder, n), root) for n in found]
    return sorted(n for n in set(names) if os.path.isfile(os.path.join(root, n)))


def is_sanitized(library):
    """A sanitizer adds symbols, constructors and libraries of its own to the file."""
    return re.search(r'__(asan|ubsan|tsan|msan)_', run('nm', '-D', library)) is not None
