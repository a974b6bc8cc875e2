#!/usr/bin/env python3
"""The tables of pages that are lists of the sources: of settings in docs/settings.md, as `allograft options` prints them,
and of hooked driver symbols in docs/guarantees.md, from interpose/core/driver/hooks.def.

usage: tables.py [BUILD]     writes them into the pages; BUILD, by default build, has the command
"""

import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
HEADING = re.compile(r"^/\* --- (.*?) --- \*/$")
HOOK = re.compile(r"^AG_HOOK(?:_IF)?\(\w+, (\w+),")

# What stands around each table on its page.
SETTINGS = re.compile(r"(<!-- allograft options -->\n```text\n)(.*?)(```\n)", re.DOTALL)
COVERAGE = re.compile(r"(<!-- coverage table -->\n)((?:\|[^\n]*\n)*)()")


def read_groups(lines):
    """[heading, [symbol, ...]] of each group that has hooks, in the order of the list."""
    groups = []
    for line in lines:
        heading, hook = HEADING.match(line), HOOK.match(line)
        if heading:
            groups.append((heading[1], []))
        elif hook:
            groups[-1][1].append(hook[1])
    return [(heading, symbols) for heading, symbols in groups if symbols]


def fold(symbols):
    """Symbols as code, each with its per-thread twin behind it in brackets."""
    twins = {s for s in symbols if s.endswith("_ptsz") and s.removesuffix("_ptsz") in symbols}
    return ", ".join(f"`{s}`" + (" (`_ptsz`)" if s + "_ptsz" in twins else "")
                     for s in symbols if s not in twins)


def coverage():
    with open(os.path.join(ROOT, "interpose", "core", "driver", "hooks.def"), encoding="utf-8") as file:
        rows = [f"| {heading} | {fold(symbols)} |" for heading, symbols in read_groups(file)]
    return "\n".join(["| why | hooked driver symbols |", "|---|---|", *rows]) + "\n"


def settings(command):
    return subprocess.run([command, "options"], stdout=subprocess.PIPE, text=True, check=True).stdout


def fill(page, place, table):
    path = os.path.join(ROOT, "docs", page)
    with open(path, encoding="utf-8") as file:
        text, n = place.subn(lambda found: found[1] + table + found[3], file.read())
    if n != 1:
        raise SystemExit(f"tables.py: docs/{page} has {n} places for its table")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        raise SystemExit(__doc__.strip())
    fill("guarantees.md", COVERAGE, coverage())
    fill("settings.md", SETTINGS, settings(os.path.join(sys.argv[1] if len(sys.argv) > 1 else "build", "allograft")))
