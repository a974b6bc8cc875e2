# A function's name stands in one file of the product, so that a profile, a debugger and grep say which one is meant.
#
# The text is read rather than the objects, which lack whatever the compiler has inlined. A header and the file of the
# same name count as one: where a check is compiled out, its functions are empty ones in the header.

import os
import sys

from contract import finish, list_files, read_text
from functions import functions

PRODUCT = ('interpose/', 'policy/', 'graph/', 'tools/')


def problems_of(sources):
    """sources: path -> text."""
    places = {}
    for path, text in sources.items():
        for function in functions(text):
            if not function.named_by_macro:
                places.setdefault(function.name, {}).setdefault(path.rpartition('.')[0],
                                                                '%s:%d' % (path, function.line))
    return ['%s: a function of that name is in each of %s' % (name, ', '.join(sorted(found.values())))
            for name, found in sorted(places.items()) if len(found) > 1]


if __name__ == '__main__':
    root = sys.argv[1]
    sources = {path: read_text(os.path.join(root, path)) for path in list_files(root)
               if path.startswith(PRODUCT) and path.endswith(('.c', '.h'))}
    if not sources:
        finish(['no source of the product found under ' + root], '')
    finish(problems_of(sources), 'the names of functions in %d files are each of one' % len(sources))
