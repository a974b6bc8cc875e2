#!/usr/bin/env python3
"""Megatron-LM's own unit tests of unified memory and full-iteration graphs, natively and with the drop-in modules.

usage: megatron.py CHECKOUT --library liballograft.so [--out FOLDER] [options] [arguments of pytest]

CHECKOUT is a checkout of Megatron-LM, in which nothing is changed. Natively its own megatron.core.full_cuda_graph and
megatron.core.inference.unified_memory are tested; with the drop-in ones, those of allograft.compat are in their place for
the tests and for all modules of Megatron that import them, and the library is preloaded. Both ways run at the same time, as
one process each. The table says how many tests passed, failed and were skipped; tests that differ are named, and so are
files that cannot be imported.
Exit status: 0 all that passes natively passes with the drop-in modules, 1 not, 2 bad usage, 3 nothing passes natively.
"""

import argparse
import collections
import glob
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import pytests

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.normpath(os.path.join(HERE, "..", "..", "tools", "python"))
PLUGIN = os.path.join(HERE, "megatron_tests")
WAYS = ("native", "drop-in")

# Path in the checkout -> which of its tests, and whether they are run with unified memory as well.
TESTS = {
    "tests/unit_tests/inference/test_unified_memory.py": {},
    "tests/unit_tests/transformer/test_full_cuda_graph.py": {},
    "tests/unit_tests/transformer/moe/test_paged_stash_runner.py": {},
    "tests/unit_tests/transformer/moe/test_paged_stashing.py": {},
    "tests/unit_tests/distributed/mfsdp_v1/test_mcore_fully_sharded_data_parallel.py": {"only": "full_iteration"},
    "tests/unit_tests/inference/contexts/test_dynamic_context.py": {"levels": True},
}
OURS = os.path.join(PLUGIN, "test_full_iteration.py")


# ---- running ----

def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def environment(options, way, results):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ALLOGRAFT_", "MEGATRON_")) and k != "LD_PRELOAD"}
    paths = [options.checkout, PYTHON, PLUGIN, env.get("PYTHONPATH")]
    env.update(PYTHONPATH=os.pathsep.join(filter(None, paths)), PYTHONUNBUFFERED="1", MEGATRON_WAY=way,
               MEGATRON_RESULTS=results, MEGATRON_TESTS=json.dumps(options.tests),
               PYTHONPYCACHEPREFIX=os.path.join(options.scratch, "pycache"),
               RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(),
               TORCH_EXTENSIONS_DIR=os.path.join(options.scratch, "extensions"))
    if way == "drop-in":
        env.update(LD_PRELOAD=options.library, ALLOGRAFT_STATS="off")
    else:
        env.update(toolkit(options, env))
    return env


def toolkit(options, env):
    """Megatron's own allocator is compiled against CUDA's runtime. Where there is no toolkit, the headers and the
    library beside PyTorch will do."""
    if env.get("CUDA_HOME") or env.get("CUDA_PATH") or os.path.exists("/usr/local/cuda/include/cuda_runtime_api.h"):
        return {}
    site = subprocess.run([options.python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout.strip()
    found = sorted(glob.glob(os.path.join(site, "nvidia", "cu1?", "include", "cuda_runtime_api.h")))
    if not found:
        return {}
    root = os.path.dirname(os.path.dirname(found[-1]))
    home = os.path.join(options.scratch, "cuda")
    os.makedirs(os.path.join(home, "lib64"), exist_ok=True)
    links = {"include": os.path.join(root, "include")}
    for library in glob.glob(os.path.join(root, "lib", "libcudart.so.*")):
        links["lib64/libcudart.so"] = library
    for name, target in links.items():
        if not os.path.lexists(os.path.join(home, name)):
            os.symlink(target, os.path.join(home, name))
    return {"CUDA_HOME": home}


class Way:
    """One process of pytest, and what it says of each test."""

    def __init__(self, options, way):
        self.way, self.timeout, self.folder = way, options.timeout, options.out
        self.results = os.path.join(options.out, way + ".jsonl")
        open(self.results, "w", encoding="utf-8").close()
        self.process = pytests.Process(
            options.python, ["-p", "allograft_megatron", "--rootdir", options.checkout, "-o", "faulthandler_timeout=60",
                             *options.paths, *options.arguments],
            options.checkout, environment(options, way, self.results), os.path.join(options.out, way + ".txt"))
        self.trouble = None

    def finish(self, seconds):
        status = self.process.finish(seconds)
        if status is None:
            self.trouble = f"it took more than {self.timeout:g} s"
        self.read()
        if not self.trouble and self.ended is None:
            self.trouble = f"pytest ended with {status} before its tests did: {self.process.last_line()}"

    def read(self):
        self.collected, self.rows, self.files, self.pools = [], {}, [], collections.Counter()
        self.ended, self.importers, self.unusable = None, {}, {}
        with open(self.results, encoding="utf-8") as file:
            for row in (json.loads(line) for line in file if line.endswith("\n")):  # the last may be cut short
                if "test" in row:
                    if self.rows.get(row["test"], {}).get("outcome") in (None, "passed"):
                        self.rows[row["test"]] = row
                elif "file" in row:
                    self.files.append(row)
                elif "collected" in row:
                    self.collected = row["collected"]
                elif "pool" in row:
                    self.pools[row["pool"] + (": " + row["why"].splitlines()[0] if row.get("why") else "")] += 1
                else:
                    self.ended, self.importers, self.unusable = row["end"], row["importers"], row["unusable"]

    def outcome(self, test):
        return self.rows[test]["outcome"] if test in self.rows else "not run" if test in self.collected else "no such test"

    def write_failures(self):
        """The ends of what the failed tests say."""
        path = os.path.join(self.folder, self.way + "-failures.txt")
        with open(path, "w", encoding="utf-8") as file:
            for row in [*self.files, *self.rows.values()]:
                if row["outcome"] == "failed":
                    file.write(f"---- {row.get('test') or row['file']}\n")
                    file.write("\n".join(row["text"].splitlines()[-60:]) + "\n\n")


# ---- what they say ----

def group_of(test):
    """The row of the table: the file, and whether the test was given unified memory."""
    path, _, name = test.partition("::")
    path = path.removeprefix("tests/unit_tests/") or os.path.relpath(OURS, HERE)  # it is in no folder of the checkout
    return path + (", unified memory" if "[level1" in name else "")


def table(ways):
    tests = list(dict.fromkeys(test for way in ways for test in [*way.collected, *way.rows]))
    rows = collections.defaultdict(lambda: [collections.Counter() for _ in ways])
    for test in tests:
        for number, way in enumerate(ways):
            rows[group_of(test)][number][way.outcome(test)] += 1
    print("| tests | natively passed | failed | skipped | not run | drop-in passed | failed | skipped | not run |\n"
          "| --- |" + " --- |" * 8)
    total = [collections.Counter() for _ in ways]
    for group, counts in rows.items():
        print(f"| {group} | " + " | ".join(numbers(count) for count in counts) + " |")
        for sum_of_all, count in zip(total, counts):
            sum_of_all.update(count)
    print("| all | " + " | ".join(map(numbers, total)) + " |")
    return tests


def numbers(count):
    none = count["not run"] + count["no such test"]
    return f"{count['passed']} | {count['failed']} | {count['skipped']} | {none}"


def say_why(ways, outcome, said):
    """What has that outcome, with the reason, as many tests in one line as have the same one of both."""
    reasons = collections.defaultdict(dict)
    for way in ways:
        for test, row in way.rows.items():
            if row["outcome"] == outcome and all(other.outcome(test) == outcome for other in ways):
                reasons[group_of(test), pytests.first_line(row["why"])].setdefault(test)
    for (group, why), tests in reasons.items():
        names = list(dict.fromkeys(test.rpartition("::")[2].partition("[")[0] for test in tests))
        print(f"{len(tests)} of {group} {said}: {why} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})")


def say_what_is_missing(ways):
    missing = collections.defaultdict(list)
    for way in ways:
        for row in way.files:
            word = "cannot be imported" if row["outcome"] == "failed" else "is skipped"
            missing[f"{row['file'] or 'the tests'} {word}: {pytests.first_line(row['why'])}"].append(way)
        for name, why in way.unusable.items():
            missing[f"{name} cannot be imported: {pytests.first_line(why)}"].append(way)
    for text, which in missing.items():
        print(text + ("" if len(which) == len(ways) else f" ({which[0].way} only)"))


def say_what_ran(ways):
    for way in ways:
        if way.trouble:
            print(f"{way.way}: {way.trouble}")
        print(f"{way.way}: {len(way.collected)} tests were collected, {len(way.rows)} of them ran, in "
              f"{sum(row['seconds'] for row in way.rows.values()):.1f} s")
        for pool, count in way.pools.items():
            print(f"{way.way}: {count} contexts had unified memory from a pool that is {pool}")
        whose = collections.defaultdict(list)
        for importer, homes in way.importers.items():
            for home in homes:
                whose[home].append(importer)
        for home, importing in sorted(whose.items()):
            print(f"{way.way}: {home} is in {', '.join(importing)}")


def compare(ways, tests):
    """Names the tests that differ. Returns how many of them pass natively only."""
    native, ours = ways
    worse = 0
    for test in tests:
        before, after = native.outcome(test), ours.outcome(test)
        if before == after:
            continue
        worse += before == "passed"
        why = (ours if before == "passed" else native).rows.get(test, {}).get("why", "")
        print(f"DIFFERENT: {test}: natively {before}, drop-in {after}" + (f": {pytests.first_line(why)}" if why else ""))
    return worse


# ---- the command ----

def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False,
                                     epilog="All other arguments are pytest's.")
    parser.add_argument("checkout")
    parser.add_argument("--library", required=True, help="liballograft.so")
    parser.add_argument("--out", help="a folder for what the tests print, and the ends of failures")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each way")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch and pytest")
    parser.add_argument("--test", action="append", metavar="FILE", help="only this file of the checkout; may be repeated")
    options, options.arguments = parser.parse_known_args()
    for path in (options.checkout, options.library):
        if not os.path.exists(path):
            parser.error(f"there is no {path}")
    options.checkout, options.library = os.path.abspath(options.checkout), os.path.abspath(options.library)
    if not os.path.isdir(os.path.join(options.checkout, "megatron", "core")):
        parser.error(f"{options.checkout} has no megatron/core")
    options.tests = {path: TESTS.get(path, {}) for path in options.test or TESTS}
    options.paths = [path for path in options.tests if os.path.exists(os.path.join(options.checkout, path))]
    if not options.paths:
        parser.error(f"{options.checkout} has none of {', '.join(options.tests)}")
    if not options.test:
        options.paths.insert(0, OURS)
    return options


def run(options):
    os.makedirs(options.out, exist_ok=True)
    for path in options.tests:
        if path not in options.paths:
            print(f"{path} is not in this checkout")
    begun = time.monotonic()
    ways = [Way(options, way) for way in WAYS]
    for way in ways:
        way.finish(begun + options.timeout - time.monotonic())
        way.write_failures()
    say_what_ran(ways)
    say_what_is_missing(ways)
    say_why(ways, "skipped", "are skipped")
    say_why(ways, "failed", "fail both ways")
    tests = table(ways)
    worse = compare(ways, tests)
    native, ours = ways
    passed = sum(native.outcome(test) == "passed" for test in tests)
    if not passed:
        print("nothing passes natively")
        return 3
    stayed = sorted(name for name, homes in ours.importers.items() if any(home.startswith("megatron.") for home in homes))
    if stayed:
        print(f"Megatron's own modules are still in {', '.join(stayed)}")
    if worse or stayed or ours.trouble:
        return 1
    print(f"all {passed} tests that pass natively pass with the drop-in modules")
    return 0


def main():
    options = parsed()
    with tempfile.TemporaryDirectory(prefix="megatron-") as options.scratch:
        options.out = os.path.abspath(options.out or os.path.join(options.scratch, "out"))
        return run(options)


if __name__ == "__main__":
    sys.exit(main())
