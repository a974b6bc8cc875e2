#!/usr/bin/env python3
"""Random little programs, natively and under each setting in turns: which is slower than natively?

usage: random_turns.py PROGRAM LIBRARY TURNS SEEDS FIRST_SEED ROWS
  PROGRAM is the built random_turns.cu, SEEDS how many seeds there are from FIRST_SEED on
  ROWS: a file of `name native with times` lines, geometric means of all programs, for the table

prints each program that a setting makes slower, or that the default is not within a tenth of the best setting for, and a
last line that says how many. Exit status: 1 where one is slower than natively, 2 where one cannot be run.
"""
import os
import statistics
import subprocess
import sys

WAYS = {"native": None, "default": {}, "sync": {"ALLOGRAFT_FREE": "sync"}, "pool": {"ALLOGRAFT_POLICY": "pool"},
        "replay": {"ALLOGRAFT_GRAPH": "all"}}
JUDGED = ("default", "pool", "replay")
ITERATIONS = 3  # of each way; what disturbs a process only makes it slower, so the quickest counts
SLOWER = 0.98
SLACK_US = 40  # of all turns together, for calls that are the first of their kind
NEAR = 1.1


def run(program, library, seed, turns, way):
    """({figure: value}, what the program does)."""
    env = dict(os.environ)
    if WAYS[way] is not None:
        env.update(WAYS[way], LD_PRELOAD=library, ALLOGRAFT_STATS="off", ALLOGRAFT_COUNTERS="off")
    done = subprocess.run([program, str(seed), str(turns)], env=env, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        print(f"seed {seed}, {way}: ended with {done.returncode}")
        sys.exit(2)
    return {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}, done.stderr.strip()


def measure(program, library, seed, turns):
    """({way: {figure: least}}, what the program does), of all ways in turns."""
    least = {way: {} for way in WAYS}
    what = ""
    for _ in range(ITERATIONS):
        for way, values in least.items():
            found, said = run(program, library, seed, turns, way)
            what = what or said
            for name, value in found.items():
                values[name] = min(value, values.get(name, value))
    return least, what


def slower(least, turns):
    """The (way, figure) that take longer than natively. What a pool takes to start, 8 to 9 ms, is the price of asking
    for one."""
    return [(way, name) for way in JUDGED for name, value in least[way].items()
            if value * SLOWER > least["native"][name] + SLACK_US / turns and (way, name) != ("pool", "whole_us")]


def times(least, name="turn_us"):
    return ", ".join(f"{way} {values[name]:.4g}" for way, values in least.items())


def main():
    program, library, turns, n, first, rows = sys.argv[1:]
    library, turns = os.path.abspath(library), int(turns)
    all_least, missed, far = [], 0, 0
    for seed in range(int(first), int(first) + int(n)):
        least, what = measure(program, library, seed, turns)
        if slower(least, turns):
            least, what = measure(program, library, seed, turns)
        found = slower(least, turns)
        for way, name in found:
            print(f"seed {seed}: {way} is slower ({name}: {times(least, name)}): {what}")
        missed += bool(found)
        if least["default"]["turn_us"] > NEAR * min(values["turn_us"] for values in least.values()):
            far += 1
            print(f"seed {seed}: another way is faster than the default (turn_us: {times(least)}): {what}")
        all_least.append(least)
        sys.stdout.flush()
    means = {way: statistics.geometric_mean(least[way]["turn_us"] for least in all_least) for way in WAYS}
    with open(rows, "w", encoding="utf-8") as file:
        for way in WAYS:
            if way != "native":
                file.write(f"{way}_us {means['native']:.5g} {means[way]:.5g} {means['native'] / means[way]:.3g}\n")
    print(f"{n} programs of {turns} turns, seeds {first} to {int(first) + int(n) - 1}: {missed} slower than natively;"
          f" the default within a tenth of the best setting in {100 * (int(n) - far) / int(n):.0f} %"
          f" and {means['native'] / means['default']:.1f} times as fast as natively (geometric mean)")
    sys.exit(missed > 0)


main()
