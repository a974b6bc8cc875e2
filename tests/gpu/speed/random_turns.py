#!/usr/bin/env python3
"""Random little programs, natively and under each setting in turns: which is slower than natively?

usage: random_turns.py PROGRAM LIBRARY SEEDS FIRST_SEED ROWS TURNS...
  PROGRAM is the built random_turns.cu, SEEDS how many seeds there are from FIRST_SEED on
  ROWS: for each of TURNS, ROWS-TURNS becomes a file of `name native with times` lines, geometric means of all programs

prints each program that a setting makes slower, or that the default is not within a tenth of the best way to allocate for,
and a last line for each of TURNS. Replay is something else than a way to allocate, so how often it wins a tenth stands by
itself. Exit status: 1 where one is slower than natively, 2 where one cannot be run.
"""
import os
import statistics
import subprocess
import sys
import threading

WAYS = {"native": None, "default": {}, "sync": {"ALLOGRAFT_FREE": "sync"}, "pool": {"ALLOGRAFT_POLICY": "pool"},
        "replay": {"ALLOGRAFT_GRAPH": "all"}}
JUDGED = ("default", "pool", "replay")
ALLOCATE = ("native", "default", "sync", "pool")
ITERATIONS = 5  # at most, of ways that look wrong: what disturbs a process only makes it slower, so the quickest counts
SLOWER = 0.98
SLACK_US = 40  # of all turns together, for calls that are the first of their kind
NEAR = 1.1
LIMIT_S = 120


class Process:
    """One run of the program, from CUDA's start on."""

    def __init__(self, program, library, seed, turns, way):
        env = dict(os.environ)
        if WAYS[way] is not None:
            env.update(WAYS[way], LD_PRELOAD=library, ALLOGRAFT_STATS="off", ALLOGRAFT_COUNTERS="off")
        self.name = f"seed {seed}, {way}"
        self.process = subprocess.Popen([program, str(seed), *turns], env=env, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.limit = threading.Timer(LIMIT_S, self.process.kill)
        self.limit.daemon = True
        self.limit.start()

    def lines_until(self, word):
        lines = []
        while not lines or lines[-1] != word:
            line = self.process.stdout.readline()
            if not line:
                self.end()
                sys.exit(2)
            lines.append(line.strip())
        return lines[:-1]

    def measure(self):
        """{figure: value}."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return {name: float(value) for name, value in map(str.split, self.lines_until("done"))}

    def end(self):
        what = self.process.communicate()[1].strip()
        self.limit.cancel()
        if self.process.returncode:
            print(f"{self.name}: ended with {self.process.returncode}: {what}")
            sys.exit(2)
        return what


def run_all(program, library, seed, turns, ways):
    """Each way's figures, and what the program does. Starting and ending takes most of their time: together; measured, one
    by one."""
    processes = {way: Process(program, library, seed, turns, way) for way in ways}
    for process in processes.values():
        process.lines_until("ready")
    found = {way: process.measure() for way, process in processes.items()}
    for process in processes.values():
        process.process.stdin.close()
        process.process.stdin = None
    return found, [process.end() for process in processes.values()][0]


class Program:
    """The least of each way's figures so far, and what the program does."""

    def __init__(self, seed, turns):
        self.seed, self.turns, self.what = seed, turns, ""
        self.least = {way: {} for way in WAYS}

    def add(self, found, what):
        self.what = what
        for way, values in found.items():
            for name, value in values.items():
                self.least[way][name] = min(value, self.least[way].get(name, value))

    def slower(self, n):
        """The (way, figure) that take longer than natively. What a pool takes to start, 8 to 9 ms, is the price of asking
        for one."""
        return [(way, name) for way in JUDGED for name in (f"turn_{n}_us", f"whole_{n}_us")
                if self.least[way][name] * SLOWER > self.least["native"][name] + SLACK_US / int(n)
                and (way, name) != ("pool", f"whole_{n}_us")]

    def best(self, n):
        return min(ALLOCATE, key=lambda way: self.least[way][f"turn_{n}_us"])

    def beats_default(self, way, n):
        name = f"turn_{n}_us"
        return self.least["default"][name] > NEAR * self.least[way][name]

    def is_far(self, n):
        return self.beats_default(self.best(n), n)

    def doubtful(self):
        """The ways that have to be measured once more."""
        ways = set()
        for n in self.turns:
            ways.update(*(("native", way) for way, _ in self.slower(n)))
            ways.update({"default", self.best(n)} if self.is_far(n) else ())
        return [way for way in WAYS if way in ways]

    def times(self, name):
        return ", ".join(f"{way} {values[name]:.4g}" for way, values in self.least.items())

    def measure(self, program, library):
        ways = list(WAYS)
        for _ in range(ITERATIONS):
            self.add(*run_all(program, library, self.seed, self.turns, ways))
            ways = self.doubtful()
            if not ways:
                break
        for n in self.turns:
            for way, name in self.slower(n):
                print(f"seed {self.seed}: {way} is slower ({name}: {self.times(name)}): {self.what}")
            if self.is_far(n):
                print(f"seed {self.seed}: another way is faster than the default ({n} turns: {self.times(f'turn_{n}_us')}):"
                      f" {self.what}")
        sys.stdout.flush()


def summarize(programs, n, rows):
    means = {way: statistics.geometric_mean(program.least[way][f"turn_{n}_us"] for program in programs) for way in WAYS}
    with open(f"{rows}-{n}", "w", encoding="utf-8") as file:
        for way in WAYS:
            if way != "native":
                file.write(f"{way}_us {means['native']:.5g} {means[way]:.5g} {means['native'] / means[way]:.3g}\n")
    n_slower = sum(bool(program.slower(n)) for program in programs)
    n_near = sum(not program.is_far(n) for program in programs)
    n_replayed = sum(program.beats_default("replay", n) for program in programs)
    print(f"{len(programs)} programs of {n} turns, seeds {programs[0].seed} to {programs[-1].seed}: {n_slower} slower than"
          f" natively; the default within a tenth of the best way to allocate in {100 * n_near / len(programs):.0f} %,"
          f" beaten by a tenth by replay in {100 * n_replayed / len(programs):.0f} %,"
          f" and {means['native'] / means['default']:.1f} times as fast as natively (geometric mean)")
    return n_slower


def main():
    program, library, n, first, rows, *turns = sys.argv[1:]
    programs = [Program(seed, turns) for seed in range(int(first), int(first) + int(n))]
    for one in programs:
        one.measure(program, os.path.abspath(library))
    sys.exit(sum(summarize(programs, n, rows) for n in turns) > 0)


main()
