#!/usr/bin/env python3
"""Many public programs natively and under Allograft: the same output, and how long they take, in the time there is.

usage: suite.py --list
       suite.py --pack FOLDER --source RECIPE=CHECKOUT ... [--only NAME,...] [--no-build]
       suite.py --run FOLDER --library liballograft.so --out FOLDER [--budget SECONDS] [--only NAME,...]

The programs are those of programs.py. --pack builds them and puts each with the files it reads into a folder of its own
within FOLDER, beside manifest.json: FOLDER can be carried to a machine that has a GPU but neither sources nor compiler.
--run first runs each program natively and every way, --together at once, and compares what they print; half of the budget
is for this, or all of it with --no-timing. Then, one at a time, it measures in turns: first --first turns of each program,
then two more, up to --runs, so that the number is odd whenever the budget ends; what these runs print is compared, too.
Table and results.json are in --out, with the output of what was not the same. Under the ways that guard, something found
counts as another output.
Programs of Python are measured as children of one process each (forked.py), from behind their imports on; a program
that does not say what it imports is only compared.
Exit status: 0 the same everywhere and nothing slower than --least by default, 1 not, 2 bad usage.
"""

import argparse
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import apps
import forked
import programs
import recipes

TIMED = {"replay": "bp"}  # way -> the only lists for which it is measured; the default way is for all


# -- making a pack -----------------------------------------------------------------------------------------------------

def folder_of(name):
    return name.replace("/", "-")


def entry(name, program, recipe, command):
    """What is known of a program where its sources are not."""
    known = {"name": name, "folder": folder_of(name), "command": command, "lists": program["lists"],
             "noise": recipe.get("noise", []) + program.get("noise", [])}
    if "pressed" in program:
        known["pressed"] = [command[0], *program["pressed"].split()]
    for key in ("oracle", "timer", "files", "imports"):
        if key in program or key in recipe:
            known[key] = program.get(key, recipe.get(key))
    return known


def pack(name, program, options):
    """Builds the program and copies what a run needs."""
    checkout = os.path.abspath(options.sources[name.partition("/")[0]])
    recipe = apps.filled(name, checkout, options.arch)
    if not options.no_build:
        apps.build(recipe, checkout)
    target = os.path.join(options.pack, folder_of(name))
    os.makedirs(target, exist_ok=True)
    binary = os.path.join(recipe["folder"], program.get("binary") or recipe["binary"])
    words = [os.path.basename(binary), *program.get("arguments", "").split()]
    shutil.copy(binary, target)
    if shutil.which("strip"):
        subprocess.run(["strip", os.path.join(target, words[0])], stderr=subprocess.DEVNULL, check=False)
    for read in program.get("reads", []):
        place = os.path.normpath(os.path.join(target, read))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy(os.path.join(recipe["folder"], read), place)
    return entry(name, program, recipe, ["./" + words[0], *words[1:]])


def make_pack(options):
    os.makedirs(options.pack, exist_ok=True)
    manifest, missing = [], []
    for name, program in chosen(programs.PROGRAMS, options.only).items():
        try:
            if name.partition("/")[0] not in options.sources:
                raise apps.Unusable("no --source for it")
            manifest.append(pack(name, program, options))
        except (apps.Unusable, OSError) as trouble:
            missing.append(name)
            print(f"{name}: {trouble}", file=sys.stderr)
    with open(os.path.join(options.pack, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
    print(f"{len(manifest)} programs are in {options.pack}, {len(missing)} are not")
    return 1 if missing else 0


def packed(folder):
    """What the manifest of a pack says: name -> program."""
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
        return {one["name"]: one for one in json.load(file)}


def chosen(named, only):
    unknown = set(only or []) - set(named)
    if unknown:
        raise SystemExit(apps.usage(f"--only={','.join(sorted(unknown))}: there is no such program"))
    return {name: what for name, what in named.items() if not only or name in only}


# -- running one -------------------------------------------------------------------------------------------------------

class Budget:
    """Whether there are seconds left."""

    def __init__(self, seconds):
        self.end = None if seconds is None else time.monotonic() + seconds

    def allows(self, seconds):
        return self.end is None or time.monotonic() + seconds <= self.end


class ForkedRun(apps.Run):
    """A run in a child of a parent that has imported what the program imports."""

    parents = {}  # modules -> the parent that has them
    refused = {}  # modules -> why there is none

    def parent(self, modules, library):
        if modules in self.refused:
            raise self.refused[modules]
        if modules not in self.parents or self.parents[modules].process.poll() is not None:
            try:
                self.parents[modules] = forked.Parent(library, modules)
            except OSError as trouble:
                self.refused[modules] = trouble
                raise
        return self.parents[modules]

    def execute(self, recipe, environment, timeout):
        parent = self.parent(tuple(recipe["imports"]), environment["LD_PRELOAD"])
        return parent.run(recipe["command"], recipe["folder"], environment, timeout)

    @classmethod
    def close(cls):
        while cls.parents:
            cls.parents.popitem()[1].close()


class Case:
    """One program, and all that is found out about it."""

    def __init__(self, known, folder):
        self.recipe = {**known, "folder": os.path.join(folder, known["folder"])}
        self.name, self.lists = known["name"], known["lists"]
        self.native = []  # all native runs, for telling what varies
        self.checked = {}  # way -> the runs of which only the output counts
        self.timed = {}  # way -> the runs made in turns
        self.child_seconds = None  # of a native run behind its imports
        self.trouble = None

    def can_be_timed(self):
        return "p" not in self.lists or "imports" in self.recipe

    def run(self, options, way, forks=False):
        environment = apps.environment(options, way)
        if forks and way == "native":
            environment.update(forked.NATIVE, LD_PRELOAD=os.path.abspath(options.library))
        try:
            made = (ForkedRun if forks else apps.Run)(self.recipe, environment, options.timeout)
        except subprocess.TimeoutExpired as trouble:
            raise apps.Unusable(f"{way}: it took more than {trouble.timeout:g} s") from trouble
        if way == "native":
            self.native.append(made)
        return made

    def must_have_passed(self):
        """Natively."""
        for made in self.native:
            if made.status or not made.passed:
                said = (made.err.strip().splitlines() or made.out.strip().splitlines() or [""])[-1]
                own = "passed" if made.passed else "failed"
                raise apps.Unusable(f"natively it ended with {made.status}, {own}: {said}")

    def check(self, options, budget):
        """Two native runs, one of each way; more native ones where a way differs, to see whether that is its nature."""
        try:
            for _ in range(2):
                self.run(options, "native")
            self.must_have_passed()
            for way in options.ways:
                if budget.allows(0):
                    self.checked[way] = [self.run(options, way)]
            for _ in range(3):
                if self.same() or not budget.allows(0):
                    break
                self.run(options, "native")
        except (apps.Unusable, OSError) as trouble:
            self.trouble = str(trouble)

    def ways(self, options):
        """The ways that are measured."""
        return [way for way in options.ways
                if way == "default" or options.time_all or (way in TIMED and set(TIMED[way]) & set(self.lists))]

    def try_child(self, options):
        """A native run in the first child, which is slower than the others. Whole processes of Python, several at a time,
        take so much longer than what is measured that one would think there is no time for it."""
        try:
            self.child_seconds = self.run(options, "native", forks=True).seconds
            self.must_have_passed()
        except (apps.Unusable, OSError) as trouble:
            self.trouble = str(trouble)

    def cost(self, options):
        """Seconds of one turn, as far as is known."""
        known = [runs[-1].seconds for runs in self.timed.values()]
        if not known and self.child_seconds is not None:
            known = [self.child_seconds]
        known = known or [run.seconds for run in self.native] or [1]
        return statistics.mean(known) * (1 + len(self.ways(options)))

    def turn(self, options):
        try:
            for way in apps.in_turn(["native", *self.ways(options)], len(self.timed.get("native", []))):
                self.timed.setdefault(way, []).append(self.run(options, way, forks="imports" in self.recipe))
                self.must_have_passed()
        except (apps.Unusable, OSError) as trouble:
            self.trouble = str(trouble)

    # -- what is found

    def differing_ways(self):
        """The ways of which a run was not as natively, apart from what varies natively."""
        loose = apps.differing(self.native)
        wanted = apps.comparable(self.native[0].result(), loose)
        return [way for way in {**self.checked, **self.timed}
                if any(apps.comparable(run.result(), loose) != wanted
                       for run in self.checked.get(way, []) + self.timed.get(way, []))]

    def same(self):
        return not self.differing_ways()

    def said(self, options):
        """In words, how the outputs compare, and under which ways if not under all."""
        different = self.differing_ways()
        loose = apps.differing(self.native)
        if different:
            return "DIFFERENT: " + ", ".join(different)
        if loose is None:
            return "not deterministic, status and own check the same"
        seen = [way for way in options.ways if way in self.checked or way in self.timed]
        under = "" if seen == options.ways else f" under {', '.join(seen) or 'nothing yet'}"
        return f"the same{under}" + (f", {len(loose)} lines not deterministic" if loose else "")

    def row(self, options):
        trouble = self.trouble or (None if self.native else "no time was left for it")
        row = {"name": self.name, "lists": self.lists, "command": self.recipe["command"], "trouble": trouble}
        if not trouble:
            row.update(output=self.said(options), compared_ways=list(self.checked), native_runs=len(self.native),
                       lines_compared=len(self.native[0].kept) - len(apps.differing(self.native) or []))
        turns = min((len(runs) for runs in self.timed.values()), default=0)
        row["turns"] = turns
        if turns and not trouble:
            row["ways"] = {way: measured(self.timed["native"], runs) for way, runs in self.timed.items()}
        return row


def measured(native, runs):
    """Figures of one way."""
    seconds = statistics.median(run.seconds for run in runs)
    found = {"seconds": seconds, "all": [round(run.seconds, 4) for run in runs],
             "ratio": statistics.median(run.seconds for run in native) / seconds, "timer_ratio": None}
    own = [[run.timer for run in made] for made in (native, runs)]
    if all(None not in timers for timers in own) and statistics.median(own[1]):
        found["timer_ratio"] = statistics.median(own[0]) / statistics.median(own[1])
    return found


# -- running all -------------------------------------------------------------------------------------------------------

def in_order(cases):
    """From each list in turn its next program, so that what was left out for want of time is not all of one kind.

    Those whose first list it is come first in each."""
    def waiting_for(one):
        return sorted((case for case in cases if one in case.lists), key=lambda case: case.lists.index(one))

    waiting = {one: waiting_for(one) for one in sorted(set("".join(case.lists for case in cases)))}
    ordered = []
    while any(waiting.values()):
        for left in waiting.values():
            while left and left[0] in ordered:
                left.pop(0)
            if left:
                ordered.append(left.pop(0))
    return ordered


def check_all(cases, options, budget):
    with concurrent.futures.ThreadPoolExecutor(options.together) as workers:
        checks = [workers.submit(lambda one: budget.allows(0) and one.check(options, budget), case) for case in cases]
        for done in concurrent.futures.as_completed(checks):
            done.result()
            # What is known if this is ended.
            write([case for case, check in zip(cases, checks) if check.done()], options)


def time_all(cases, options, budget):
    """--first turns of each, then two more of each, and so on."""
    turns = 0
    while turns < options.runs:
        more = 2 if turns else options.first
        for case in cases:
            if not turns and "imports" in case.recipe and not case.trouble and budget.allows(0):
                case.try_child(options)
            if (case.trouble or not case.can_be_timed() or len(case.timed.get("native", [])) < turns or
                    not budget.allows(more * case.cost(options))):
                continue
            for _ in range(more):
                case.turn(options)
            write(cases, options)  # what is known if this is ended
        turns += more


def keep_outputs(case, folder):
    """What was printed where it was not the same."""
    for way in ["native", *case.differing_ways()]:
        runs = case.native if way == "native" else case.checked.get(way, []) + case.timed.get(way, [])
        for i, run in enumerate(runs):
            with open(os.path.join(folder, f"{folder_of(case.name)}.{way}.{i}.txt"), "w", encoding="utf-8") as file:
                file.write(f"{run.out}\n-- status {run.status}\n{run.err}")


def ratio(row, way, key="ratio"):
    value = row.get("ways", {}).get(way, {}).get(key)
    return "-" if value is None else f"{value:.3f}"


def table(rows):
    lines = ["| program | lists | output | native s | turns | default | replay | own timer: default | replay |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        if row["trouble"]:
            said, native = row["trouble"].splitlines()[0], "-"
        else:
            said = row["output"]
            native = f"{row['ways']['native']['seconds']:.3f}" if "ways" in row else "-"
        lines.append(f"| {row['name']} | {row['lists']} | {said} | {native} | {row['turns']} | {ratio(row, 'default')} | "
                     f"{ratio(row, 'replay')} | {ratio(row, 'default', 'timer_ratio')} | "
                     f"{ratio(row, 'replay', 'timer_ratio')} |")
    return lines


def digest(rows, options):
    """One line for each list and way."""
    lines = []
    for one in sorted(set("".join(row["lists"] for row in rows))):
        for way in options.ways:
            ratios = [row["ways"][way]["ratio"] for row in rows if one in row["lists"] and way in row.get("ways", {})]
            if ratios:
                mean = statistics.geometric_mean(ratios)
                lines.append(f"list {one}, {way}: {len(ratios)} programs, geometric mean {mean:.3f}, "
                             f"least {min(ratios):.3f}, {sum(r < options.least for r in ratios)} below {options.least:g}")
    for said, n in (("the same", sum(r.get("output", "").startswith("the same") for r in rows)),
                    ("not deterministic", sum(r.get("output", "").startswith("not") for r in rows)),
                    ("DIFFERENT", sum(r.get("output", "").startswith("DIFFERENT") for r in rows)),
                    ("not run", sum(bool(r["trouble"]) for r in rows))):
        lines.append(f"{said}: {n}")
    return lines


def write(cases, options):
    rows = [case.row(options) for case in cases]
    text = "\n".join(table(rows) + [""] + digest(rows, options)) + "\n"
    with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    with open(os.path.join(options.out, "table.md"), "w", encoding="utf-8") as file:
        file.write(text)
    return rows, text


def run_all(options):
    os.makedirs(options.out, exist_ok=True)
    programs_there = chosen(packed(options.run), options.only)
    cases = in_order([Case(one, os.path.abspath(options.run)) for one in programs_there.values()])
    budget = Budget(options.budget)
    if not options.no_check:
        check_all(cases, options, budget if options.no_timing else Budget(options.budget and options.budget / 2))
        write(cases, options)
    if not options.no_timing:
        try:
            time_all(cases, options, budget)
        finally:
            ForkedRun.close()
    for case in cases:
        if case.native and not case.same():
            keep_outputs(case, options.out)
    rows, text = write(cases, options)
    print(text, end="")
    slow = [row for row in rows if row.get("ways", {}).get("default", {"ratio": 1e9})["ratio"] < options.least]
    return 1 if slow or any(row["trouble"] or row["output"].startswith("DIFFERENT") for row in rows) else 0


# -- words -------------------------------------------------------------------------------------------------------------

def parsed():
    ways = [*apps.WAYS, *apps.GUARDS, *apps.WITHOUT]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="what there is")
    what.add_argument("--pack", metavar="FOLDER", help="build the programs and put them here")
    what.add_argument("--run", metavar="FOLDER", help="run what --pack made")
    parser.add_argument("--source", action="append", default=[], metavar="RECIPE=CHECKOUT")
    parser.add_argument("--only", type=lambda names: names.split(","), help="some of the programs")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--no-build", action="store_true", help="pack what is built already")
    parser.add_argument("--library", help="liballograft.so")
    parser.add_argument("--out", help="where the results go")
    parser.add_argument("--budget", type=float, help="seconds for all of it; without it there is no end")
    parser.add_argument("--runs", type=int, default=7, help="turns at most, an odd number")
    parser.add_argument("--first", type=int, default=1, help="turns of each program before any has more, an odd number")
    parser.add_argument("--no-check", action="store_true", help="measure only, in the ways that are measured")
    parser.add_argument("--no-timing", action="store_true", help="compare output only")
    parser.add_argument("--time-all", action="store_true", help="measure every way of every program, for tuned.py")
    parser.add_argument("--together", type=int, default=4, help="programs at once while only output is compared")
    parser.add_argument("--ways", default=",".join(apps.WAYS), help="of " + ", ".join(ways))
    parser.add_argument("--least", type=float, default=0.99, help="as fast as natively, at least, under `default`")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one run")
    options = parser.parse_args()
    options.ways = options.ways.split(",")
    if not set(options.ways) <= set(ways):
        parser.error(f"--ways={','.join(options.ways)}; there are {', '.join(ways)}")
    if options.no_check and options.no_timing:
        parser.error("--no-check and --no-timing leave nothing to do")
    options.sources = dict(source.partition("=")[::2] for source in options.source)
    if options.pack and not (options.sources and set(options.sources) <= set(recipes.RECIPES)):
        parser.error("--pack needs --source RECIPE=CHECKOUT, with a recipe of recipes.py")
    if options.run:
        if not options.library or not options.out:
            parser.error("--run needs --library and --out")
        if options.runs % 2 == 0 or options.first % 2 == 0 or not 1 <= options.first <= options.runs:
            parser.error(f"--runs and --first must be odd, not {options.runs} and {options.first}")
        for path in (os.path.join(options.run, "manifest.json"), options.library):
            if not os.path.exists(path):
                parser.error(f"there is no {path}")
    return options


def main():
    options = parsed()
    if options.list:
        for name, program in programs.PROGRAMS.items():
            print(f"{name:32} {program['lists']:5} {program.get('arguments', '')}")
        return 0
    return make_pack(options) if options.pack else run_all(options)


if __name__ == "__main__":
    sys.exit(main())
