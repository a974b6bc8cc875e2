#!/usr/bin/env python3
"""Prints the table of hooked driver symbols in docs/guarantees.md, from interpose/core/driver/hooks.def.

Usage: tools/coverage_table.py [hooks.def]
"""

import os
import re
import sys

HEADING = re.compile(r"^/\* --- (.*?) --- \*/$")
HOOK = re.compile(r"^AG_HOOK(?:_IF)?\(\w+, (\w+),")
DEFAULT = os.path.join(os.path.dirname(__file__), os.pardir, "interpose", "core", "driver", "hooks.def")


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


def table(lines):
    rows = [f"| {heading} | {fold(symbols)} |" for heading, symbols in read_groups(lines)]
    return "\n".join(["| why | hooked driver symbols |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1] if len(sys.argv) > 1 else DEFAULT, encoding="utf-8") as file:
        sys.stdout.write(table(file))
