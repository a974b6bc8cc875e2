"""What the tests of the command share: where things are, and running it in a clean environment."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import unittest

paths = argparse.Namespace()

# Where a run takes ten times as long (tests/tools/meson.build), of what is the same of many rows a part runs.
SOME = os.environ.get("TEST_EFFORT") == "some"


def some(rows):
    """All of the rows; or where that takes too long every fourth."""
    rows = list(rows)
    return rows[::4] if SOME else rows


# A process that holds memory; a test adds what it does then.
HOLDER = """
import ctypes, os, signal, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
def ok(result): assert result == 0, result
ok(cuda.cuInit(0))
ok(cuda.cuDeviceGet(ctypes.byref(device), 0))
ok(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
ok(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(3 << 20)))
"""


def clean_environment(**changes):
    """The environment without Allograft's settings; None removes a variable."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("ALLOGRAFT_")}
    env.pop("LD_PRELOAD", None)
    if os.environ.get("TEST_PRELOAD"):
        env["LD_PRELOAD"] = os.environ["TEST_PRELOAD"]
    # Shells and Python leave memory to the end of the process; leaks of theirs are not looked for.
    env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    env["XDG_STATE_HOME"] = "/dev/null"  # nothing is remembered from one test to another
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


# What is said of a program that uses no CUDA, as most do that tests run; test_run.py asks when.
UNUSED = re.compile(r"allograft: (?:tune: |profile: )?neither \S+ (?:\(process \d+\) )?nor what it started made a CUDA call .*"
                    r"no NVIDIA driver \(`allograft doctor` tells\); .*\n")


def allograft(*args, env=None, command=None, unused=False, **kwargs):
    """Runs the command to its end; stdout and stderr as text, without the line about unused CUDA unless `unused`."""
    result = subprocess.run(
        [command or paths.command, *args],
        env=clean_environment() if env is None else env,
        stdin=kwargs.pop("stdin", subprocess.DEVNULL if "input" not in kwargs else None),
        capture_output=True, text=True, timeout=60, **kwargs)
    if not unused:
        result.stderr = UNUSED.sub("", result.stderr)
    return result


def rows_of(macro):
    """The arguments of each row of tools/line/commands.def, as they stand there; strings are joined."""
    with open(os.path.join(paths.root, "tools", "line", "commands.def"), encoding="utf-8") as file:
        text = re.sub(r'"\s*\n\s*"', "", file.read())
    rows = re.findall(r'(?m)^%s\(((?:"[^"]*"|[^"()])*)\)$' % macro, text)
    return [re.findall(r'"[^"]*"|[^\s,"]+', row) for row in rows]


def names_of_commands():
    return [row[0] for row in rows_of("COMMAND")]


class CommandTest(unittest.TestCase):
    """Adds what most tests ask: how did it end, and what did it say?"""

    def assert_refused(self, result, *said, status=2):
        """One line on stderr with all of `said` in it, nothing on stdout, this exit status."""
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, "")
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("allograft: "), lines[0])
        for text in said:
            self.assertIn(text, lines[0])

    def assert_silent(self, result, stdout, status=0):
        """Nothing but this on stdout."""
        self.assertEqual((result.returncode, result.stdout, result.stderr), (status, stdout, ""))


def main():
    """Reads where things are from the command line, and runs the tests of the calling file, or those named there."""
    parser = argparse.ArgumentParser()
    for name in ("command", "bare", "library", "root", "sim"):
        parser.add_argument("--" + name, required=True)
    names = parser.parse_known_args(namespace=paths)[1]
    paths.command = os.path.abspath(paths.command)
    paths.bare = os.path.abspath(paths.bare)
    paths.library = os.path.realpath(paths.library)
    program = unittest.main(argv=sys.argv[:1] + names, exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    if program.result.skipped and len(program.result.skipped) == program.result.testsRun:
        sys.exit(77)
