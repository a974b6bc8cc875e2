"""The bench on the simulated driver: every row is measured, who is not exact is found out, bad input is refused.

usage: test_bench.py BENCH LIBRARY
"""

import glob
import json
import lzma
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ["BENCH_MS"] = "1"  # on the simulated driver times mean nothing
BENCH, LIBRARY = sys.argv.pop(1), sys.argv.pop(1)
HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
# One pointer twice; one block that is never freed, one that was allocated before the trace began.
TRACE = HEADER + "".join(f"1,00:00:00.{i:06},{action},{pointer},{size},{stream}\n" for i, (action, pointer, size, stream)
                         in enumerate([("allocate", "0x1", 1000, "0x0"), ("allocate", "0x2", 5000, "0x7"),
                                       ("free", "0x1", 1000, "0x0"), ("allocate", "0x1", 300, "0x0"),
                                       ("allocate failure", "0x0", 10 ** 12, "0x0"), ("free", "0x9", 64, "0x0"),
                                       ("free", "0x1", 300, "0x0")]))


def bench(*words):
    return subprocess.run([BENCH, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                          check=False)


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_all(self, *words):
        out = os.path.join(self.folder, "out.json")
        done = subprocess.run([sys.executable, os.path.join(HERE, "run.py"), "--bench", BENCH, "--library", LIBRARY,
                               "--quick", "--iterations", "1", "--out", out, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        # Without help the pool of cudaMallocAsync hands out what a kernel still writes to. A GPU writes; the simulated
        # driver stops the program.
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual([line.split(": ")[:2] for line in done.stdout.splitlines() if not line.startswith("|")],
                         [["died", "async, hurried"]], done.stdout)
        with open(out, encoding="utf-8") as file:
            return done.stdout, json.load(file)["values"]

    def test_all(self):
        shown, values = self.run_all("--trace", self.file("small.csv", TRACE))
        self.assertEqual(list(values), ["native", "allograft", "allograft pool", "allograft managed", "async"])
        figures = ["pair_512_ns", "pairs_65536_x2_per_s", "turn_more_ns", "cold_4096_ns", "live_100_ns",
                   "hurried_wrong_words", *(f"small trace_x{n}_{figure}" for n in (1, 16)
                                            for figure in ("ns", "whole_ms", "again_ns")),
                   "small trace_x1_wrong_words", "small trace_x1_asked_bytes"]
        for who, of_it in values.items():
            self.assertEqual(list(of_it), [f for f in figures if who != "async" or f != "hurried_wrong_words"], who)
            self.assertEqual(of_it["small trace_x1_asked_bytes"], [6000])
            self.assertEqual(of_it["small trace_x1_wrong_words"], [0], who)
            self.assertEqual(of_it.get("hurried_wrong_words"), [0] if who != "async" else None, who)
        self.assertIn("| figure | native | allograft | allograft pool | allograft managed | async |", shown)

    def test_without(self):
        """Allograft beside itself with another setting, and nobody else."""
        out, setting = os.path.join(self.folder, "out.json"), f"ALLOGRAFT_TRACE={self.folder}/told.%p.trace"
        words = [sys.executable, os.path.join(HERE, "run.py"), "--bench", BENCH, "--library", LIBRARY, "--quick",
                 "--iterations", "1", "--out", out, "--without"]
        done = subprocess.run([*words, setting], stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(out, encoding="utf-8") as file:
            values = json.load(file)["values"]
        self.assertEqual(list(values), ["allograft", f"allograft {setting}"])
        with_it, without = values.values()
        self.assertEqual(list(with_it), list(without))
        self.assertTrue(glob.glob(os.path.join(self.folder, "told.*.trace")))
        done = subprocess.run([*words, "SLAB"], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, "--without must be ALLOGRAFT_NAME=VALUE, not SLAB" in done.stderr), (2, True))

    def test_only_traces(self):
        words = [sys.executable, os.path.join(HERE, "run.py"), "--bench", BENCH, "--library", LIBRARY, "--iterations", "1",
                 "--only-traces"]
        done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, "--only-traces needs a --trace" in done.stderr), (2, True))
        packed = os.path.join(self.folder, "small.csv.xz")
        with lzma.open(packed, "wt") as file:
            file.write(TRACE)
        for path in (self.file("small.csv", TRACE), packed):
            done = subprocess.run([*words, "--trace", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                  timeout=300, check=False)
            self.assertEqual(done.returncode, 0)
            rows = [line.split(" | ")[0] for line in done.stdout.splitlines()[2:]]
            self.assertTrue(rows and all(row.startswith("| small trace") for row in rows), done.stdout)
        with open(packed, "r+b") as file:
            file.truncate(60)
        done = subprocess.run([*words, "--trace", packed], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, "small.csv.xz cannot be unpacked" in done.stderr), (2, True), done.stderr)

    def test_recorded_traces_are_exact(self):
        """Those of real programs that the page was measured with."""
        traces = glob.glob(os.path.join(HERE, "traces", "*.csv.xz"))
        self.assertEqual(len(traces), 5)
        for path in traces:
            name = os.path.basename(path)[:-len(".xz")]
            with lzma.open(path, "rt") as packed:
                played = self.file(name, packed.read())
            for policy in ("auto", "pool", "managed"):
                with self.subTest(trace=name, policy=policy):
                    done = subprocess.run([BENCH, "cudamalloc", "checked", played, "1"], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True, timeout=300, check=False,
                                          env={**os.environ, "LD_PRELOAD": LIBRARY, "ALLOGRAFT_POLICY": policy,
                                               "ALLOGRAFT_STATS": "off"})
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("trace_x1_wrong_words 0\n", done.stdout)

    def test_wrong_words_of_an_exact_one_are_said(self):
        sys.path.insert(0, HERE)
        import run
        self.assertEqual(run.wrong({"async": {"hurried_wrong_words": [7]}, "native": {"hurried_wrong_words": [0]}}), [])
        self.assertEqual(run.wrong({"native": {"hurried_wrong_words": [0, 3]}}), ["native: hurried_wrong_words 3"])
        self.assertEqual(run.wrong({"rmm-pool": {"t trace_x1_wrong_words": [2]}}), ["rmm-pool: t trace_x1_wrong_words 2"])

    def test_bad_input(self):
        for words, said in ((["mine", "turn"], "no heap is named mine"), (["async", "pairs", "x", "1"], "number above 0: x"),
                            (["async", "pairs"], "usage: bench"), ([], "usage: bench"),
                            (["async", "trace", self.folder + "/none", "1"], "No such file"),
                            (["async", "trace", self.file("a", "a,b\n"), "1"], "a:1: the first line"),
                            (["async", "trace", self.file("b", HEADER + "1,2,free\n"), "1"], "b:2: there are fewer"),
                            (["async", "trace", self.file("c", HEADER + "1,2,free,0x1,ten,0x0\n"), "1"], "c:2: the size"),
                            (["async", "trace", self.file("d", HEADER + "1,2,move,0x1,10,0x0\n"), "1"], "d:2: the action")):
            with self.subTest(words=words):
                done = bench(*words)
                self.assertEqual((done.returncode, len(done.stderr.splitlines()) <= 2), (2, True), done.stderr)
                self.assertIn(said, done.stderr)

    def test_bad_options(self):
        words = [sys.executable, os.path.join(HERE, "run.py"), "--bench", BENCH, "--library", LIBRARY, "--quick"]
        for more, said in ((["--out", self.folder + "/no/out.json"], "out.json: No such file or directory"),
                           (["--out", self.folder], f"--out {self.folder}: Is a directory"),
                           (["--timeout", "0"], "--timeout must be above 0, not 0"),
                           (["--iterations", "0"], "--iterations must be 1 or more, not 0")):
            with self.subTest(more=more):
                done = subprocess.run([*words, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300,
                                      check=False)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertTrue(done.stderr.endswith(said + "\n"), done.stderr)

    def test_bad_options_of_the_build(self):
        for words, said in (([], "a folder comes first, not ''"), (["--help"], "a folder comes first, not '--help'"),
                            (["x", "--rmm"], "--rmm needs a value"), (["x", "--no"], "--no is not an option")):
            done = subprocess.run([os.path.join(HERE, "build.sh"), *words], cwd=self.folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (2, "", 1), done.stderr)
            self.assertIn(said, done.stderr)
            self.assertEqual(os.listdir(self.folder), [])

    def test_blocks_of_two_streams_are_not_checked(self):
        path = self.file("two.csv", HEADER + "1,2,allocate,0x1,10,0x0\n1,3,free,0x1,10,0x5\n")
        done = bench("async", "checked", path, "1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("unchecked", done.stderr)


if __name__ == "__main__":
    unittest.main()
