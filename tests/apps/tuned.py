#!/usr/bin/env python3
"""What `allograft tune` picks for each program of a pack, beside what was best when suite.py measured the same programs.

usage: tuned.py PACK --command allograft --out FOLDER [--results results.json] [--only NAME,...] [--runs N]
                [--budget SECONDS] [--timeout SECONDS]

PACK is what suite.py --pack made, results.json what its --run wrote. Table and tuned.json are in --out. A pick is right
if it is the best way, within --apart of it, or no setting where none was faster than natively by more than that.
Exit status: 0 each pick that can be judged is right, 1 not, 2 bad usage.
"""

import argparse
import json
import os
import subprocess
import sys

import apps
import suite

# The ways of suite.py that tune has as well, by its settings.
SAME_AS = {(): "native",
           ("ALLOGRAFT_POLICY=auto",): "default",
           ("ALLOGRAFT_POLICY=pool",): "pool",
           ("ALLOGRAFT_POLICY=auto", "ALLOGRAFT_GRAPH=all"): "replay",
           ("ALLOGRAFT_POLICY=native", "ALLOGRAFT_GRAPH=all"): "replay"}


def tune(known, options):
    """What tune says of one program; `trouble` where it says nothing."""
    command = [options.command, "tune", "--json", "--runs", str(options.runs), "--timeout", f"{options.timeout:g}", "--",
               *known["command"]]
    done = subprocess.run(command, cwd=os.path.join(options.pack, known["folder"]),
                          env=apps.environment(options, "native"), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    if done.returncode:
        return {"trouble": (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]}
    said = json.loads(done.stdout)
    best = said["trials"][said["best"]]
    native = said["trials"][0]["median_ns"]
    return {"trouble": None, "pick": best["name"], "way": SAME_AS.get(tuple(best["settings"])),
            "gain": native / best["median_ns"] if native and best["median_ns"] else None,
            "trials": {trial["name"]: trial["median_ns"] for trial in said["trials"]},
            "faults": {trial["name"]: trial["fault"] for trial in said["trials"] if trial["fault"]}}


def measured_ways(results):
    """Name -> way -> how many times as fast as natively."""
    return {row["name"]: {way: figures["ratio"] for way, figures in row.get("ways", {}).items()} for row in results}


def judge(row, ways, apart):
    """Adds the best way that was measured, and whether tune's pick is as good; None where nobody can say."""
    row["best"] = row["best_ratio"] = row["right"] = None
    if not ways or row["trouble"]:
        return
    row["best"] = max(ways, key=ways.get)
    row["best_ratio"] = ways[row["best"]]
    if row["best_ratio"] <= 1 + apart:
        row["best"], row["best_ratio"] = "native", 1.0
    if row["way"] in ways:
        row["right"] = ways[row["way"]] >= row["best_ratio"] * (1 - apart)


def table(rows):
    lines = ["| program | tune picks | as fast | best when measured | as fast | |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        if row["trouble"]:
            lines.append(f"| {row['name']} | {row['trouble']} | - | - | - | |")
            continue
        gain = "-" if row["gain"] is None else f"{row['gain']:.2f}x"
        best = "-" if row["best"] is None else f"{row['best_ratio']:.2f}x"
        said = {True: "right", False: "WRONG", None: "not measured"}[row["right"]]
        lines.append(f"| {row['name']} | {row['pick']} | {gain} | {row['best'] or '-'} | {best} | {said} |")
    return lines


def write(rows, options):
    counts = [sum(row.get("right") is value for row in rows) for value in (True, False)]
    text = "\n".join([*table(rows), "", f"{counts[0]} right, {counts[1]} wrong, "
                      f"{len(rows) - sum(counts)} cannot be judged"]) + "\n"
    with open(os.path.join(options.out, "tuned.json"), "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    with open(os.path.join(options.out, "tuned.md"), "w", encoding="utf-8") as file:
        file.write(text)
    return text


def run_all(options):
    os.makedirs(options.out, exist_ok=True)
    known = {name: one for name, one in suite.packed(options.pack).items() if "p" not in one["lists"]}
    ways = {}
    if options.results:
        with open(options.results, encoding="utf-8") as file:
            ways = measured_ways(json.load(file))
    budget, rows = suite.Budget(options.budget), []
    for name, one in suite.chosen(known, options.only).items():
        if not budget.allows(0):
            break
        rows.append({"name": name, **tune(one, options)})
        judge(rows[-1], ways.get(name), options.apart)
        write(rows, options)
    print(write(rows, options), end="")
    return 1 if any(row["right"] is False for row in rows) else 0


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pack", help="what suite.py --pack made")
    parser.add_argument("--command", required=True, help="allograft")
    parser.add_argument("--out", required=True, help="where the results go")
    parser.add_argument("--results", help="what suite.py --run wrote")
    parser.add_argument("--only", type=lambda names: names.split(","), help="some of the programs")
    parser.add_argument("--runs", type=int, default=5, help="runs of each setting")
    parser.add_argument("--budget", type=float, help="seconds, after which no program is begun; without it there is no end")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one run")
    parser.add_argument("--apart", type=float, default=0.03, help="what two ways must differ by to be told apart")
    options = parser.parse_args()
    options.pack = os.path.abspath(options.pack)
    options.command = os.path.abspath(options.command)
    for path in (os.path.join(options.pack, "manifest.json"), options.command, options.results):
        if path and not os.path.exists(path):
            parser.error(f"there is no {path}")
    return options


def main():
    return run_all(parsed())


if __name__ == "__main__":
    sys.exit(main())
