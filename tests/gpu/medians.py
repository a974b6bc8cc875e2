#!/usr/bin/env python3
"""Medians of figures measured natively and with the library in turn, or others of them.

usage: medians.py [--keep FILE] [--median|--least|--paired|--where-least NAME] NATIVE... -- WITH...
  (files of `name value` lines)
  --keep FILE: what was measured, as JSON, for results.py: name -> native and with -> the values
  --least: the best of each figure, as a host that is slow for a while only makes it worse
  --paired: each process has measured both, so what they differ by is the same for both: of each figure what the process
    says in which the ratio is the median one
  --where-least NAME: all figures as they are in the file where that of this name is least; for differences,
    which have no least of their own, of processes that a busy host made slower or not
prints one line per figure: name, native median, median with the library, how many times better.
Names that end in _per_s or _to_marked count as better when larger, all others when smaller. Where one of both
is not above 0, a difference of two times, there is no such ratio, and 1 stands for it.
"""
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "docs"))
from results import LARGER_IS_BETTER, middle_pair  # noqa: E402


def figures(paths):
    """One dict of names and values per file."""
    runs = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            runs.append({name: float(value) for name, value in map(str.split, file)})
    return runs


def summed_up(runs, way, name):
    if way == "--where-least":
        return min(runs, key=lambda run: run[name])
    if way != "--least":
        return {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    return {name: (max if name.endswith(LARGER_IS_BETTER) else min)(run[name] for run in runs) for name in runs[0]}


def paired(rows):
    """Both sides as the process says in which the ratio is the median one."""
    return [{name: row[side][middle_pair(row)] for name, row in rows.items()} for side in ("native", "with")]


def rows_of(sides):
    """What was measured; where one file counts, that is not the spread of it."""
    return {name: {side: [run[name] for run in runs] for side, runs in sides.items()} for name in sides["native"][0]}


def main():
    paths, way, by, keep = sys.argv[1:], "--median", None, None
    while paths[0].startswith("--"):
        word = paths.pop(0)
        if word == "--keep":
            keep = paths.pop(0)
        else:
            way = word
        if word == "--where-least":
            by = paths.pop(0)
    middle = paths.index("--")
    sides = {"native": figures(paths[:middle]), "with": figures(paths[middle + 1:])}
    if way == "--paired":
        native, grafted = paired(rows_of(sides))
    else:
        native, grafted = (summed_up(runs, way, by) for runs in sides.values())
    for name, value in native.items():
        other = grafted[name]
        better = 1.0
        if value > 0 and other > 0:
            better = other / value if name.endswith(LARGER_IS_BETTER) else value / other
        print(f"{name} {value:.6g} {other:.6g} {better:.3g}")
    if keep:
        with open(keep, "w", encoding="utf-8") as file:
            json.dump({"of": way.lstrip("-"), "rows": rows_of(sides)}, file)


main()
