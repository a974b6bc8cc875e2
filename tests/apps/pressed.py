#!/usr/bin/env python3
"""Public programs on less device memory than they need: the same output, and how much faster ALLOGRAFT_OOM=page is than
spill.

usage: pressed.py PACK --library liballograft.so --out FOLDER [--shares 0.75,0.5] [--runs N] [--only NAME,...]
                  [--budget SECONDS] [--timeout SECONDS]

PACK is what suite.py --pack made; those of its programs run that have arguments for this (`pressed` in programs.py). What
a program needs is the most that it has at a time, as the report of a run without a limit says, and each share of it is an
ALLOGRAFT_LIMIT, under which spill and page run in turns. A program's own timer counts where it has one. Table and
pressed.json are in --out, with the output of what was not the same.
Exit status: 0 the same everywhere and page nowhere slower than spill, 1 not, 2 bad usage.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

import apps
import suite

MECHANISMS = ("spill", "page")
APART = 0.03  # two runs of the same differ by that
OF_PAGES = ("moves", "moved_in_bytes", "moved_out_bytes", "in_place_bytes", "move_ns", "movable_on_host")


def read_report(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def peak_of(report):
    return max((one["peak_bytes"] for one in report["devices"]), default=0)


class Pressed(suite.Case):
    """A program, and its runs under less memory than it needs."""

    def __init__(self, known, options):
        super().__init__({**known, "command": known["pressed"]}, options.pack)
        self.options = options
        self.reports = os.path.join(options.out, suite.folder_of(self.name) + ".reports")
        self.peak = None
        self.moved = {}  # way -> what the report says of moves

    def run_with(self, settings):
        """A run, and the report of that of its processes which had the most memory."""
        shutil.rmtree(self.reports, ignore_errors=True)
        os.makedirs(self.reports)
        found = {"ALLOGRAFT_STATS": os.path.join(self.reports, "%p.json"), "ALLOGRAFT_LOG": "error", **settings}
        made = apps.Run(self.recipe, apps.preloaded(self.options, found), self.options.timeout)
        reports = [read_report(os.path.join(self.reports, name)) for name in os.listdir(self.reports)]
        if not reports:
            said = (made.err.strip().splitlines() or ["no word of it"])[-1]
            raise apps.Unusable(f"{settings or 'by default'}: it ended with {made.status} and left no report: {said}")
        return made, max(reports, key=peak_of)

    def find_peak(self):
        """Two native runs, and one that says what the program needs."""
        for _ in range(2):
            self.run(self.options, "native")
        self.must_have_passed()
        made, report = self.run_with({})
        self.checked["default"] = [made]
        self.peak = peak_of(report)
        if not self.peak:
            raise apps.Unusable("it has no memory of the device")

    def press(self, turn):
        ways = [(share, mechanism) for share in self.options.shares for mechanism in MECHANISMS]
        for share, mechanism in apps.in_turn(ways, turn):
            way = f"{mechanism} {share:g}"
            made, report = self.run_with({"ALLOGRAFT_LIMIT": str(int(self.peak * share)), "ALLOGRAFT_OOM": mechanism})
            self.timed.setdefault(way, []).append(made)
            pressure = report.get("pressure", {})
            self.moved[way] = {key: pressure[key] for key in OF_PAGES if key in pressure}

    def try_all(self, budget):
        try:
            self.find_peak()
            for turn in range(self.options.runs):
                if turn and not budget.allows(0):
                    break
                self.press(turn)
        except (apps.Unusable, OSError, subprocess.TimeoutExpired) as trouble:
            self.trouble = str(trouble)

    def seconds(self, runs):
        """By the program's own timer, where all have one."""
        own = [run.timer for run in [*self.native, *sum(self.timed.values(), [])]]
        return statistics.median(run.seconds if None in own else run.timer for run in runs)

    def pressed_row(self):
        row = {"name": self.name, "command": self.recipe["command"], "trouble": self.trouble, "peak_bytes": self.peak}
        if self.native:
            row["output"] = self.said(self.options) if not self.trouble or self.timed else None
            row["native"] = self.seconds(self.native)
        row["seconds"] = {way: self.seconds(runs) for way, runs in self.timed.items()}
        row["whole_seconds"] = {way: statistics.median(run.seconds for run in runs) for way, runs in self.timed.items()}
        row["moved"] = self.moved
        row["gains"] = {f"{share:g}": row["seconds"][f"spill {share:g}"] / row["seconds"][f"page {share:g}"]
                        for share in self.options.shares
                        if {f"spill {share:g}", f"page {share:g}"} <= set(row["seconds"])}
        return row


def table(rows, options):
    heads = [f"{mechanism} at {share:g}" for share in options.shares for mechanism in MECHANISMS]
    lines = ["| " + " | ".join(["program", "needs", "output", "native s", *heads,
                                *(f"spill / page at {share:g}" for share in options.shares)]) + " |",
             "|" + " --- |" * (4 + 3 * len(options.shares))]
    for row in rows:
        if row["trouble"]:
            lines.append(f"| {row['name']} | - | {row['trouble'].splitlines()[0]} |" + " - |" * (1 + 3 * len(options.shares)))
            continue
        cells = [f"{row['seconds'][head.replace(' at', '')]:.3f}" for head in heads]
        gains = [f"{row['gains'][f'{share:g}']:.2f}" for share in options.shares]
        lines.append("| " + " | ".join([row["name"], f"{row['peak_bytes'] / 2**30:.2f} GiB", row["output"],
                                        f"{row['native']:.3f}", *cells, *gains]) + " |")
    return lines


def digest(rows, options):
    lines = []
    for share in options.shares:
        gains = [row["gains"][f"{share:g}"] for row in rows if f"{share:g}" in row["gains"]]
        if gains:
            lines.append(f"at {share:g}: {len(gains)} programs, page {statistics.geometric_mean(gains):.2f} times as fast as "
                         f"spill in the geometric mean, {min(gains):.2f} at least")
    return lines


def write(cases, options):
    rows = [case.pressed_row() for case in cases]
    text = "\n".join([*table(rows, options), "", *digest(rows, options)]) + "\n"
    with open(os.path.join(options.out, "pressed.json"), "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    with open(os.path.join(options.out, "pressed.md"), "w", encoding="utf-8") as file:
        file.write(text)
    return rows, text


def run_all(options):
    os.makedirs(options.out, exist_ok=True)
    known = {name: one for name, one in suite.packed(options.pack).items() if "pressed" in one}
    budget, cases = suite.Budget(options.budget), []
    for one in suite.chosen(known, options.only).values():
        if not budget.allows(0):
            break
        cases.append(Pressed(one, options))
        cases[-1].try_all(budget)
        write(cases, options)  # what is known if this is ended
        if cases[-1].native and not cases[-1].same():
            suite.keep_outputs(cases[-1], options.out)
    rows, text = write(cases, options)
    print(text, end="")
    bad = [row for row in rows if row["trouble"] or row["output"].startswith("DIFFERENT") or
           min(row["gains"].values(), default=0) < 1 - APART]
    return 1 if bad or not rows else 0


def shares(text):
    found = [float(word) for word in text.split(",")]
    if not all(0 < share < 1 for share in found):
        raise ValueError(text)
    return found


def parsed():
    parser = argparse.ArgumentParser(description=" ".join(__doc__.split("\n\n")[0].split()))
    parser.add_argument("pack", help="what suite.py --pack made")
    parser.add_argument("--library", required=True, help="liballograft.so")
    parser.add_argument("--out", required=True, help="where the results go")
    parser.add_argument("--shares", type=shares, default=[0.75, 0.5], help="of what a program needs, between 0 and 1")
    parser.add_argument("--runs", type=int, default=1, help="turns")
    parser.add_argument("--only", type=lambda names: names.split(","), help="some of the programs")
    parser.add_argument("--budget", type=float, help="seconds, after which nothing is begun; without it there is no end")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one run")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs must be 1 or more, not {options.runs}")
    options.pack, options.ways = os.path.abspath(options.pack), []
    for path in (os.path.join(options.pack, "manifest.json"), options.library):
        if not os.path.exists(path):
            parser.error(f"there is no {path}")
    return options


def main():
    return run_all(parsed())


if __name__ == "__main__":
    sys.exit(main())
