#!/usr/bin/env python3
"""A public program natively and under Allograft, in turns: the same output, and how long it takes.

usage: apps.py RECIPE CHECKOUT --library liballograft.so [options]
       apps.py --list

RECIPE is one of recipes.py; `cloverleaf/clover_bm4_short.in` names its input, `hecbench/adam` its program. CHECKOUT is a
folder with its sources, which are built there unless --no-build. The table says, for each way, the median of the whole
run, how many times as fast as natively that is, and the same by the program's own timer.
Exit status: 0 the same everywhere and nothing slower than --least, 1 not, 2 bad usage, 3 it does not build or run natively.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import time

import recipes

WAYS = {
    "default": {},
    "pool": {"ALLOGRAFT_POLICY": "pool"},
    "managed": {"ALLOGRAFT_POLICY": "pool", "ALLOGRAFT_RULES": "size>=64MiB: managed"},
    "replay": {"ALLOGRAFT_GRAPH": "all"},
}
# Not for speed: a clean program runs as ever, and nothing is found. What they find is on stderr.
GUARDS = {guard: {"ALLOGRAFT_GUARD": guard, "ALLOGRAFT_STATS": "stderr"} for guard in ("poison", "canary", "page")}
FOUND = "what guards found"
# The default without one mechanism: what that is worth.
WITHOUT = {
    "no-slabs": {"ALLOGRAFT_SLAB": "0"},
    "no-crew": {"ALLOGRAFT_COPY": "driver"},
}


class Unusable(Exception):
    """Natively it is not to be had."""


def noise_of(recipe):
    return re.compile("|".join(f"(?:{one})" for one in recipe.get("noise", ["(?!)"])))


class Run:
    """What one run printed, wrote and took."""

    def __init__(self, recipe, environment, timeout):
        self.status, self.out, self.err, self.seconds = self.execute(recipe, environment, timeout)
        timers = re.findall(recipe["timer"], self.out, re.S) if recipe.get("timer") else []
        self.timer = sum(map(float, timers)) if timers else None
        self.passed = not recipe.get("oracle") or re.search(recipe["oracle"], self.out) is not None
        noise = noise_of(recipe)
        self.kept = [line for line in self.out.splitlines() if not noise.search(line)]
        self.found = FOUND in self.err
        self.digests = [digest(os.path.join(recipe["folder"], path)) for path in recipe.get("files", [])]

    def execute(self, recipe, environment, timeout):
        """(status, standard output, standard error, seconds) of a process of its own."""
        before = time.perf_counter()
        done = subprocess.run(recipe["command"], cwd=recipe["folder"], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                              timeout=timeout, check=False)
        return done.returncode, done.stdout, done.stderr, time.perf_counter() - before

    def result(self):
        """What must be the same."""
        return self.status, self.passed, self.kept, self.digests, self.found


def digest(path):
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as trouble:
        return trouble.strerror


def filled(name, checkout, arch):
    """The recipe with its program, its architecture and its folders."""
    base, _, program = name.partition("/")
    if base not in recipes.RECIPES:
        raise SystemExit(usage(f"no recipe is named {base}; there are {', '.join(sorted(recipes.RECIPES))}"))
    recipe = dict(recipes.RECIPES[base])
    program = program or recipe.get("program", "")
    if not program and "{program}" in json.dumps([recipe["build"], recipe["run"], recipe.get("folder")]):
        raise SystemExit(usage(f"{base} needs a program: {base}/NAME"))

    def fill(text):
        return text.replace("{program}", program).replace("{arch}", arch)

    recipe["build"] = [fill(command) for command in recipe["build"]]
    recipe["run"] = fill(recipe["run"])
    recipe["folder"] = os.path.join(checkout, fill(recipe.get("folder", ".")))
    if "binary" in recipe:
        recipe["binary"] = fill(recipe["binary"])
    return recipe


def usage(said):
    print(f"apps.py: {said}", file=sys.stderr)
    return 2


def build(recipe, checkout):
    for command in recipe["build"]:
        done = subprocess.run(["bash", "-c", command], cwd=checkout, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        if done.returncode:
            raise Unusable(f"`{command}` ended with {done.returncode}:\n" + "\n".join(done.stdout.splitlines()[-15:]))


def command_of(recipe):
    """The words of the command; what only finds it is not measured."""
    done = subprocess.run(["bash", "-c", "printf '%s\\n' " + recipe["run"]], cwd=recipe["folder"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    words = done.stdout.splitlines()
    if done.returncode or not words or not words[0]:
        raise Unusable(f"no command came of `{recipe['run']}`: {done.stderr.strip()}")
    return words


def environment(options, way):
    return preloaded(options, None if way == "native" else (WAYS | GUARDS | WITHOUT)[way])


def preloaded(options, settings):
    """The environment with Allograft and these settings; None: without it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("ALLOGRAFT_") and k != "LD_PRELOAD"}
    if settings is not None:
        env.update({"ALLOGRAFT_STATS": "off", **settings}, LD_PRELOAD=os.path.abspath(options.library))
    return env


def reference(recipe, options):
    """A native run. Lines that two native runs print differently are noise, too, as far as they can be told by place."""
    runs = [Run(recipe, environment(options, "native"), options.timeout) for _ in range(2)]
    for run in runs:
        if run.status or not run.passed:
            why = f"ended with {run.status}" if run.status else "did not say " + recipe["oracle"]
            raise Unusable(f"natively it {why}: {(run.err.strip().splitlines() or [''])[-1]}")
    return runs


def differing(runs):
    """Numbers of the kept lines that are not the same in all native runs; None where not even their number is."""
    if len({len(run.kept) for run in runs}) > 1:
        return None
    return {i for i, lines in enumerate(zip(*(run.kept for run in runs))) if len(set(lines)) > 1}


def comparable(result, loose):
    """Without what natively differs from run to run."""
    status, passed, kept, digests, found = result
    if loose is None:
        return status, passed, found
    return status, passed, [line for i, line in enumerate(kept) if i not in loose], digests, found


def in_turn(ways, turn):
    """Forth and back, so that none always comes behind the same other one: what ran before warms the machine, or not."""
    return list(reversed(ways)) if turn % 2 else list(ways)


def measure(recipe, options):
    """way -> its runs, in turns; the native ones include those made first."""
    runs = {"native": reference(recipe, options), **{way: [] for way in options.ways}}
    for turn in range(options.runs):
        for way in in_turn(runs, turn):
            runs[way].append(Run(recipe, environment(options, way), options.timeout))
        print(f"turn {turn + 1} of {options.runs}", file=sys.stderr)
    return runs


def spread(values):
    return f"{min(values):.3f} to {max(values):.3f}"


def summary(runs):
    """One row for each way."""
    loose = differing(runs["native"])
    wanted = comparable(runs["native"][0].result(), loose)
    rows = []
    native = {}
    for way, made in runs.items():
        row = {"way": way, "runs": len(made), "seconds": statistics.median(run.seconds for run in made),
               "spread": spread([run.seconds for run in made]),
               "same": all(comparable(run.result(), loose) == wanted for run in made),
               "timer": None if any(run.timer is None for run in made) else statistics.median(run.timer for run in made)}
        native = native or row
        row["ratio"] = native["seconds"] / row["seconds"]
        row["timer_ratio"] = native["timer"] / row["timer"] if row["timer"] and native["timer"] else None
        rows.append(row)
    return rows, None if loose is None else len(loose)


def show(rows, n_loose):
    print("| way | seconds | spread | as fast | by its own timer | output |\n| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        own = f"{row['timer_ratio']:.3f}" if row["timer_ratio"] else "-"
        print(f"| {row['way']} | {row['seconds']:.3f} | {row['spread']} | {row['ratio']:.3f} | {own} | "
              f"{'the same' if row['same'] else 'DIFFERENT'} |")
    if n_loose is None:
        print("natively the output has more or fewer lines from run to run: only the status and its own check are compared")
    elif n_loose:
        print(f"natively {n_loose} lines differ from run to run: they are not compared")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", nargs="?", help="a name of --list, or NAME/PROGRAM of a collection")
    parser.add_argument("checkout", nargs="?", help="the folder of its sources")
    parser.add_argument("--list", action="store_true", help="what there is")
    parser.add_argument("--library", help="liballograft.so")
    parser.add_argument("--ways", default=",".join(WAYS), help="of " + ", ".join(WAYS))
    parser.add_argument("--runs", type=int, default=7, help="in turns")
    parser.add_argument("--least", type=float, default=0.99, help="as fast as natively, at least, under `default`")
    parser.add_argument("--arch", default="sm_90", help="what nvcc compiles for (default sm_90)")
    parser.add_argument("--no-build", action="store_true", help="run what is built already")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    parser.add_argument("--out", help="the rows, as JSON")
    options = parser.parse_args()
    options.ways = options.ways.split(",")
    if options.list:
        return options
    for way in options.ways:
        if way not in WAYS:
            parser.error(f"--ways={way}; there are {', '.join(WAYS)}")
    if not options.recipe or not options.checkout or not options.library:
        parser.error("a recipe, a checkout and --library are needed")
    if options.runs < 1:
        parser.error(f"--runs must be 1 or more, not {options.runs}")
    if options.timeout <= 0:
        parser.error(f"--timeout must be above 0, not {options.timeout:g}")
    for path in (options.checkout, options.library):
        if not os.path.exists(path):
            parser.error(f"there is no {path}")
    if options.out:  # before hours are spent on what it is to hold
        try:
            open(options.out, "a", encoding="utf-8").close()
        except OSError as error:
            parser.error(f"--out {options.out}: {error.strerror}")
    return options


def main():
    options = parsed()
    if options.list:
        for name, recipe in recipes.RECIPES.items():
            print(f"{name:14} {recipe['source']}")
        return 0
    recipe = filled(options.recipe, os.path.abspath(options.checkout), options.arch)
    try:
        if not options.no_build:
            build(recipe, options.checkout)
        recipe["command"] = command_of(recipe)
        runs = measure(recipe, options)
    except (Unusable, OSError, subprocess.TimeoutExpired) as trouble:  # OSError: it was never built
        print(f"{options.recipe}: {trouble}", file=sys.stderr)
        return 3
    rows, n_loose = summary(runs)
    show(rows, n_loose)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"recipe": options.recipe, "rows": rows, "lines_not_compared": n_loose}, file, indent=1)
    slow = [row for row in rows if row["way"] == "default" and row["ratio"] < options.least]
    return 1 if slow or not all(row["same"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
