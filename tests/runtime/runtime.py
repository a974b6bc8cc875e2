#!/usr/bin/env python3
"""NVIDIA's own CUDA runtime on the stub driver: every look-up goes through Allograft.

Usage: runtime.py --stub DIR --observer SO --hooks hooks.def --lookups driver.def
                [--library liballograft.so] [--path DIR]... PROGRAM

Runs PROGRAM (built by nvcc, unmodified) with an observer before the library, which writes down
what the program really gets. Without --library it is the control run: all answers are the stub's.
Exit status: 0 passed, 77 nothing to test, 1 failed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

STUB = "libcuda.so.1"
TOO_OLD = 35  # cudaErrorInsufficientDriver
# The runtime whose look-ups driver.def lists. Others ask for more or less.
LISTED_RUNTIME = 13000


class Failure(Exception):
    pass


def check(condition, message):
    if not condition:
        raise Failure(message)


def hooked_symbols(path, when=None):
    """Always, or those that only some settings need."""
    row = rf"^AG_HOOK_IF\(\w+, (\w+),(?:[^()]|\(\w+\))*\b{when}\)" if when else r"^AG_HOOK\(\w+, (\w+),"
    with open(path) as f:
        return set(re.findall(row, f.read(), re.M))


def trampolines(path, kinds):
    row = rf"^AG_(?:UNHOOKED\((\w+), TRAMPOLINE(?:{kinds})\b|CALL\(\w+, (\w+), [^)]*\bTRAMPOLINE(?:{kinds})\b)"
    with open(path) as f:
        return {unhooked or called for unhooked, called in re.findall(row, f.read(), re.M)}


def listed_lookups(path):
    with open(path) as f:
        rows = re.findall(r"^(LEGACY|PER_THREAD)\((\w+), (\d+)\)", f.read(), re.M)
    return [("cu" + base, int(since), 2 if kind == "PER_THREAD" else 0)
            for kind, base, since in rows]


def read_stub_log(path):
    """(name, version, flags) -> (symbol, offset): what the driver has for each question."""
    answers = {}
    with open(path) as f:
        for line in f:
            name, version, flags, symbol, offset = line.split()
            answers[name.strip('"'), int(version), int(flags)] = symbol, offset
    return answers


def read_observer_log(path):
    """List of (lookup path, (name, version, flags), library, symbol, offset), as the program got it."""
    seen = []
    with open(path) as f:
        for line in f:
            lookup, name, version, flags, library, symbol, offset = line.split()
            question = name.strip('"'), int(version), int(flags)
            seen.append((lookup, question, library, symbol, offset))
    return seen


class Run:
    """One run of the program, with what stub, observer and report say about it."""

    def __init__(self, options, directory, version, settings):
        stub_log = os.path.join(directory, "stub.log")
        observer_log = os.path.join(directory, "observer.log")
        report = os.path.join(directory, "report.json")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ALLOGRAFT_")}
        environment.update(
            LD_LIBRARY_PATH=":".join([options.stub] + options.path),
            LD_PRELOAD=options.observer,
            STUB_DRIVER_VERSION=str(version),
            STUB_LOG=stub_log,
            OBSERVER_LOG=observer_log,
        )
        if options.library:
            environment["LD_PRELOAD"] += ":" + options.library
            environment["OBSERVER_NEXT"] = options.library
            environment["ALLOGRAFT_STATS"] = report
            environment.update(settings)
        done = subprocess.run([options.program], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60)
        self.output, self.errors, self.status = done.stdout, done.stderr, done.returncode
        check(os.path.exists(observer_log), f"no look-up was seen\n{self.output}{self.errors}")
        self.stub = read_stub_log(stub_log)
        self.seen = read_observer_log(observer_log)
        self.report = None
        if os.path.exists(report):
            with open(report) as f:
                self.report = json.load(f)

    def lookups(self):
        """The look-ups that have an answer; NVIDIA's runtime also asks for the empty name."""
        return [s for s in self.seen if s[0] == "get_proc_address" and s[1][0] != ""]


def code_of(run, call):
    found = re.search(rf"^{call} (\d+)$", run.output, re.M)
    check(found, f"the program did not say what {call} returned:\n{run.output}{run.errors}")
    return int(found.group(1))


def check_answers(run, hooked, library, passed):
    """Hooked symbols come from the library, the same symbol, and so do trampolines; where there are any,
    what no list knows comes from it, too. All else is the stub's own answer."""
    check(len(run.lookups()) > 300, f"only {len(run.lookups())} look-ups seen")
    substituted = 0
    for lookup, question, got_library, got_symbol, got_offset in run.seen:
        name = question[0]
        if name == "":
            check(got_library == "-", "the empty name has an answer")
            continue
        symbol, offset = run.stub.get(question, (name, None))
        if library and symbol in hooked:
            check(got_library == library and got_symbol == symbol,
                  f"{lookup} {question}: expected {symbol} of {library}, "
                  f"got {got_symbol} of {got_library}")
            substituted += 1
        elif library and symbol in passed:
            check(got_library == library and got_symbol == symbol,
                  f"{lookup} {question}: expected a trampoline to {symbol}, "
                  f"got {got_symbol} of {got_library}")
        elif library and passed and symbol == "-":
            check(got_library == library,
                  f"{lookup} {question}: expected a spare trampoline, got {got_symbol} of {got_library}")
        elif lookup == "get_proc_address":
            check(got_library == STUB and got_offset == offset,
                  f"{lookup} {question}: expected the driver's own answer at {offset}, "
                  f"got {got_symbol} of {got_library} at {got_offset}")
        else:
            check(got_library == STUB and got_symbol == name,
                  f"{lookup} {question}: got {got_symbol} of {got_library}")
    return substituted


def check_report(run, substituted):
    check(run.report is not None, f"no report was written\n{run.errors}")
    coverage = run.report["coverage"]
    asked = len([s for s in run.seen if s[0] == "get_proc_address" and s[2] != "-"])
    names = len([s for s in run.seen if s[0] == "dlsym"])
    check(coverage["intercepted"] is True, "the report says that nothing was intercepted")
    check(coverage["lookups"]["get_proc_address"] == asked,
          f"the report counts {coverage['lookups']['get_proc_address']} look-ups, {asked} were made")
    check(coverage["lookups"]["dlsym"] == names,
          f"the report counts {coverage['lookups']['dlsym']} dlsym calls, {names} were made")
    check(coverage["substituted"] == substituted,
          f"the report counts {coverage['substituted']} substitutions, {substituted} were seen")


def check_same_questions(run, lookups):
    """The mini runtime's list is what NVIDIA's runtime asks, in its order."""
    asked = [s[1] for s in run.lookups() if s[1][0] != "cuGetExportTable"]
    if asked == lookups:
        return
    at = next((i for i, (a, b) in enumerate(zip(asked, lookups)) if a != b),
              min(len(asked), len(lookups)))
    raise Failure(f"driver.def differs from what the runtime asks, from look-up {at} on: "
                  f"{asked[at:at + 2]} against {lookups[at:at + 2]}")


def test(options, directory):
    always = hooked_symbols(options.hooks)
    launches = hooked_symbols(options.hooks, "LAUNCHES")
    early = hooked_symbols(options.hooks, "EARLY")
    ordered = hooked_symbols(options.hooks, "ORDERED")
    work = hooked_symbols(options.hooks, "(?:WORK(?:_OR_WAITS)?|UNREGISTERS|COPIED|COPY_WAITS)")
    graphs = hooked_symbols(options.hooks, "GRAPH(?:_OR_WAITS)?")
    waits = hooked_symbols(options.hooks, r"(?:\w+_OR_WAITS|UNREGISTERS|COPIED|COPY_WAITS)")
    copied = hooked_symbols(options.hooks, "(?:COPIED|COPY_WAITS)")
    check(always and launches and early and ordered and work and graphs and waits, "no hooks listed")
    library = os.path.basename(options.library) if options.library else None
    for version, expected, settings in ((11000, TOO_OLD, {}), (13000, None, {}),
                                        (13000, None, {"ALLOGRAFT_PREFETCH": "launch"}),
                                        (13000, None, {"ALLOGRAFT_FREE": "ordered"}),
                                        (13000, None, {"ALLOGRAFT_FREE": "sync", "ALLOGRAFT_POLICY": "native"}),
                                        (13000, None, {"ALLOGRAFT_FREE": "ordered", "ALLOGRAFT_WAITS": "1"}),
                                        (13000, None, {"ALLOGRAFT_GRAPH": "all"})):
        run = Run(options, directory, version, settings)
        replayed, watched = "ALLOGRAFT_GRAPH" in settings, not settings
        hooked = always | (early | launches if "ALLOGRAFT_POLICY" not in settings else set())
        hooked |= (work if watched or replayed else set()) | (graphs if replayed else set())
        hooked |= ordered if settings.get("ALLOGRAFT_FREE") != "sync" else set()
        hooked |= waits if "ALLOGRAFT_WAITS" in settings else set()
        hooked |= copied if settings.get("ALLOGRAFT_COPY") != "driver" else set()
        kinds = "|_WORK|_MEMORY|_MAPPING|_CODE|_REFERENCE" if replayed else "_WORK|_MEMORY"
        passed = trampolines(options.hooks, kinds)
        if not replayed and not watched:
            passed = set()
        check(run.status == 0, f"the program ended with {run.status}\n{run.output}{run.errors}")
        code = code_of(run, "cudaMalloc")
        check(code != 0 if expected is None else code == expected,
              f"cudaMalloc on driver version {version} returned {code}")
        substituted = check_answers(run, hooked, library, passed)
        if library:
            check(substituted > 20, f"only {substituted} look-ups were substituted")
            check_report(run, substituted)
        if options.runtime_version == LISTED_RUNTIME:
            check_same_questions(run, listed_lookups(options.lookups))
        asked = {run.stub[s[1]][0] for s in run.lookups()}
        check(launches & asked, "no launch was looked up")
        check(not replayed or len(passed & asked) > 50, "few trampolines were looked up")
        print(f"driver version {version}: {len(run.lookups())} look-ups, "
              f"{substituted} substituted, cudaMalloc returned {code}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stub", required=True)
    parser.add_argument("--observer", required=True)
    parser.add_argument("--hooks", required=True)
    parser.add_argument("--lookups", required=True)
    parser.add_argument("--library")
    parser.add_argument("--path", action="append", default=[])
    parser.add_argument("--runtime-version", type=int, default=0)
    parser.add_argument("program")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        try:
            test(options, directory)
        except Failure as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
