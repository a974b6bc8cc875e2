# No function of more than 70 lines, no hook entry of more than 12, counted between its braces.

import os
import re
import sys

from contract import blank_comments, blank_directives, finish, list_files, read_text

MOST_LINES = 70
MOST_ENTRY_LINES = 12

# A hook entry carries the driver symbol's name, alone or behind a prefix, and lies in interpose/.
ENTRY = re.compile(r'(^|_)cu[A-Z]\w*$')


def flat_c(text):
    """C text in which comments, strings, characters and preprocessor lines hold no braces."""
    text = blank_comments(text)
    literal = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return blank_directives(re.sub(literal, lambda m: '0' * len(m.group(0)), text))


def functions(text):
    """(name, line of the opening brace, lines between the braces) of each function of a C file."""
    depth, head_start, opened, name = 0, 0, 0, None
    text = flat_c(text)
    for at, char in enumerate(text):
        if char == '{':
            if depth == 0:
                name = function_name(text[head_start:at])
                opened = text.count('\n', 0, at) + 1
            depth += 1
        elif char == '}':
            depth -= 1
            if depth == 0:
                closed = text.count('\n', 0, at) + 1
                if name:
                    yield name, opened, max(closed - opened - 1, 0)
                head_start = at + 1
        elif char == ';' and depth == 0:
            head_start = at + 1


def function_name(head):
    """The name a file-level `head {` defines as a function, None for a type or an initialiser."""
    head = re.sub(r'__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)', ' ', head).strip()
    if not head.endswith(')') or re.search(r'=\s*$|=[^=]*$', head):
        return None
    # The parameter list is the last balanced pair of parentheses; the name stands before it, or,
    # for a definition through a macro like AG_ENTRY(cuX)(...), inside the pair before that.
    depth, at = 0, len(head)
    while at > 0:
        at -= 1
        depth += {')': 1, '(': -1}.get(head[at], 0)
        if depth == 0:
            break
    before = head[:at].rstrip()
    inner = re.search(r'\(\s*(?:\w+\s*,\s*)*(\w+)[^()]*\)$', before)
    plain = re.search(r'(\w+)$', before)
    return inner.group(1) if inner else plain.group(1) if plain else None


def problems_of(path, text):
    found = []
    for name, line, count in functions(text):
        entry = path.startswith('interpose/') and ENTRY.search(name)
        most = MOST_ENTRY_LINES if entry else MOST_LINES
        if count > most:
            found.append('%s:%d: %s has %d lines, %d is the limit'
                         % (path, line, name, count, most))
    return found


if __name__ == '__main__':
    root = sys.argv[1]
    problems, n = [], 0
    for path in list_files(root):
        if path.endswith(('.c', '.h', '.cu')):
            text = read_text(os.path.join(root, path))
            problems += problems_of(path, text)
            n += sum(1 for _ in functions(text))
    if n == 0:
        problems = ['no function found under ' + root]
    finish(problems, '%d functions keep to %d lines, hook entries to %d'
           % (n, MOST_LINES, MOST_ENTRY_LINES))
