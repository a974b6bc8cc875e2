# The control API is one list: the stubs of allograft.h, the frozen places of its members, the Python package's table.

import importlib.util
import os
import re
import sys

from contract import blank_comments, finish, read_text

LIST = 'interpose/api/functions.def'
HEADER = 'interpose/api/allograft.h'
PLACES = 'tests/api/header.c'
PYTHON = 'tools/python/allograft/_library.py'

# The names ctypes has for the header's types; size_t and uint64_t are its c_ulong. A struct is found by its mirror's
# description, which names it.
CTYPES = {'int': 'c_int', 'unsigned': 'c_uint', 'size_t': 'c_ulong', 'void *': 'c_void_p', 'char *': 'c_char_p',
          'allograft_pool': 'c_ulong', 'uint64_t': 'c_ulong', 'allograft_capture_mode': 'c_int',
          'allograft_action': 'c_int', 'allograft_graph *': 'c_void_p', 'allograft_stage *': 'c_void_p',
          'allograft_ring *': 'c_void_p', 'allograft_place': 'c_int'}


def listed(text):
    """The rows of the list: [(name, stub)]."""
    return re.findall(r'(?m)^AG_API\((\w+), (\w+)\)$', blank_comments(text))


def split(arguments):
    return [' '.join(a.split()) for a in arguments.split(',') if a.strip() and a.strip() != 'void']


def members(header):
    """name -> types of the arguments, of struct allograft_api."""
    body = re.search(r'struct allograft_api \{(.*?)\n\};', blank_comments(header), re.S).group(1)
    return {name: split(arguments) for name, arguments in re.findall(r'\(\*(\w+)\)\(([^)]*)\)', body)}


def stub_problems(rows, header):
    """Every row has a documented stub that hands its own parameters on, in their order."""
    found = []
    for name, stub in rows:
        match = re.search(r'(\*/\n)?static inline (?:allograft_status |const char \*)allograft_%s\(([^)]*)\)\n\{(.*?)\n\}'
                          % stub, header, re.S)
        if not match:
            found.append('%s: no stub allograft_%s for the row %s' % (HEADER, stub, name))
            continue
        handed_on = [re.search(r'(\w+)$', p).group(1) for p in split(match.group(2))]
        call = 'ALLOGRAFT_CALL(%s);' % ', '.join([name] + handed_on)
        if name != 'last_error' and ' '.join(match.group(3).split()) != call:
            found.append('%s: allograft_%s is not %s' % (HEADER, stub, call))
        if not match.group(1):
            found.append('%s: no comment says what allograft_%s does' % (HEADER, stub))
    return found


def ctype_of(kind, mirrors):
    """The name ctypes gives to a parameter of this C type."""
    kind = re.sub(r'^const ', '', kind)
    if kind in CTYPES:
        return CTYPES[kind]
    inner = re.sub(r' ?\*$', '', kind)
    struct = mirrors.get(inner)
    return 'LP_' + (struct or ctype_of(inner + ' *' if inner == 'void' else inner.strip(), mirrors))


def python_problems(rows, header, functions, mirrors):
    types = members(header)
    expected = []
    for name, _ in rows:
        expected.append((name, [ctype_of(kind, mirrors) for kind in types.get(name, [])]))
    found = ['%s: %s is %s, expected %s' % (PYTHON, name, arguments, wanted)
             for (name, arguments), wanted in zip(functions, expected) if (name, arguments) != wanted]
    if len(functions) != len(rows):
        found.append('%s: %d functions, the list has %d' % (PYTHON, len(functions), len(rows)))
    return found


def place_problems(rows, text):
    places = [(name, int(number)) for name, number in re.findall(r'(?m)^AT\((\w+), (\d+)\);$', text)]
    expected = [(name, number) for number, (name, _) in enumerate(rows)]
    return [] if places == expected else ['%s: the places of members are not those of %s' % (PLACES, LIST)]


def read_python(path):
    """The package's table, [(name, names of types)], and its mirrors of structs, C's name -> its own."""
    spec = importlib.util.spec_from_file_location('library', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    mirrors = {}
    for name, kind in vars(module).items():
        match = re.fullmatch(r'`(struct allograft_\w+)`', getattr(kind, '__doc__', None) or '')
        if match:
            mirrors[match.group(1)] = name
    return [(name, [kind.__name__ for kind in arguments]) for name, arguments in module.FUNCTIONS], mirrors


def main(root):
    def text_of(name):
        return read_text(os.path.join(root, name))
    rows = listed(text_of(LIST))
    header = text_of(HEADER)
    functions, mirrors = read_python(os.path.join(root, PYTHON))
    finish(stub_problems(rows, header) + place_problems(rows, text_of(PLACES)) +
           python_problems(rows, header, functions, mirrors) + ([] if rows else [LIST + ': no rows']),
           'the control API is one list of %d functions' % len(rows))


if __name__ == '__main__':
    main(*sys.argv[1:])
