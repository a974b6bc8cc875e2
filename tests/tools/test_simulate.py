"""Programs on the simulated driver: how they get there, what cannot run, and that no report takes its times for a GPU's."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import command
from command import CommandTest, allograft, clean_environment, paths
from test_job import JobTest, sample

NOTHING = "times mean nothing"


def environment(**changes):
    """Nothing in it leads to a driver."""
    return clean_environment(**{"LD_LIBRARY_PATH": None, "LD_PRELOAD": None, **changes})


class Simulate(JobTest):
    def simulate(self, *args, words=(), status=0, **changes):
        """A program that calls the driver API itself: the doctor's own."""
        result = allograft("run", "--simulate", *words, "--", *(args or (paths.command, "doctor", "--work", "dlsym")),
                           env=environment(**changes))
        self.assertEqual(result.returncode, status, result.stderr)
        return result

    def report(self, *words, name="a.json", **changes):
        """The report of a run, and the file it is in."""
        path = os.path.join(self.folder, name)
        self.simulate(words=("--stats", path, *words), **changes)
        with open(path, encoding="utf-8") as file:
            return json.load(file), path


class Run(Simulate):
    def test_finds_the_driver(self):
        report, _ = self.report()
        self.assertEqual(report["coverage"]["libcuda"], os.path.join(paths.sim, "libcuda.so.1"))
        self.assertIs(report["simulated"], True)

    def test_without_it_there_is_none(self):
        result = allograft("run", "--", paths.command, "doctor", "--work", "dlsym", env=environment())
        if "no libcuda" not in result.stdout:
            self.skipTest("this machine has a driver")
        self.assertEqual(result.returncode, 1)

    def test_goes_before_other_places(self):
        with command.tempfile.TemporaryDirectory() as other:
            shutil.copy(os.path.join(paths.sim, "age", "12020", "libcuda.so.1"), other)
            report, _ = self.report(LD_LIBRARY_PATH=other)
            self.assertEqual(os.path.dirname(report["coverage"]["libcuda"]), paths.sim)
            seen = self.simulate("sh", "-c", 'printf %s "$LD_LIBRARY_PATH"', LD_LIBRARY_PATH=other)
            self.assertEqual(seen.stdout, f"{paths.sim}:{other}")

    def test_once_is_enough(self):
        seen = self.simulate(paths.command, "run", "--simulate", "sh", "-c", 'printf %s "$LD_LIBRARY_PATH"')
        self.assertEqual(seen.stdout, paths.sim)

    def test_its_settings_hold(self):
        result = self.simulate(SIM_FAIL="cuInit:1:100", status=1)
        self.assertTrue(result.stdout.startswith("100 "), result.stdout)

    def test_not_there(self):
        library = shutil.copy(paths.library, self.folder)
        result = allograft("run", "--simulate", "true", env=environment(ALLOGRAFT_LIBRARY=library))
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("the simulated driver was not found", result.stderr)
        self.assertIn(os.path.join(self.folder, "allograft", "simulated", "libcuda.so.1"), result.stderr)

    def test_a_place_that_cannot_be_named(self):
        os.makedirs(os.path.join(self.folder, "a;b", "allograft", "simulated"))
        library = shutil.copy(paths.library, os.path.join(self.folder, "a;b"))
        shutil.copy(os.path.join(paths.sim, "libcuda.so.1"), os.path.join(self.folder, "a;b", "allograft", "simulated"))
        self.assert_refused(allograft("run", "--simulate", "true", env=environment(ALLOGRAFT_LIBRARY=library)),
                            "LD_LIBRARY_PATH", status=1)


class Readme(Simulate):
    def test_its_example_runs(self):
        with open(os.path.join(paths.root, "docs", "usage.md"), encoding="utf-8") as file:
            block = re.search(r"<!-- simulated -->\n```console\n(.*?)```", file.read(), re.DOTALL)[1]
        os.mkdir(os.path.join(self.folder, "build"))
        os.symlink(paths.command, os.path.join(self.folder, "build", "allograft"))
        os.symlink(os.path.join(paths.sim, "demo", "demo-sim"), os.path.join(self.folder, "program"))
        for line in block.splitlines():
            words = line.removeprefix("$ ").split()
            done = subprocess.run(words, cwd=self.folder, env=environment(), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertIn(done.returncode, (0, 3) if "doctor" in words else (0,), (line, done.stderr))
            self.assertEqual(done.stderr, "")
        with open(os.path.join(self.folder, "page.html"), encoding="utf-8") as file:
            self.assertIn(NOTHING, file.read())


    def test_a_program_of_ones_own(self):
        """From its text to a setting of its own, as the page says; each line on the simulated driver."""
        if os.environ.get("TEST_PRELOAD"):
            self.skipTest("the program has no sanitizer, and the driver has")
        with open(os.path.join(paths.root, "docs", "usage.md"), encoding="utf-8") as file:
            page = file.read()
        self.write("churn.c", re.search(r"<!-- churn.c -->\n```c\n(.*?)```", page, re.DOTALL)[1].encode())
        os.makedirs(os.path.join(self.folder, "build", "tests"))
        os.symlink(paths.command, os.path.join(self.folder, "build", "allograft"))
        os.symlink(paths.sim, os.path.join(self.folder, "build", "tests", "sim"))
        compiler, *lines = re.search(r"<!-- churn -->\n```console\n(.*?)```", page, re.DOTALL)[1].splitlines()
        words = compiler.removeprefix("$ cc -I CUDA/include ").split()
        self.assertNotIn("CUDA", words)
        subprocess.run([*os.environ["TEST_COMPILER"].split(), "-Wall", "-Werror", *words], cwd=self.folder, check=True)
        for line in lines:
            done = subprocess.run(line[2:].replace(" tune ", " tune --runs 1 "), shell=True, cwd=self.folder,
                                  env=environment(), capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, (line, done.stderr))
            self.assertTrue(" run " not in line and " profile " not in line or done.stdout == "999\n", done.stdout)
        self.assertIn("2.00 MiB of the device", done.stderr)  # with a slab it is 4 MiB


class WhatCannotRun(Simulate):
    def test_nvidias_runtime(self):
        """Also where a library brings it, or Python does: the driver itself sees who asks."""
        if not shutil.which("nvcc"):
            self.skipTest("there is no nvcc")
        program = os.path.join(self.folder, "demo")
        source = os.path.join(paths.root, "tests", "sim", "demo", "demo.cu")
        subprocess.run(["nvcc", "-o", program, source], capture_output=True, check=True)
        env = environment()
        if os.environ.get("TEST_PRELOAD"): # nvcc built the program without the sanitizer that the library needs
            env["LD_PRELOAD"] = os.environ["TEST_PRELOAD"]
        result = allograft("run", "--simulate", program, env=env)
        self.assertNotEqual(result.returncode, 0)
        lines = [line for line in result.stderr.splitlines() if line.startswith("allograft: ")]
        told = [line for line in lines if "NVIDIA's CUDA runtime" in line]
        self.assertEqual(len(told), 1, result.stderr)
        self.assertIn("checks that the driver is NVIDIA's", told[0])
        where = re.search(r"\((docs/usage\.md), ([^)]+)\)$", told[0])
        with open(os.path.join(paths.root, where[1]), encoding="utf-8") as file:
            self.assertIn(f"\n## {where[2]}\n", file.read())

    def test_device_code(self):
        program = os.path.join(os.path.dirname(paths.sim), "tools", "device_code")
        result = allograft("run", "--simulate", "--set", "stats=off", program, env=environment())
        self.assertEqual((result.returncode, result.stdout), (0, "500 500\n"), result.stderr)
        self.assertEqual(result.stderr, "allograft: the simulated driver runs no device code: no function of the host "
                                        "is registered for the kernel \"first\"\n")


class Reports(Simulate):
    def test_text(self):
        result = self.simulate(words=("--stats", "stderr"))
        self.assertRegex(result.stderr.splitlines()[5], "^  warning: ran on the simulated driver, not on a GPU: " + NOTHING)
        _, path = self.report()
        shown = self.shown("report", path)
        self.assertIn(NOTHING, shown)
        self.assertNotIn("time in allocations", shown)
        self.assertRegex(shown, r"\n    native +403 +400 .*B +- +-\n")

    def test_json(self):
        report, path = self.report()
        self.assertTrue([w for w in report["warnings"] if NOTHING in w], report["warnings"])
        self.assertEqual(self.read("report", "--json", path), report)
        self.assertIs(self.read("report", "--json", self.write("b.json", sample()))["simulated"], False)

    def test_page(self):
        _, path = self.report()
        page = self.shown("report", "--html", "-", path)
        self.assertIn(NOTHING, page)
        self.assertNotIn("Time in allocations", page)
        self.assertNotIn("H200", page)
        self.assertNotIn("Speed of", page)
        real = self.shown("report", "--html", "-", self.write("b.json", sample()))
        self.assertNotIn(NOTHING, real)
        self.assertIn("native, estimated", real)

    def test_job(self):
        pair = self.write_all(sample(simulated=True, process__elapsed_ns=500, process__rank=0),
                              sample(simulated=True, process__rank=1))
        table = self.shown("report", *pair)
        self.assertIn("warning: ran on the simulated driver", table)
        self.assertNotIn("500 ns*", table)
        whole = self.read("report", "--json", *pair)
        self.assertEqual([p["simulated"] for p in whole["processes"]], [True, True])
        self.assertEqual([p["elapsed_ns"] for p in whole["processes"]], [None, None])
        self.assertEqual([p["outliers"] for p in whole["processes"]], [[], []])
        self.assertIs(whole["total"]["simulated"], True)

    def test_job_of_both_kinds(self):
        pair = self.write_all(sample(simulated=True, process__elapsed_ns=500, process__rank=0), sample(process__rank=1))
        self.assertIn("some of the processes ran on the simulated driver", self.shown("report", *pair))
        whole = self.read("report", "--json", *pair)
        self.assertEqual([p["elapsed_ns"] for p in whole["processes"]], [None, 5])
        self.assertEqual(whole["medians"]["elapsed_ns"], 5)
        self.assertIn("some of the processes ran on the simulated driver", self.shown("report", "--html", "-", *pair))

    def test_trace(self):
        path = os.path.join(self.folder, "a.trace")
        self.simulate(words=("--set", "trace=" + path, "--set", "stats=off"))
        self.assertIn(NOTHING, self.shown("trace", path))
        _, report = self.report()
        self.assertEqual(self.shown("report", "--html", "-", report, path).count(NOTHING), 2)
        out = json.loads(self.shown("trace", "--perfetto", "-", path))
        self.assertIn(NOTHING, json.dumps(out))


class Diff(Simulate):
    def test_compares_no_times(self):
        simulated = sample(simulated=True, process__elapsed_ns=5000)
        more = sample(simulated=True, coverage__redirected=9)
        for pair, who in (((simulated, sample()), "A ran on the simulated driver"),
                          ((sample(), simulated), "B ran on the simulated driver"),
                          ((simulated, more), "both ran on the simulated driver")):
            a, b = self.write_all(*pair)
            text = self.shown("diff", a, b)
            self.assertIn(f"  times are not compared: {who}, whose {NOTHING}\n", text)
            self.assertNotIn("process: time", text)
            whole = self.read("diff", "--json", a, b)
            self.assertIs(whole["times_compared"], False)
            self.assertFalse([row for row in whole["differences"] if row["unit"] == "ns"])
        self.assertIn("redirected", text)
        self.assertTrue(whole["differences"])

    def test_compares_those_of_gpus(self):
        a, b = self.write_all(sample(), sample(process__elapsed_ns=5000))
        self.assertIn("process: time", self.shown("diff", a, b))
        self.assertIs(self.read("diff", "--json", a, b)["times_compared"], True)


class Top(Simulate):
    def test_says_so(self):
        ready = os.path.join(self.folder, "ready")
        counters = os.path.join(self.folder, "counters")
        os.mkdir(counters)
        program = os.path.join(os.path.dirname(paths.sim), "tools", "device_code")
        with subprocess.Popen([paths.command, "run", "--simulate", "--set", "counters=" + counters,
                               "--set", "stats=off", "--", program, ready],
                              env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            try:
                while not os.path.exists(ready):
                    self.assertIsNone(child.poll())
                    time.sleep(0.01)
                text = self.shown("top", "--once", counters)
                whole = self.read("top", "--once", "--json", counters)
            finally:
                child.send_signal(signal.SIGKILL)
        self.assertIn("1 simulated: " + NOTHING, text.splitlines()[0])
        self.assertIs(whole["processes"][0]["simulated"], True)
        self.assertIn("ran on the simulated driver", self.shown("report", counters))


class Tune(Simulate):
    def test_is_refused(self):
        self.assert_refused(allograft("tune", "--simulate", "true"), NOTHING, "--metric peak")
        self.assert_refused(allograft("tune", "--simulate", "--metric", "both", "true"), NOTHING)

    def test_is_refused_where_the_driver_turns_out_simulated(self):
        result = allograft("tune", "--runs", "1", paths.command, "doctor", "--work", "dlsym",
                           env=environment(LD_LIBRARY_PATH=paths.sim))
        self.assert_refused(result, NOTHING, "--metric peak", status=1)

    def test_of_memory(self):
        page = os.path.join(self.folder, "page.html")
        words = ("tune", "--simulate", "--runs", "1", "--metric", "peak", "--compare", "none")
        work = (paths.command, "doctor", "--work", "dlsym")
        result = allograft(*words, "--html", page, "--", *work, env=environment())
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn(NOTHING, result.stdout)
        self.assertNotRegex(result.stdout, r"\d(\.\d+)? (ns|us|ms|s)\b")
        with open(page, encoding="utf-8") as file:
            text = file.read()
        self.assertIn(NOTHING, text)
        self.assertNotRegex(re.sub(r"(?s)<(style|script)\b.*?</\1>", "", text), r"\d (ns|us|ms|s)\b")
        whole = json.loads(allograft(*words, "--json", "--", *work, env=environment()).stdout)
        self.assertIs(whole["simulated"], True)
        self.assertEqual([trial["median_ns"] for trial in whole["trials"]], [None] * 8)
        self.assertTrue(all(trial["peak_bytes"] for trial in whole["trials"]))


if __name__ == "__main__":
    command.main()
