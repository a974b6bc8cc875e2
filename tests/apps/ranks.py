#!/usr/bin/env python3
"""A job of several processes natively and with `allograft run` in it: the same output, and a report of each rank.

usage: ranks.py --command allograft --ranks N --out FOLDER [options] -- LAUNCHER ... {run} PROGRAM ...

`{run}` stands where `allograft run` goes: behind a launcher that starts programs by itself, before one that hands its
environment on. Natively there is nothing in its place:

       ranks.py ... --ranks 2 -- mpirun -n 2 {run} python3 tests/apps/python/mpi_heat.py
       ranks.py ... --ranks 2 -- {run} torchrun --nproc-per-node 2 tests/apps/python/ddp_training.py

The job runs twice natively, then once each way. Lines of all ranks are compared, in any order; if they differ natively, only
how the job ended is. FOLDER gets WAY-RANK.json, the page WAY.html of all ranks, and what was printed where it differs.
Exit status: 0 the same every way, with a report of each rank that redirected memory; 1 not; 2 bad usage; 3 it does not run
natively.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import apps


class Job:
    """What one run of it printed and took."""

    def __init__(self, words, timeout):
        before = time.monotonic()
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", timeout=timeout, check=False)
        self.seconds = time.monotonic() - before
        self.status, self.lines, self.err = done.returncode, sorted(done.stdout.splitlines()), done.stderr

    def result(self, compared):
        return self.status, self.lines if compared else None


def words_of(options, way):
    """The command, with `allograft run` in its place."""
    run = []
    if way != "native":
        run = [options.command, "run", "--stats", os.path.join(options.out, way + "-%r.json")]
        for name, value in apps.WAYS[way].items():
            run += ["--set", f"{name}={value}"]
        run.append("--")
    at = options.job.index("{run}")
    return options.job[:at] + run + options.job[at + 1:]


def reports_of(options, way):
    return [os.path.join(options.out, f"{way}-{rank}.json") for rank in range(options.ranks)]


def ranks_missing(options, way):
    """Ranks whose report is not there, or says that nothing was redirected."""
    missing = []
    for rank, path in enumerate(reports_of(options, way)):
        try:
            with open(path, encoding="utf-8") as file:
                if json.load(file)["coverage"]["redirected"]:
                    continue
        except (OSError, ValueError):
            pass
        missing.append(str(rank))
    return missing


def page_of(options, way):
    """The reports of all ranks as one page; None, or why there is none."""
    page = os.path.join(options.out, way + ".html")
    done = subprocess.run([options.command, "report", "--force", "--html", page, *reports_of(options, way)],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]


def native(options):
    """Two runs, and whether they can be compared; None if it does not run."""
    runs = []
    for _ in range(2):
        runs.append(Job(words_of(options, "native"), options.timeout))
        if runs[-1].status:
            said = (runs[-1].err.strip().splitlines() or [""])[-1]
            print(f"natively it ended with {runs[-1].status}: {said}", file=sys.stderr)
            return None
    return runs, runs[0].lines == runs[1].lines


def measure(options, way, wanted, compared):
    """A row of the table, and whether all is as it should be."""
    for path in reports_of(options, way):
        if os.path.exists(path):
            os.remove(path)
    job = Job(words_of(options, way), options.timeout)
    same = job.result(compared) == wanted.result(compared)
    missing = ranks_missing(options, way)
    trouble = f"none of {', '.join(missing)}" if missing else page_of(options, way)
    if not same:
        with open(os.path.join(options.out, way + ".txt"), "w", encoding="utf-8") as file:
            file.write("\n".join([*job.lines, f"-- status {job.status}", job.err]))
    said = "the same" if same else "DIFFERENT"
    return f"| {way} | {job.seconds:.2f} | {said} | {trouble or f'{options.ranks} of {options.ranks}'} |", same and not trouble


def run_all(options):
    os.makedirs(options.out, exist_ok=True)
    made = native(options)
    if not made:
        return 3
    runs, compared = made
    print("| way | seconds | output | reports of ranks |\n| --- | --- | --- | --- |")
    print(f"| native | {runs[1].seconds:.2f} | {len(runs[0].lines)} lines | - |")
    good = True
    for way in options.ways:
        row, right = measure(options, way, runs[0], compared)
        print(row, flush=True)
        good &= right
    if not compared:
        print("natively the output differs from run to run: only how the job ended is compared")
    return 0 if good else 1


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", required=True, help="allograft")
    parser.add_argument("--ranks", type=int, required=True, help="how many processes the launcher starts")
    parser.add_argument("--out", required=True, help="where reports and pages go")
    parser.add_argument("--ways", default=",".join(apps.WAYS), help="of " + ", ".join(apps.WAYS))
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    parser.add_argument("job", nargs="+", metavar="WORD", help="the launcher and the program, with {run} between them")
    options = parser.parse_args()
    options.ways = options.ways.split(",")
    for way in options.ways:
        if way not in apps.WAYS:
            parser.error(f"--ways={way}; there are {', '.join(apps.WAYS)}")
    if options.ranks < 1:
        parser.error(f"--ranks must be 1 or more, not {options.ranks}")
    if options.job.count("{run}") != 1:
        parser.error("the command needs one word {run}, where `allograft run` goes")
    options.command, options.out = os.path.abspath(options.command), os.path.abspath(options.out)
    if not os.path.exists(options.command):
        parser.error(f"there is no {options.command}")
    return options


if __name__ == "__main__":
    sys.exit(run_all(parsed()))
