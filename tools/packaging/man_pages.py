"""Makes allograft(1) and allograft(7) of their templates, the commands' own help and the table of settings.

    man_pages.py allograft.1.in allograft.7.in options.def COMMAND OUT.1 OUT.7
"""

import os
import re
import subprocess
import sys


def roff(text):
    """Text as it is, for a line that does not begin with a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\`").replace("'", "\\(aq")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def run(command, *words):
    # What it says is not about this environment; a sanitizer's opinion of leaks is not asked here.
    env = {k: v for k, v in os.environ.items() if not k.startswith("ALLOGRAFT_")}
    env["ASAN_OPTIONS"] = "detect_leaks=0"
    return subprocess.run([command, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          check=True, timeout=60).stdout.decode()


def commands_of(command):
    """The names of the commands, as the command's help has them, each once."""
    found = re.findall(r"^  allograft (\w+)", run(command, "--help"), re.MULTILINE)
    return list(dict.fromkeys(found))


def command_section(command, name):
    return ".SS %s\n.nf\n%s\n.fi\n" % (name, roff(run(command, name, "--help").rstrip("\n")))


def rows_of(options):
    """(name, default, allowed, help) of every AG_OPTION row."""
    string = r'"((?:[^"\\]|\\.)*)"'
    row = re.compile(r'^AG_OPTION\(\w+,\s*(\w+),\s*\w+,\s*%s,\s*%s,\s*((?:%s\s*)+)\)' % (string, string, string),
                     re.MULTILINE)
    for match in row.finditer(options):
        name, default, allowed, text = match[1], match[2], match[3], match[4]
        yield name, default, allowed, "".join(re.findall(string, text))


def option_section(name, default, allowed, text):
    return ".TP\n.BR ALLOGRAFT_%s = \\fI%s\\fR\n%s (default: %s)\n" % (
        name, roff(allowed), roff(text), roff(default))


def main():
    page_1, page_7, options, command, out_1, out_7 = sys.argv[1:]
    version = run(command, "--version").split()[-1]
    with open(options, encoding="utf-8") as file:
        text = file.read()
    rows = list(rows_of(text))
    if len(rows) != len(re.findall(r"^AG_OPTION\(", text, re.MULTILINE)):
        sys.exit("%s: a row is not understood" % options)
    words = {
        "@VERSION@": version,
        "@COMMANDS@": "".join(command_section(command, name) for name in commands_of(command)),
        "@SETTINGS@": "".join(option_section(*row) for row in rows),
    }
    for template, out in ((page_1, out_1), (page_7, out_7)):
        with open(template, encoding="utf-8") as file:
            page = file.read()
        for word, value in words.items():
            page = page.replace(word + "\n" if value.endswith("\n") else word, value)
        with open(out, "w", encoding="utf-8") as file:
            file.write(page)


if __name__ == "__main__":
    main()
