#!/usr/bin/env python3
"""Steps of a program that learns, natively and under a limit: is it as fast as wanted once it has learnt, and until then?

usage: steps.py NATIVE WITH MORE   (files with a line "ms N TIME" for each step, in their order)
Exit status: 0 the later steps take at most MORE ms more than natively, the first five at most three times as long as
these; 1 not.
"""
import statistics
import sys

FIRST, WORSE = 5, 3  # steps until it has learnt; times that those may take on average


def times(path):
    with open(path, encoding="utf-8") as file:
        return [float(line.split()[2]) for line in file if line.startswith("ms ")]


def main():
    native, limited = (times(path) for path in sys.argv[1:3])
    wanted = float(sys.argv[3])  # what has to move takes so long whatever the device computes meanwhile
    usual, later = (statistics.median(steps[FIRST:]) for steps in (native, limited))
    first = statistics.mean(limited[:FIRST])
    print(f"native {usual:.0f} ms a step, with {later:.0f} ({later - usual:.0f} more, {wanted:g} wanted), "
          f"the first {FIRST} {first:.0f} on average ({first / later:.2f} of the later ones, {WORSE} wanted)")
    sys.exit(later > usual + wanted or first > WORSE * later)


main()
