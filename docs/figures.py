#!/usr/bin/env python3
"""The measured figures of docs/figures.json, as the tables of the pages and as the chart of the README.

usage: figures.py           writes the tables into the pages, and the chart (which needs matplotlib)
       figures.py --check   names what differs from docs/figures.json; needs nothing but Python

A table stands behind a line `<!-- figures: NAME -->`. The gain of a row is computed of its first two figures,
the baseline and ours. The chart says which figures it was made of.
"""

import glob
import json
import os
import re
import sys

import chart

DOCS = os.path.dirname(os.path.abspath(__file__))
CHART = os.path.join(DOCS, "images", "speed.svg")
TABLE = re.compile(r"<!-- figures: (\w+) -->\n((?:\|[^\n]*\n)*)")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def load():
    return json.loads(read(os.path.join(DOCS, "figures.json")))


def value(cell):
    """(number, unit) of a figure such as `3,077 us`."""
    number, unit = cell.split()
    return float(number.replace(",", "")), unit


def gain(baseline, ours):
    """How many times better, with two digits: of rates the larger is better, of times the smaller."""
    (before, unit), (after, same) = value(baseline), value(ours)
    if unit != same:
        raise ValueError(f"{baseline} and {ours} have different units")
    times = after / before if unit.endswith("/s") else before / after
    return f"{float(f'{times:.2g}'):,.0f}x" if times >= 9.95 else f"{times:.1f}x"


def table(figures):
    """The Markdown of one table: label, figures, gain, and what stands beside for comparison."""
    gained, also, n = figures.get("gain"), figures.get("also"), len(figures["columns"])
    lines = [figures["columns"] + ([gained] if gained else []) + ([also] if also else [])]
    lines.append(["---"] * len(lines[0]))
    for row in figures["rows"]:
        cells = row["cells"]
        lines.append(cells[:n] + ([gain(cells[1], cells[2])] if gained else []) + cells[n:])
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines).replace("|  |", "| |")


def charted(figures):
    """(label, baseline, ours, gain) of each row that is in the chart, with the times in microseconds."""
    rows = [row for part in figures.values() for row in part["rows"] if "chart" in row]
    for row in rows:
        if not all(cell.endswith(" us") for cell in row["cells"][1:3]):
            raise ValueError(f"{row['chart']}: the chart has microseconds only")
    return [(row["chart"], *row["cells"][1:3], gain(*row["cells"][1:3])) for row in rows]


def pages():
    return [os.path.join(DOCS, os.pardir, "README.md")] + sorted(glob.glob(os.path.join(DOCS, "*.md")))


def problems():
    figures, found, seen = load(), [], set()
    for page in pages():
        for name, text in TABLE.findall(read(page)):
            seen.add(name)
            if name not in figures or text != table(figures[name]):
                found.append(f"{os.path.relpath(page, os.path.join(DOCS, os.pardir))}: "
                             f"the table {name} is not that of docs/figures.json; run docs/figures.py")
    found += [f"docs/figures.json: no page shows {name}" for name in figures if name not in seen]
    if chart.made_of(charted(figures)) not in (read(CHART) if os.path.exists(CHART) else ""):
        found.append("docs/images/speed.svg: not made of these figures; run docs/figures.py with matplotlib")
    return found


def write():
    figures = load()
    for page in pages():
        text = read(page)
        new = TABLE.sub(lambda match: f"<!-- figures: {match[1]} -->\n{table(figures[match[1]])}", text)
        if new != text:
            with open(page, "w", encoding="utf-8") as file:
                file.write(new)
    chart.draw(charted(figures), CHART)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(problems()) or 0)
    write()
