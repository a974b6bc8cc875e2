#!/usr/bin/env python3
"""Allograft beside other allocators: the same work by each of them in turn, and the medians.

usage: run.py --bench PROGRAM --library liballograft.so [--trace FILE]... [--iterations N] [--out FILE]
              [--without NAME=VALUE]...

With --without, the contestants are Allograft as it is, and with each of these settings: what a mechanism wins.

PROGRAM is what build.sh makes. A trace has RMM's columns; one whose name ends in .xz is unpacked first. Each
iteration runs every row by every contestant, one process after the other, so that all see the same machine.
The table goes to standard output, with the least and the most of each figure in the file --out, as JSON.
Exit status: 0 measured, 1 some contestant died, or has wrong words though it is exact, 2 bad usage.
"""

import argparse
import datetime
import json
import lzma
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

# Contestant -> the heap of the bench, and the settings under which Allograft is preloaded.
OURS = {"allograft": {}, "allograft pool": {"ALLOGRAFT_POLICY": "pool"},
        "allograft managed": {"ALLOGRAFT_POLICY": "managed"}}
# They return a block that may still be written to, unless the caller waits: see `hurried`.
BY_STREAM = re.compile("async|rmm-|torch")

ROWS = [
    ["pairs", "512", "1"], ["pairs", "1048576", "1"], ["pairs", "1073741824", "1"],
    ["pairs", "65536", "2"], ["pairs", "65536", "4"], ["pairs", "65536", "8"], ["pairs", "65536", "16"],
    ["turn"], ["cold", "4096"], ["cold", "65536"], ["live", "1000"], ["live", "1000000"], ["hurried"],
]
QUICK = [["pairs", "512", "1"], ["pairs", "65536", "2"], ["turn"], ["cold", "4096"], ["live", "100"], ["hurried"]]


class Died(Exception):
    pass


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("ALLOGRAFT_") and k != "LD_PRELOAD"}


def run(options, contestant, words):
    """name -> value of one process."""
    env = clean_environment()
    heap = contestant
    if contestant.split()[0] == "allograft":
        heap = "cudamalloc"
        settings = dict([contestant.split()[1].split("=", 1)]) if "=" in contestant else OURS[contestant]
        env.update(settings, LD_PRELOAD=os.path.abspath(options.library), ALLOGRAFT_STATS="off")
    elif contestant == "native":
        heap = "cudamalloc"
    done = subprocess.run([options.bench, heap, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=options.timeout, check=False)
    if done.returncode:
        raise Died((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[0])
    return {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}


def contestants(options):
    if options.without:
        return ["allograft", *(f"allograft {setting}" for setting in options.without)]
    listed = subprocess.run([options.bench, "heaps"], env=clean_environment(), stdout=subprocess.PIPE, text=True,
                            check=True).stdout.split()
    return ["native", *OURS, *sorted(name for name in listed if name != "cudamalloc")]


def unpacked(path, folder):
    """Where the bench can read the trace: it knows no compression."""
    if not path.endswith(".xz"):
        return path
    target = os.path.join(folder, os.path.basename(path)[:-len(".xz")])
    with lzma.open(path) as packed, open(target, "wb") as file:
        shutil.copyfileobj(packed, file)
    return target


def rows(options):
    built_in = [] if options.only_traces else QUICK if options.quick else ROWS
    found = [(words[0], words) for words in built_in]
    for path in options.trace:
        name = os.path.splitext(os.path.basename(path))[0]
        for threads in ("1", "16"):
            found.append((name, ["trace", path, threads]))
        found.append((name, ["checked", path, "1"]))
    return found


def measure(options):
    """contestant -> figure -> its values; and what went wrong, once for each contestant and row."""
    values, troubles = {}, {}
    for iteration in range(options.iterations):
        for label, words in rows(options):
            for contestant in contestants(options):
                if (contestant, tuple(words)) in troubles:
                    continue
                try:
                    figures = run(options, contestant, words)
                except (Died, subprocess.TimeoutExpired) as trouble:
                    troubles[contestant, tuple(words)] = str(trouble)
                    continue
                for name, value in figures.items():
                    if words[0] in ("trace", "checked"):
                        name = f"{label} {name}"
                    values.setdefault(contestant, {}).setdefault(name, []).append(value)
        print(f"iteration {iteration + 1} of {options.iterations}", file=sys.stderr)
    return values, troubles


def table(values):
    names = [name for figures in values.values() for name in figures]
    lines = [["figure", *values], ["---"] * (len(values) + 1)]
    for name in dict.fromkeys(names):
        lines.append([name] + [f"{statistics.median(figures[name]):.6g}" if name in figures else "-"
                               for figures in values.values()])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def wrong(values):
    """Contestants that promise the bytes without being told of streams, or were told, and have others."""
    found = []
    for contestant, figures in values.items():
        for name, all_of_it in figures.items():
            told = name != "hurried_wrong_words"
            if name.endswith("wrong_words") and any(all_of_it) and (told or not BY_STREAM.search(contestant)):
                found.append(f"{contestant}: {name} {max(all_of_it):.0f}")
    return found


def machine():
    asked = "name,driver_version"
    try:
        line = subprocess.run(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"], stdout=subprocess.PIPE,
                              text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        line = "no GPU"
    try:
        commit = subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(__file__)), "rev-parse", "--short=12", "HEAD"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = None  # the sources are no checkout
    return {"gpu": line, "processors": os.cpu_count(), "date": datetime.date.today().isoformat(), "commit": commit}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, metavar="PROGRAM", help="what build.sh makes")
    parser.add_argument("--library", required=True, help="liballograft.so")
    parser.add_argument("--trace", action="append", default=[], metavar="FILE",
                        help="an allocation trace (`allograft trace --csv rmm`), plain or .xz; may be repeated")
    parser.add_argument("--iterations", type=int, default=5, help="how often every row is run (default 5)")
    parser.add_argument("--without", action="append", default=[], metavar="NAME=VALUE",
                        help="a setting of Allograft, beside Allograft as it is and nobody else; may be repeated")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one process")
    parser.add_argument("--quick", action="store_true", help="few rows, for a look")
    parser.add_argument("--only-traces", action="store_true", help="the traces, and none of the other rows")
    parser.add_argument("--out", help="the results, as JSON")
    options = parser.parse_args()
    if options.iterations < 1:
        parser.error(f"--iterations must be 1 or more, not {options.iterations}")
    if options.only_traces and not options.trace:
        parser.error("--only-traces needs a --trace")
    if options.timeout <= 0:
        parser.error(f"--timeout must be above 0, not {options.timeout:g}")
    for setting in options.without:
        if not re.fullmatch(r"ALLOGRAFT_\w+=\S+", setting):
            parser.error(f"--without must be ALLOGRAFT_NAME=VALUE, not {setting}")
    for path in [options.bench, options.library, *options.trace]:
        if not os.path.exists(path):
            parser.error(f"there is no {path}")
    if options.out:  # before hours are spent on what it is to hold
        try:
            open(options.out, "a", encoding="utf-8").close()
        except OSError as error:
            parser.error(f"--out {options.out}: {error.strerror}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            for i, path in enumerate(options.trace):
                options.trace[i] = unpacked(path, folder)
        except (lzma.LZMAError, EOFError) as error:
            parser.error(f"{path} cannot be unpacked: {error}")
        values, troubles = measure(options)
    print(table(values))
    for (contestant, words), why in troubles.items():
        print(f"died: {contestant}, {' '.join(words)}: {why}")
    for line in wrong(values):
        print(f"wrong: {line}")
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "iterations": options.iterations, "values": values,
                       "died": [[who, *words, why] for (who, words), why in troubles.items()]}, file, indent=1)
    return 1 if troubles or wrong(values) else 0


if __name__ == "__main__":
    sys.exit(main())
