# The library needs libc and nothing else at run time, and no libc newer than 2.34.

import re
import sys

from contract import finish, is_sanitized, run, skip

NEWEST_GLIBC = (2, 34)
ALLOWED = re.compile(r'^(libc\.so\.6|ld-linux[-\w]*\.so\.\d+)$')


def problems(dynamic, undefined):
    """dynamic: readelf -d; undefined: nm -D --undefined-only, both as text."""
    found = []
    for name in re.findall(r'\(NEEDED\).*\[([^\]]+)\]', dynamic):
        if not ALLOWED.match(name):
            found.append('needs %s' % name)
    if re.search(r'\((RPATH|RUNPATH)\)', dynamic):
        found.append('carries a run path')
    for name, version in re.findall(r'(\S+)@+GLIBC_([\d.]+)', undefined):
        if tuple(int(n) for n in version.split('.')) > NEWEST_GLIBC:
            found.append('%s wants GLIBC_%s' % (name, version))
    for name, version in re.findall(r'(\S+)@+(?!GLIBC_)(\S+)', undefined):
        found.append('%s wants %s, which is not libc\'s' % (name, version))
    return found


if __name__ == '__main__':
    library = sys.argv[1]
    if is_sanitized(library):
        skip('a sanitizer brings libraries of its own')
    finish(problems(run('readelf', '-d', '-W', library),
                    run('nm', '-D', '--undefined-only', library)),
           'libc up to GLIBC_%d.%d is all the library needs' % NEWEST_GLIBC)
