"""ranks.py on jobs of two processes of a few lines, on the simulated driver.

usage: test_ranks.py ALLOGRAFT SIM
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ALLOGRAFT, SIM = sys.argv.pop(1), sys.argv.pop(1)

# A launcher of two ranks, and a rank that allocates, unless it is the second of `lazy`.
LAUNCHER = 'for rank in 0 1; do RANK=$rank "$@" & all="$all $!"; done; for one in $all; do wait $one || exit 5; done'
RANK = """
import ctypes, os, sys
rank, how = os.environ["RANK"], sys.argv[1]
if how == "lazy" and rank == "1":
    sys.exit(0)
cuda, p, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(p), 4096) == 0 and cuda.cuMemFree_v2(p) == 0
os.write(1, f"rank {rank} has its memory\\n".encode())  # whole lines, whoever else prints
if how == "tells" and "ALLOGRAFT_STATS" in os.environ:
    os.write(1, b"and something before it\\n")
if how == "varies":
    os.write(1, f"{os.getpid()}\\n".encode())
sys.exit(how == "fails" or how == "breaks" and "ALLOGRAFT_GRAPH" in os.environ)
"""


class Ranks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.program = os.path.join(self.folder, "rank.py")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(RANK)

    def run_on(self, how, *words, ranks="2", launch=("sh", "-c", LAUNCHER, "sh", "{run}")):
        """Exit status, standard output, standard error."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("ALLOGRAFT_")}
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, "ranks.py"), "--command", ALLOGRAFT, "--ranks", ranks, "--out",
             os.path.join(self.folder, "out"), *words, "--", *launch, sys.executable, self.program, how],
            env=dict(env, LD_LIBRARY_PATH=SIM), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_same(self):
        status, out, err = self.run_on("ok")
        self.assertEqual(status, 0, out + err)
        self.assertEqual((out.count("the same"), out.count("2 of 2")), (4, 4))
        made = os.listdir(os.path.join(self.folder, "out"))
        self.assertEqual(sorted(made), sorted(f"{way}{end}" for way in ("default", "pool", "managed", "replay")
                                              for end in ("-0.json", "-1.json", ".html")))
        with open(os.path.join(self.folder, "out", "replay-1.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["coverage"]["redirected"], 1)

    def test_before_the_launcher(self):
        status, out, err = self.run_on("ok", "--ways", "default", launch=("{run}", "sh", "-c", LAUNCHER, "sh"))
        self.assertEqual((status, out.count("2 of 2")), (0, 1), out + err)

    def test_another_output(self):
        for how in ("tells", "breaks"):
            status, out, _ = self.run_on(how, "--ways", "replay")
            self.assertEqual((status, out.count("DIFFERENT")), (1, 1), how)
            with open(os.path.join(self.folder, "out", "replay.txt"), encoding="utf-8") as file:
                self.assertIn("before it" if how == "tells" else "status 5", file.read())

    def test_varies_natively(self):
        status, out, err = self.run_on("varies", "--ways", "pool")
        self.assertEqual(status, 0, err)
        self.assertIn("only how the job ended is compared", out)

    def test_a_rank_without_a_report(self):
        for how, ranks, said in (("lazy", "2", "none of 1 "), ("ok", "3", "none of 2 ")):
            status, out, _ = self.run_on(how, "--ways", "default", ranks=ranks)
            self.assertEqual(status, 1)
            self.assertIn(said, out)

    def test_reports_of_an_earlier_job_do_not_count(self):
        self.assertEqual(self.run_on("ok", "--ways", "default")[0], 0)
        self.assertEqual(self.run_on("lazy", "--ways", "default")[0], 1)

    def test_natively_it_fails(self):
        status, _, err = self.run_on("fails")
        self.assertEqual(status, 3)
        self.assertIn("natively it ended with 5", err)

    def test_bad_words(self):
        for words, launch, said in (((), ("sh",), "one word {run}"), (("--ways", "fast"), ("{run}",), "--ways=fast"),
                                    (("--ranks", "0"), ("{run}",), "must be 1 or more"),
                                    (("--command", "/no/such"), ("{run}",), "there is no /no/such")):
            status, _, err = self.run_on("ok", *words, launch=launch)
            self.assertEqual(status, 2)
            self.assertIn(said, err)


if __name__ == "__main__":
    unittest.main()
