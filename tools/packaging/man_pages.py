"""Makes allograft(1) and allograft(7) from their templates and the tables of commands and settings.

    man_pages.py VERSION allograft.1.in allograft.7.in commands.def options.def OUT.1 OUT.7
"""

import ast
import re
import sys

STRING = r'"(?:[^"\\]|\\.)*"'
ROW = re.compile(r"^([A-Z_]+)\(((?:%s|[^()\"])*)\)$" % STRING, re.MULTILINE)
ARGUMENT = re.compile(r"\s*((?:%s\s*)+|[^,\"]+)(?:,|$)" % STRING)


def roff(text):
    """Escapes text; a line of it never begins with a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\`").replace("'", "\\(aq")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def rows_of(path, macros):
    """[macro, argument, ...] for every row of a table; adjacent strings are joined as in C."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    rows = []
    for macro, arguments in ROW.findall(text):
        words = [w.strip() for w in ARGUMENT.findall(arguments)]
        rows.append([macro] + ["".join(ast.literal_eval(s) for s in re.findall(STRING, w)) if w.startswith('"') else w
                               for w in words])
    if len(rows) != len(re.findall(r"^(?:%s)\(" % "|".join(macros), text, re.MULTILINE)):
        sys.exit("%s: a row is not understood" % path)
    return rows


def paragraphs(text):
    return "".join(".PP\n%s\n" % roff(part) for part in text.split("\n") if part)


def entry(head, text):
    return ".TP\n%s\n%s\n" % (head, roff(text))


def command_section(row, rows):
    """The section of a command, with its arguments and options."""
    _, name, operands, _, _, _, _, about, end = row
    page = ".SS %s\n.BR \"allograft %s\" \" [options] %s\"\n%s" % (name, name, roff(operands), paragraphs(about))
    for macro, command, *rest in rows:
        if command != name or not rest[-1]:
            continue
        if macro == "ARGUMENT":
            page += entry(".I " + roff(rest[0]), rest[1])
        elif macro == "OPTION":
            option, _, argument, _, text = rest
            value = "" if argument == "NULL" else ' " " \\fI%s\\fR' % roff(argument)
            page += entry(".BR \\-\\-%s%s" % (roff(option.replace("_", "-")), value), text)
    if name == "run":
        page += entry(".BI \\-\\-NAME \" VALUE\"", "any other setting (see allograft(7)); NAME is its name in small "
                      "letters with - for _, as in --graph-warmup 4")
    return page + paragraphs(end)


def setting_section(_macro, _field, name, _type, default, allowed, text):
    return ".TP\n.BR ALLOGRAFT_%s = \\fI%s\\fR\n%s (default: %s)\n" % (name, roff(allowed), roff(text), roff(default))


def main():
    version, page_1, page_7, commands, options, out_1, out_7 = sys.argv[1:]
    rows = rows_of(commands, ("COMMAND", "ARGUMENT", "OPTION"))
    words = {
        "@VERSION@": version,
        "@COMMANDS@": "".join(command_section(row, rows) for row in rows if row[0] == "COMMAND"),
        "@SETTINGS@": "".join(setting_section(*row) for row in rows_of(options, ("AG_OPTION",))),
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
