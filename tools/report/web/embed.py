"""Writes the style sheets and scripts of the pages as C, with the hashes of the scripts by which a page allows them.

    embed.py OUT.c NAME=FILE...

A script must not contain what ends or begins one within HTML, and becomes the constants web_NAME, a string, and
web_NAME_hash, what Content-Security-Policy says of it. It stands in the page as it is here, newline included.
"""

import base64
import hashlib
import re
import sys


def literal(data):
    """A C string of printable characters; line by line, so that diffs and compilers can read it."""
    lines = []
    for start in range(0, len(data), 72):
        part = data[start:start + 72]
        text = "".join(chr(b) if 32 <= b < 127 and chr(b) not in "\"\\?" else "\\%03o" % b for b in part)
        lines.append('    "%s"' % text)
    return "\n".join(lines)


def main():
    out, *pairs = sys.argv[1:]
    text = '/* Made by embed.py: do not edit. */\n#include "tools/base/html_web.h"\n'
    for pair in pairs:
        name, path = pair.split("=", 1)
        with open(path, "rb") as file:
            data = file.read()
        if re.search(rb"</script|<!--|<script|</style", data, re.I) or b"\0" in data:
            sys.exit("%s: it cannot stand in a page" % path)
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        text += "\nconst char web_%s[] =\n%s;\n" % (name, literal(data))
        text += 'const char web_%s_hash[] = "\'sha256-%s\'";\n' % (name, digest)
    with open(out, "w", encoding="ascii") as file:
        file.write(text)


main()
