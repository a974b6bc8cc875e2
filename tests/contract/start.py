# What must be done when the library is loaded is done by one constructor of few lines, and dlsym is passed on by a
# jump, not by a call.

import re
import sys

from contract import finish, is_sanitized, run, skip

# One entry is the compiler's own (frame_dummy of crtbegin), one is begin() of interpose/lifecycle.c: it looks at
# standard error, reads the mark of `allograft run` and registers handlers of fork, and
# tests/preload/replay/test_nvtx.py holds it to doing nothing where NVTX is not asked for.
KNOWN_CONSTRUCTORS = 2


def constructor_problems(sections, pointer_bytes):
    """sections: readelf -S -W as text."""
    found = []
    pattern = r'\s(\.\w+)\s+\w+\s+[0-9a-f]{8,}\s+[0-9a-f]+\s+([0-9a-f]+)'
    for name, size in re.findall(pattern, sections):
        n = int(size, 16) // pointer_bytes
        if name == '.init_array' and n > KNOWN_CONSTRUCTORS:
            found.append('.init_array has %d entries: another constructor of ours' % n)
        if name in ('.preinit_array', '.ctors') and n > 0:
            found.append('%s exists: a constructor of ours' % name)
    return found


def dlsym_problems(disassembly):
    """disassembly: objdump -d --disassemble=dlsym --no-show-raw-insn as text.

    A wrapper that calls the real dlsym becomes its caller, and RTLD_NEXT then means "after us".
    So the way to the real one must be a jump through a pointer with the caller's return address
    still in place: the code may call our own resolver first, never a pointer.
    """
    code = []
    for line in disassembly.splitlines():
        match = re.match(r'\s*[0-9a-f]+:\s+(?:bnd |notrack )*([a-z][\w.]*)\s*(.*)', line)
        if match and match.group(1) not in ('nop', 'nopw', 'nopl', 'data16', 'int3', 'ud2', 'udf',
                                            'xchg', 'cs'):
            code.append((match.group(1), match.group(2)))
    if not code:
        return ['dlsym: no code found in the disassembly']
    found = []
    if not any(is_indirect_jump(op, arg) for op, arg in code):
        found.append('dlsym: no jump through a pointer')
    if not is_indirect_jump(*code[-1]):
        found.append('dlsym: ends in "%s %s", not in a jump through a pointer' % code[-1])
    for op, arg in code:
        if (op in ('call', 'callq') and arg.startswith('*')) or op == 'blr':
            found.append('dlsym: "%s %s" calls through a pointer' % (op, arg))
    return found


def is_indirect_jump(op, arg):
    return (op in ('jmp', 'jmpq') and arg.startswith('*')) or op == 'br'


if __name__ == '__main__':
    library = sys.argv[1]
    if is_sanitized(library):
        skip('a sanitizer brings constructors of its own')
    pointer_bytes = 8 if 'ELF64' in run('readelf', '-h', library) else 4
    finish(constructor_problems(run('readelf', '-S', '-W', library), pointer_bytes)
           + dlsym_problems(run('objdump', '-d', '--disassemble=dlsym', '--no-show-raw-insn',
                                library)),
           'no constructor but the known ones, and dlsym is passed on by a jump')
