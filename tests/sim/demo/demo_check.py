#!/usr/bin/env python3
"""The demonstration program on the simulated driver: same output as on a GPU, whatever the order in
which the simulation runs its work, and with Allograft as without.

Usage: demo_check.py [--library liballograft.so --policy P] --expected FILE PROGRAM

With --library every allocation must have been redirected and given back.
Exit status: 0 passed, 1 failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

SEEDS = range(1, 6)
# One field to begin with, then a field and the counts in each of 100 steps; the program frees all.
ALLOCATIONS = 201


def fail(message):
    print(f"FAILED: {message}", file=sys.stderr)
    sys.exit(1)


def run(options, seed, report):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ALLOGRAFT_")}
    environment["SIM_SEED"] = str(seed)
    if options.library:
        environment["LD_PRELOAD"] = options.library
        environment["ALLOGRAFT_POLICY"] = options.policy
        environment["ALLOGRAFT_STATS"] = report
    done = subprocess.run([options.program], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    with open(options.expected) as f:
        expected = f.read()
    if done.returncode != 0:
        fail(f"seed {seed}: ended with {done.returncode}\n{done.stdout}{done.stderr}")
    if done.stdout != expected:
        fail(f"seed {seed}: printed\n{done.stdout}instead of\n{expected}{done.stderr}")


def check_report(options, path):
    if not os.path.exists(path):
        fail("no report was written")
    with open(path) as f:
        report = json.load(f)
    if report["coverage"]["intercepted"] is not True:
        fail("the report says that nothing was intercepted")
    if report["coverage"]["lookups"]["unmatched"] != 0:
        fail("some look-ups for hooked names gave addresses that the library does not know")
    counts = report["devices"][0]["placements"][options.policy]
    for name, expected in (("allocs", ALLOCATIONS), ("frees", ALLOCATIONS), ("current_bytes", 0)):
        if counts[name] != expected:
            fail(f"the report says {name} {counts[name]} for {options.policy}, not {expected}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library")
    parser.add_argument("--policy", default="pool")
    parser.add_argument("--expected", required=True)
    parser.add_argument("program")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = os.path.join(directory, "report.json")
        for seed in SEEDS:
            run(options, seed, report)
            if options.library:
                check_report(options, report)
    print(f"{len(SEEDS)} orders of work, one output")


if __name__ == "__main__":
    main()
