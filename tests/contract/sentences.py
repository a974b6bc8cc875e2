# A comment begins with what it is about: who reads it first must not have to look for its subject.
#
# Refused are beginnings whose subject is elsewhere: "Of the way that is not kept", "Else it stays", "The same, of host
# memory", "With the lock held". Comments behind code on its line are asked nothing, since that line is their subject.

import os
import re
import sys

from contract import finish, list_files, read_text

PRODUCT = ('interpose/', 'policy/', 'graph/', 'tools/')

# What a comment begins with -> how it might begin.
HEADLESS = [(re.compile(pattern), instead) for pattern, instead in (
    (r'Of\b', 'with the thing: "The length of", "A row of"'),
    (r'(Else|Otherwise|Nor)\b', 'with the condition: "Where nothing is known, ..."'),
    (r'The same(?=[,;:.]| (as|but|for|in|of|to|when|where|with|without)\b)|Likewise\b', 'with what is the same'),
    (r'Not\b', 'with who or what does not'),
    (r'(As|By|Around|Up to|Into)\b', 'with the verb: "Does what ... does", "Called before and after"'),
    (r'(So many|In which|Those of|That of|Also|Apart from|Behind)\b', 'with the thing'),
    (r'(With|Under) (the [^,:]*\block|\w+_lock)\b', '"Called with the lock held"'),
    (r'(Before|After) [^,:.]*[.]?$', '"Called before", "Called after"'),
    (r'What [^.]*\b(was|were) of\b', 'with the thing that it was'),
)]


def comments_of(text):
    """(line, words) of each comment that begins its line."""
    pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*'
    for match in re.finditer(pattern, text, re.S):
        if match.group(0).startswith('/') and not text[text.rfind('\n', 0, match.start()) + 1:match.start()].strip():
            words = re.sub(r'\s*\n\s*\*?\s*', ' ', match.group(0))
            yield text.count('\n', 0, match.start()) + 1, words.strip('/* ')


def problems_of(path, text):
    return ['%s:%d: "%s": begin %s' % (path, line, words[:60], instead) for line, words in comments_of(text)
            for pattern, instead in HEADLESS if pattern.match(words)]


if __name__ == '__main__':
    root = sys.argv[1]
    paths = [path for path in list_files(root) if path.startswith(PRODUCT) and path.endswith(('.c', '.h', '.S', '.def'))]
    texts = {path: read_text(os.path.join(root, path)) for path in paths}
    if not texts:
        finish(['no source of the product found under ' + root], '')
    finish([problem for path, text in texts.items() for problem in problems_of(path, text)],
           '%d comments begin with what they are about' % sum(len(list(comments_of(t))) for t in texts.values()))
