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
import statistics
import sys

LARGER = ("_per_s", "_to_marked")


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
    return {name: (max if name.endswith(LARGER) else min)(run[name] for run in runs) for name in runs[0]}


def paired(runs):
    """What the process says in which the ratio is the median one; of an even number the lower one of two."""
    both = [{}, {}]
    for name in runs[0][0]:
        ratios = sorted((grafted[name] / native[name] if native[name] else 1, i)
                        for i, (native, grafted) in enumerate(runs))
        for side, values in zip(both, runs[ratios[(len(ratios) - 1) // 2][1]]):
            side[name] = values[name]
    return both


def kept(sides, way):
    """What was measured; where one file counts, that is not the spread of it."""
    rows = {name: {side: [run[name] for run in runs] for side, runs in sides.items()} for name in sides["native"][0]}
    return {"of": way.lstrip("-"), "rows": rows}


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
        native, grafted = paired(list(zip(*sides.values())))
    else:
        native, grafted = (summed_up(runs, way, by) for runs in sides.values())
    for name, value in native.items():
        other = grafted[name]
        better = 1.0
        if value > 0 and other > 0:
            better = other / value if name.endswith(LARGER) else value / other
        print(f"{name} {value:.6g} {other:.6g} {better:.3g}")
    if keep:
        with open(keep, "w", encoding="utf-8") as file:
            json.dump(kept(sides, way), file)


main()
