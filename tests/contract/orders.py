# Every file of the library with a relaxed access says in a comment why that needs no order: on a machine that reorders
# accesses, only that argument tells a choice from an oversight.

import os
import re
import sys

from contract import blank_comments, finish, list_files, read_text

LAYERS = ('interpose/', 'policy/', 'graph/')
ACCESS = re.compile(r'\b(?:memory_order_relaxed|__ATOMIC_RELAXED)\b')
ARGUMENT = re.compile(r'\brelaxed\b', re.I)


def comments_of(text):
    """The words that blank_comments() takes away."""
    return ''.join(before if after == ' ' else ' ' for before, after in zip(text, blank_comments(text)))


def problems_of(path, text):
    accesses = list(ACCESS.finditer(blank_comments(text)))
    if not accesses or ARGUMENT.search(comments_of(text).replace('memory_order_relaxed', '')):
        return []
    line = text.count('\n', 0, accesses[0].start()) + 1
    return ['%s:%d: no comment of the file says why what is relaxed needs no order' % (path, line)]


if __name__ == '__main__':
    root = sys.argv[1]
    problems, n = [], 0
    for path in list_files(root):
        if path.startswith(LAYERS) and path.endswith(('.c', '.h')):
            problems += problems_of(path, read_text(os.path.join(root, path)))
            n += 1
    finish(problems if n else ['no source found under ' + root], 'relaxed accesses have their argument')
