"""Writes hooks as plain C, which a debugger steps through: for each row of a table the functions of its kind.

    make_hooks.py hooks.def kinds.c.in kinds.def OUT.h...

kinds.c.in has the C of each kind, kinds.def the rows; both say how they are read. A row makes the hook of its symbol,
and those of symbol_ptsz and symbol_ptds if hooks.def has them. The rows of SECTION(name) go into name.h.
"""

import os
import re
import sys
from string import Template

COLUMNS = 100
ROW = re.compile(r"\s*(/\*.*?\*/)?\s*(\w+)(?=\()", re.DOTALL)
OPTIONAL = re.compile(r"^(\w+)([?!])(?= |$)", re.MULTILINE)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def columns_of(text):
    """The parts of "(a, f(b, c), d) and more" between the commas of its first parentheses, and where these end."""
    parts, depth, start = [], 0, 1
    for at, char in enumerate(text):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(char, 0)
        if depth == 0 or (depth == 1 and char == ","):
            parts.append(" ".join(text[start:at].split()))
            start = at + 1
        if depth == 0:
            return parts, start
    raise ValueError("no end of " + text[:COLUMNS])


def rows_of(text):
    """(comment, name, columns) of each row."""
    at, text = 0, text.rstrip()
    while at < len(text):
        row = ROW.match(text, at)
        if not row:
            raise ValueError("no row: " + text[at : at + COLUMNS])
        columns, length = columns_of(text[row.end() :])
        yield row.group(1), row.group(2), columns
        at = row.end() + length


def kinds_of(text):
    """How a file begins, and the kinds: name -> (names of its columns, text of its pieces)."""
    parts = re.findall(r"^%(\w+) ?(.*)\n((?:(?!%|\n/\*).*\n)*)", text, re.MULTILINE)
    pieces = {name: text.strip("\n") + "\n" for what, name, text in parts if what in ("head", "piece")}
    kinds = {}
    for what, line, _ in parts:
        if what == "kind":
            name, columns, made = re.fullmatch(r"(\w+)\((.*)\): (.*)", line).groups()
            kinds[name] = columns.split(", "), "\n".join(pieces[piece] for piece in made.split())
    return pieces[""], kinds


def chosen(line):
    """`way = condition ? one : other;`, in the first layout that fits."""
    way, condition, one, other = re.match(r"(.* =) (.*) \? (.*) : (.*)", line).groups()
    below, beside = " " * (line.index("way") + 4), " " * (line.index("=") + 6)
    layouts = [f"{way}\n{below}{condition} ? {one} : {other}",
               f"{way} {condition} ? {one}\n{' ' * line.index('?')}: {other}",
               f"{way} {condition}\n{beside}? {one}\n{beside}: {other}"]
    return next(layout for layout in layouts if all(len(part) <= COLUMNS for part in layout.split("\n")))


def wrapped(line, opened=()):
    """A line as clang-format breaks it: after the last comma or && of those that are nested least, aligned to what
    opened there, which is at the columns `opened`."""
    if len(line) <= COLUMNS:
        return line
    if " ? " in line:
        return chosen(line)
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    opened, places, outermost = list(opened), [], 0
    for at, char in enumerate(line[: COLUMNS + 1]):
        if char in "({":
            outermost = outermost if opened else at + 1
            opened.append(at + 1)
        elif char in ")}":
            opened.pop()
        elif char == " " and opened and line[:at].strip().endswith((",", "&&", "||")):
            places.append((-len(opened), at, opened[:]))
    after = line[:outermost] + "\n" + wrapped(indent + line[outermost:], [len(indent)]) if outermost else ""
    if not places:
        return after or line
    depth, at, opened = max(places)
    if depth < -1 and len(after.split("\n")) == 2:
        return after
    aligned = line[:at] + "\n" + wrapped(" " * opened[-1] + line[at + 1 :], opened)
    left, assigns, right = line.partition(" = ")
    below = left + " =\n" + wrapped(indent + right) if assigns and right[0] != "{" else ""
    if below and below.count("\n") <= aligned.count("\n"):
        return below
    return after if after and aligned.count("\n") > after.count("\n") + 2 else aligned


def arguments_of(parameters):
    """The names in "CUstream stream, void **data"."""
    return ", ".join(re.search(r"\w+$", part).group(0) for part in parameters.split(", ") if part != "void")


def hook(kind, names, template, columns, symbol, per_thread):
    """The functions of one hook."""
    required = [name for name in names if "?" not in name]
    if not len(required) <= len(columns) <= len(names):
        raise ValueError(f"{symbol}: {kind} has the columns {', '.join(names)}")
    columns = [re.sub(r"\bper_thread\b", per_thread, column) for column in columns]
    columns += [""] * (len(names) - len(columns))
    values = {name.partition("?")[0]: column or name.partition("?")[2] for name, column in zip(names, columns)}
    parameters = values["parameters"] = values["parameters"][1:-1]
    arguments = arguments_of(parameters)
    values.update(symbol=symbol, per_thread=per_thread, arguments=arguments, and_arguments=arguments and ", " + arguments)
    lines = []
    for line in template.split("\n"):
        needed = OPTIONAL.match(line)
        if not needed or bool(values.get(needed.group(1))) == (needed.group(2) == "?"):
            lines.append(wrapped(Template(OPTIONAL.sub("", line)).substitute(values)))
    return "\n".join(lines)


def sections_of(hooks, templates, table):
    """The files: name -> text."""
    flavours = dict(re.findall(r"^AG_HOOK(?:_IF)?\(\w+, (\w+),\s*\d+,\s*(\w+)", hooks, re.MULTILINE))
    head, kinds = kinds_of(templates)
    sections = {}
    for comment, kind, columns in rows_of(table):
        if kind == "SECTION":
            made = sections[columns[0]] = [head]
            continue
        if kind not in kinds:
            raise ValueError(f"{columns[0]}: no kind {kind} in kinds.c.in")
        base, names, template = columns[0], *kinds[kind]
        symbols = [symbol for symbol in (base, base + "_ptsz", base + "_ptds") if symbol in flavours]
        if not symbols:
            raise ValueError(base + " is no hook of hooks.def")
        made += [comment + "\n"] if comment else []
        made += [hook(kind, names, template, columns[1:], symbol, str(flavours[symbol] in ("PTSZ", "PTDS")).lower())
                 for symbol in symbols]
    return {name: "\n".join(made) for name, made in sections.items()}


def main():
    hooks, kinds, table, *outs = sys.argv[1:]
    sections = sections_of(read(hooks), read(kinds), read(table))
    if sorted(sections) != sorted(os.path.splitext(os.path.basename(out))[0] for out in outs):
        raise ValueError("sections are " + ", ".join(sections))
    for out in outs:
        with open(out, "w", encoding="utf-8") as file:
            file.write(sections[os.path.splitext(os.path.basename(out))[0]])


if __name__ == "__main__":
    main()
