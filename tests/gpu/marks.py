"""Which line of a program each stack of a report belongs to: for the judges of programs that mark their lines."""
import os
import re


def marked(path, kinds):
    """line -> what `// KIND: WORD` at its end says, of any of these kinds."""
    with open(path, encoding='utf-8') as file:
        found = (re.search(r'// (?:%s): (\w+)$' % '|'.join(kinds), line) for line in file)
        return {n: match[1] for n, match in enumerate(found, 1) if match}


def named(stack, source, marks):
    """What the innermost marked line of the stack says, or None."""
    for frame in stack['frames']:
        for name in frame.get('names', ()):
            if os.path.basename(name['file']) == os.path.basename(source) and name['line'] in marks:
                return marks[name['line']]
    return None
