#!/usr/bin/env python3
"""Medians of figures measured natively and with the library in turn, or with --least their least.

usage: medians.py [--median|--least] NATIVE... -- WITH...   (files of `name value` lines)
prints one line per figure: name, native median, median with the library, how many times better.
Names that end in _per_s count as better when larger, all others when smaller. Where one of both
is not above 0, a difference of two times, there is no such ratio, and 1 stands for it.
"""
import statistics
import sys


def figures(paths, summary):
    all_values = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                name, value = line.split()
                all_values.setdefault(name, []).append(float(value))
    return {name: summary(values) for name, values in all_values.items()}


def main():
    paths = sys.argv[1:]
    summary = statistics.median
    if paths[0] in ("--median", "--least"):
        summary = min if paths.pop(0) == "--least" else statistics.median
    middle = paths.index("--")
    native, grafted = (figures(side, summary) for side in (paths[:middle], paths[middle + 1:]))
    for name, value in native.items():
        other = grafted[name]
        better = 1.0
        if value > 0 and other > 0:
            better = other / value if name.endswith("_per_s") else value / other
        print(f"{name} {value:.6g} {other:.6g} {better:.3g}")


main()
