#!/usr/bin/env python3
"""Medians of figures measured natively and with the library in turn.

usage: medians.py NATIVE... -- WITH...   (files of `name value` lines)
prints one line per figure: name, native median, median with the library, how many times better.
Names that end in _per_s count as better when larger, all others when smaller.
"""
import statistics
import sys


def figures(paths):
    all_values = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                name, value = line.split()
                all_values.setdefault(name, []).append(float(value))
    return {name: statistics.median(values) for name, values in all_values.items()}


def main():
    middle = sys.argv.index("--")
    native, grafted = figures(sys.argv[1:middle]), figures(sys.argv[middle + 1:])
    for name, value in native.items():
        other = grafted[name]
        better = other / value if name.endswith("_per_s") else value / other
        print(f"{name} {value:.6g} {other:.6g} {better:.3g}")


main()
