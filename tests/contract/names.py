# A layer names nothing of a layer above it: no function, type or macro that only a header above declares, no hook by its
# driver name (a bare cuLaunchKernel() would bind to our hook, ag_cu.cuLaunchKernel() is the driver's), and in comments no
# file above.

import os
import re
import sys

from contract import blank_comments, finish, list_files, read_text
from layers import LAYER_NAMES, layer_of

DECLARATIONS = re.compile(r'^\s*#\s*define\s+(AG_\w+)|\b(?:struct|enum|union)\s+(ag_\w+)\s*\{|\b(ag_\w+)\s*\([^;{}]*\)\s*[;{]'
                          r'|^\s*(AG_\w+)\s*(?:=[^,}]*)?,?\s*$|\bextern\b[^;(]*?\b(ag_\w+)\s*(?:\[[^\]]*\])*;', re.M)
HOOK_CALL = re.compile(r'(?<![.>\w])(cu[A-Z]\w*)\s*\(')
PATH = re.compile(r'\b(?:interpose|policy|graph)/[\w/]+\.(?:c|h|def|S)\b')
TOP = 4  # hooks may call each other


def declared(sources):
    """Name -> the lowest header that declares it; sources: path -> text."""
    found = {}
    for path, text in sources.items():
        if not path.endswith('.h'):
            continue
        for match in DECLARATIONS.finditer(blank_comments(text)):
            name = next(filter(None, match.groups()))
            if name not in found or layer_of(path) < layer_of(found[name]):
                found[name] = path
    return found


def line_of(text, match):
    return text.count('\n', 0, match.start()) + 1


def problems_of(path, text, names, known):
    code, layer = blank_comments(text), layer_of(path)
    found = []
    for match in re.finditer(r'\b(?:ag|AG)_\w+', code):
        owner = names.get(match.group(0))
        if owner and layer_of(owner) > layer:
            found.append('%s:%d: layer "%s" names %s of %s'
                         % (path, line_of(code, match), LAYER_NAMES[layer], match.group(0), owner))
    if layer < TOP:
        found += ['%s:%d: calls %s, which is our hook; the driver\'s is ag_cu.%s'
                  % (path, line_of(code, match), match.group(1), match.group(1)) for match in HOOK_CALL.finditer(code)]
    for match in PATH.finditer(text):
        if match.group(0) in known and layer_of(match.group(0)) > layer:
            found.append('%s:%d: layer "%s" names the file %s' % (path, line_of(text, match), LAYER_NAMES[layer],
                                                                  match.group(0)))
    return found


if __name__ == '__main__':
    root = sys.argv[1]
    sources = {p: read_text(os.path.join(root, p)) for p in list_files(root)
               if p.endswith(('.c', '.h', '.def', '.S')) and layer_of(p) is not None}
    if not sources:
        finish(['no source of the library found under ' + root], '')
    names = declared(sources)
    found = [problem for p in sorted(sources) for problem in problems_of(p, sources[p], names, sources)]
    finish(found, '%d names of %d files are only used from above' % (len(names), len(sources)))
