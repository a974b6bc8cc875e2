#!/usr/bin/env python3
"""A framework's own tests natively and under Allograft: each that passes natively passes every way.

usage: framework_tests.py --library liballograft.so --out FOLDER [--cupy CHECKOUT] [--rmm CHECKOUT] [--jax CHECKOUT]
                          [--numba] [options]

CHECKOUT has the sources of CuPy, RMM or JAX, in which nothing is changed: its tests run on the one that is installed.
The tests of numba-cuda are those that are installed with it. frameworks.py says which files are run; options that are
not known here are pytest's. Each file is a process of its own, --jobs of them at once; it runs twice natively, then
once every way, and three more times natively where a way differs. Tests that do not pass in each native run are named,
and not compared. A run that crashes, or takes more than --timeout, has passed none of its tests. With --budget, no run
begins after so many seconds. --out has table.md, results.json with the names of all tests that are not compared, and
what pytest printed where a way differs or nothing passes natively.
Exit status: 0 the same every way, 1 not, 2 bad usage, 3 nothing passes natively, 77 there is no GPU.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile

import apps
import frameworks
import pytests
import suite

NATIVE_RUNS, MORE_NATIVE_RUNS = 2, 3
LOOK = """
import ctypes
cuda, n = ctypes.CDLL('libcuda.so.1'), ctypes.c_int()
status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(n))
raise SystemExit(f'CUDA says {status}' if status else 0 if n.value else 'CUDA has no device')
"""


# -- running one file --------------------------------------------------------------------------------------------------

class Run:
    """What one run of a file found: test -> (outcome, why); or what went wrong with it, and nothing."""

    def __init__(self, case, options, way, number):
        tests = case.tests
        self.output = os.path.join(options.scratch, f"{case.name.replace('/', '-')}.{way}.{number}.txt")
        env = {**apps.environment(options, way), "PYTHONDONTWRITEBYTECODE": "1", **tests.environment}
        words = [*tests.words, tests.files[case.file], *options.arguments]
        found, self.trouble = pytests.results(options.python, words, tests.folder, env, self.output, options.timeout)
        self.found = {case.short(test): what for test, what in found.items()}

    def outcome(self, test):
        return self.found.get(test, ("not run", self.trouble or ""))


class Case:
    """One file, and all that is found out about its tests."""

    def __init__(self, tests, file):
        self.tests, self.file = tests, file
        self.name = f"{tests.name}/{file}"
        self.native, self.ways, self.in_time = [], {}, True

    def short(self, test):
        """Without the file, which pytest names by the way to it."""
        module = os.path.basename(self.file).removesuffix(".py").rpartition(".")[2]
        return (test.partition("." + module)[2] if "." + module in test else test).lstrip(".:") or "the file"

    def check(self, options, budget):
        def run(way, number=0):
            self.in_time = self.in_time and budget.allows(0)
            return [Run(self, options, way, number)] if self.in_time else []

        for number in range(NATIVE_RUNS):
            self.native += run("native", number)
        for way in options.ways if self.in_time and self.compared() else []:
            for made in run(way):
                self.ways[way] = made
        for number in range(NATIVE_RUNS, NATIVE_RUNS + MORE_NATIVE_RUNS):
            if self.differing():
                self.native += run("native", number)
        self.keep_outputs(options.out)

    def compared(self):
        """The tests that pass in each native run."""
        return [test for test in (self.native[0].found if self.native else [])
                if all(run.outcome(test)[0] == "passed" for run in self.native)]

    def not_compared(self):
        """The other tests: name -> what becomes of them natively, and why."""
        found = {}
        for test in dict.fromkeys(test for run in self.native for test in run.found):
            outcomes = [run.outcome(test) for run in self.native]
            if len({outcome for outcome, _ in outcomes}) > 1:
                found[test] = "varies", ", ".join(outcome for outcome, _ in outcomes)
            elif outcomes[0][0] != "passed":
                found[test] = outcomes[0]
        return found

    def differing(self):
        """way -> the tests that pass natively and not so: name -> (outcome, why)."""
        tests = self.compared()
        found = {way: {test: run.outcome(test) for test in tests if run.outcome(test)[0] != "passed"}
                 for way, run in self.ways.items()}
        return {way: different for way, different in found.items() if different}

    def keep_outputs(self, folder):
        kept = [self.ways[way] for way in self.differing()]
        for run in self.native[:1] + kept if kept or not self.compared() else []:
            shutil.copy(run.output, folder)

    def trouble(self):
        """Why nothing is compared, or None."""
        if not self.native:
            return "no time was left for it"
        if self.compared():
            return None
        why = next((run.trouble for run in self.native if run.trouble), None)
        failed = next((f": {why}" for outcome, why in self.not_compared().values() if outcome != "passed"), "")
        return "natively " + (why or f"no test passes{failed}")

    def row(self):
        compared, different = len(self.compared()), self.differing()
        return {"file": self.name, "trouble": self.trouble(), "native_runs": len(self.native),
                "passed_natively": compared,
                "ways": {way: compared - len(different.get(way, {})) for way in self.ways},
                "ended": {way: run.trouble for way, run in self.ways.items() if run.trouble},
                "different": different, "not_compared": self.not_compared()}


# -- what is found -----------------------------------------------------------------------------------------------------

def some(names):
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def cells(row, options):
    said = [f"{way}: {row['ended'].get(way) or some(list(tests))}" for way, tests in row["different"].items()]
    return [row["file"], row["passed_natively"], len(row["not_compared"]),
            *(row["ways"].get(way, "-") for way in options.ways), row["trouble"] or "; ".join(said) or "nothing"]


def table(rows, options):
    heads = ["file", "passed natively", "not compared", *options.ways, "what differs"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    total = ["all", sum(row["passed_natively"] for row in rows), sum(len(row["not_compared"]) for row in rows),
             *(sum(row["ways"].get(way, 0) for row in rows) for way in options.ways),
             f"{sum(bool(row['different']) for row in rows)} files"]
    for row in [*(cells(row, options) for row in rows), total]:
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |")
    return lines


def remarks(rows):
    """The tests that differ, one a line unless the whole run went wrong, and some of those that are not compared."""
    lines, others = [], []
    for row in rows:
        for way, tests in row["different"].items():
            named = [f"{test}: natively passed, {way} {outcome}: {why}" for test, (outcome, why) in tests.items()]
            if way in row["ended"]:
                named = [f"{way}: {row['ended'][way]}; {len(tests)} tests have not passed"]
            lines += [f"DIFFERENT: {row['file']}: {one}" for one in named]
        for outcome, said in (("failed", "fail natively"), ("varies", "vary natively")):
            names = [test for test, (what, _) in row["not_compared"].items() if what == outcome]
            others += [f"{row['file']}: {len(names)} {said}: {some(names)}"] if names else []
    return lines + others


def write(cases, options):
    rows = [case.row() for case in cases]
    lines = [*table(rows, options), "", *remarks(rows)]
    late = [case.name for case in cases if not case.in_time]
    if late:
        lines.append(f"no time was left for {len(late)} files, or for some of their ways: {some(late)}")
    with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    with open(os.path.join(options.out, "table.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return rows, lines


def check_all(cases, options):
    budget = suite.Budget(options.budget)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as workers:
        checks = [workers.submit(case.check, options, budget) for case in cases]
        for done in concurrent.futures.as_completed(checks):
            done.result()
            # What is known if this is ended.
            write([case for case, check in zip(cases, checks) if check.done()], options)
    rows, lines = write(cases, options)
    print("\n".join(lines))
    if not any(row["passed_natively"] for row in rows):
        print("nothing passes natively")
        return 3
    return 1 if any(row["different"] for row in rows) else 0


# -- words -------------------------------------------------------------------------------------------------------------

def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False,
                                     epilog="All other arguments are pytest's.")
    parser.add_argument("--library", required=True, help="liballograft.so")
    parser.add_argument("--out", required=True, help="a folder for the results")
    for name, said in (("cupy", "CuPy"), ("rmm", "RMM"), ("jax", "JAX")):
        parser.add_argument("--" + name, metavar="CHECKOUT", help=f"run the tests of this checkout of {said}")
    parser.add_argument("--numba", action="store_true", help="run the installed tests of numba-cuda")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="only such files, as cupy/cuda_tests/*")
    parser.add_argument("--sample", action="store_true", help="a fifteenth of CuPy's tests, the same ones each time")
    parser.add_argument("--ways", default=",".join(apps.WAYS), help="of " + ", ".join(apps.WAYS))
    parser.add_argument("--jobs", type=int, default=4, help="files at once")
    parser.add_argument("--budget", type=float, help="seconds after which no run begins; without it there is no end")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run of a file")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has frameworks and pytest")
    options, options.arguments = parser.parse_known_args()
    options.ways = options.ways.split(",")
    if not set(options.ways) <= set(apps.WAYS):
        parser.error(f"--ways={','.join(options.ways)}; there are {', '.join(apps.WAYS)}")
    if options.jobs < 1:
        parser.error(f"--jobs must be 1 or more, not {options.jobs}")
    checkouts = {name: getattr(options, name) for name in frameworks.TESTS_OF if getattr(options, name)}
    if not checkouts and not options.numba:
        parser.error("--cupy, --rmm, --jax or --numba is needed")
    needed = [options.library, shutil.which(options.python) or options.python]
    for path in needed + [os.path.join(folder, frameworks.TESTS_OF[name]) for name, folder in checkouts.items()]:
        if not os.path.exists(path):
            parser.error(f"there is no {path}")
    return options, parser


def main():
    options, parser = parsed()
    looked = subprocess.run([options.python, "-c", LOOK], stderr=subprocess.PIPE, text=True, check=False)
    if looked.returncode:
        print(f"there is no GPU: {looked.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory(prefix="frameworks-") as options.scratch:
        cases = [Case(tests, file) for tests in frameworks.asked_for(options) for file in tests.files]
        cases = [case for case in cases if fnmatch.fnmatch(case.name, options.only)]
        if not cases:
            parser.error(f"no file is like --only={options.only}")
        os.makedirs(options.out, exist_ok=True)
        return check_all(cases, options)


if __name__ == "__main__":
    sys.exit(main())
