# The library needs libc and nothing else at run time, no libc newer than 2.34, and nothing of it whose answer
# depends on the program's locale.

import re
import sys

from contract import finish, is_sanitized, run, skip

NEWEST_GLIBC = (2, 34)
# The program may speak Turkish, where "I" is no capital "i", or German, whose decimal point is a comma.
SPEAKS = re.compile(r'^(str(n?casecmp|casestr|coll|xfrm|tod|tof|told|ftime)|ato[fF]|to(lower|upper)'
                    r'|is(alpha|upper|lower|alnum|space|print|punct|graph|cntrl|blank)|__ctype_\w+|fnmatch)$')
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
    for name in re.findall(r'\bU (\w+)', undefined):
        if SPEAKS.match(name):
            found.append('%s depends on the locale: see interpose/core/base/text.h' % name)
    return found


if __name__ == '__main__':
    library = sys.argv[1]
    if is_sanitized(library):
        skip('a sanitizer brings libraries of its own')
    finish(problems(run('readelf', '-d', '-W', library),
                    run('nm', '-D', '--undefined-only', library)),
           'libc up to GLIBC_%d.%d is all the library needs' % NEWEST_GLIBC)
