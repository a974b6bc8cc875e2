# No folder directly holds more files than one takes in at a look: they lie in sub-folders by subject.

import collections
import posixpath
import sys

from contract import finish, list_files

MOST_FILES = 25

# Folders that may hold more -> how many, and why.
EXCEPTIONS = {}


def problems(paths, exceptions):
    held = collections.Counter(posixpath.dirname(path) for path in paths)
    found = ['%s: holds %d files, %d is the limit' % (folder or '.', n, exceptions.get(folder, (MOST_FILES,))[0])
             for folder, n in sorted(held.items()) if n > exceptions.get(folder, (MOST_FILES,))[0]]
    # An exception that nobody needs any more would let the folder grow unseen.
    return found + ['%s: is an exception, and holds %d files' % (folder, held[folder])
                    for folder in sorted(exceptions) if held[folder] <= MOST_FILES]


if __name__ == '__main__':
    listed = list_files(sys.argv[1])
    found = problems(listed, EXCEPTIONS)
    if not listed:
        found = ['no file found under ' + sys.argv[1]]
    finish(found, 'no folder of %d files directly holds more than %d' % (len(listed), MOST_FILES))
