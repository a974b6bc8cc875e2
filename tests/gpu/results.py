#!/usr/bin/env python3
"""What a run of the suite measured, as one JSON file that docs/performance.py reads.

usage: results.py --begin OUT GPU ITERATIONS [OPTION]...   writes OUT/machine.json: where and of what the run is;
                                                           GPU is nvidia-smi's line `name, driver`
       results.py --resume OUT                             is OUT a run of these sources that can go on?
       results.py OUT                                      writes OUT/results.json of that, of OUT/figures, of the
                                                           OUT/*.values beside it, and of OUT/verdicts

tables: name -> `of` (what the figure of several values is: median, least) and rows: name -> column -> the values, one
for each process. A row whose values were not kept has the one figure of the table in each column.
"""
import datetime
import json
import os
import platform
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
NOT_MEASURED = {"times"}  # computed


def said(*command):
    """What a command prints, or None."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
                              timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def commit():
    """Of the sources; None where they are no checkout."""
    name = said("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD")
    return name and name + ("-changed" if said("git", "-C", ROOT, "status", "--porcelain", "-uno") else "")


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return re.search(r"^model name\s*: (.*)$", file.read(), re.M)[1]
    except (OSError, TypeError):
        return platform.machine()


def begin(folder, gpu, iterations, options):
    name, driver = gpu.rsplit(", ", 1)
    cuda = re.search(r"release ([\d.]+)", said("nvcc", "--version") or "")
    machine = {"schema": "allograft-results/1", "suite": "gpu", "machine": name, "driver": driver,
               "cuda": cuda and cuda[1], "processor": processor(), "processors": len(os.sched_getaffinity(0)),
               "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"), "commit": commit(),
               "iterations": int(iterations), "options": " ".join(options)}
    with open(os.path.join(folder, "machine.json"), "w", encoding="utf-8") as file:
        json.dump(machine, file, indent=1)


def resumable(folder):
    """None, or why not."""
    try:
        with open(os.path.join(folder, "machine.json"), encoding="utf-8") as file:
            begun = json.load(file)["commit"]
    except FileNotFoundError:
        return f"there is no run to resume in {folder}"
    return None if begun == commit() else f"{folder} is a run of {begun}, and this is {commit()}"


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def number(cell):
    try:
        return float(cell)
    except ValueError:
        return None


def kept(folder, table):
    path = os.path.join(folder, table + ".values")
    if not os.path.exists(path):
        return {"of": "median", "rows": {}}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def tables(folder):
    found, columns, values = {}, [], {}
    for line in lines(os.path.join(folder, "figures")):
        name, *cells = line.split("\t")
        if name.startswith("["):
            table, columns = name[1:-1], cells
            values = kept(folder, table)
            found[table] = {"of": values["of"], "rows": {}}
            continue
        row = {column: [number(cell)] for column, cell in zip(columns, cells)
               if column not in NOT_MEASURED and number(cell) is not None}
        row.update(values["rows"].get(name, {}))
        found[table]["rows"][name] = row
    return found


def verdicts(folder):
    words = [line.split(" ", 1) for line in lines(os.path.join(folder, "verdicts"))]
    return {"passed": sum(word == "ok" for word, _ in words), "skipped": sum(word == "skip" for word, _ in words),
            "failed": [rest.split(":")[0] for word, rest in words if word == "FAIL"]}


def main():
    words = sys.argv[1:]
    if words[:1] == ["--begin"] and len(words) > 3:
        begin(words[1], words[2], words[3], words[4:])
        return
    if words[:1] == ["--resume"] and len(words) == 2:
        sys.exit(resumable(words[1]))
    if len(words) != 1 or words[0].startswith("-"):
        print(f"results.py: a folder is needed, not {' '.join(words) or 'nothing'}; usage: results.py OUT, where OUT is"
              " BUILD_DIR/gpu-out of tests/gpu/run.sh", file=sys.stderr)
        sys.exit(2)
    folder = words[0]
    if not os.path.exists(os.path.join(folder, "machine.json")):
        sys.exit(f"results.py: {folder}: tests/gpu/run.sh has left nothing there: there is no machine.json")
    with open(os.path.join(folder, "machine.json"), encoding="utf-8") as file:
        results = json.load(file)
    results.update(verdicts=verdicts(folder), tables=tables(folder))
    with open(os.path.join(folder, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
