"""apps.py on programs of a few lines, which show what it would see of real ones.

usage: test_apps.py LIBRARY
"""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = sys.argv.pop(1)
sys.path.insert(0, HERE)

import apps  # noqa: E402
import recipes  # noqa: E402

STEADY = 'echo "sum {program}"; echo "took $RANDOM us"; echo "total: 2 s"; echo "checks: PASSED"'


class Apps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.addCleanup(setattr, recipes, "RECIPES", recipes.RECIPES)

    def run_on(self, script, *words, name="tiny/7", **recipe):
        """Exit status, standard output, standard error."""
        recipes.RECIPES = {"tiny": {"source": "here", "noise": ["took"], "oracle": "PASSED", "timer": r"total: (\d+) s",
                                    "build": ["cat >program <<'END'\n#!/bin/bash\n" + script + "\nEND", "chmod +x program"],
                                    "run": "./program", **recipe}}
        out, err = io.StringIO(), io.StringIO()
        was = sys.argv
        sys.argv = ["apps.py", name, self.folder, "--library", LIBRARY, "--runs", "2", "--least", "0.01", *words]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = apps.main()
        except SystemExit as end:
            status = end.code
        finally:
            sys.argv = was
        return status, out.getvalue(), err.getvalue()

    def test_same(self):
        path = os.path.join(self.folder, "rows.json")
        status, out, err = self.run_on(STEADY, "--out", path)
        self.assertEqual(status, 0, out + err)
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        self.assertEqual([(row["way"], row["runs"], row["same"], row["timer"]) for row in rows],
                         [("native", 4, True, 2)] + [(way, 2, True, 2) for way in apps.WAYS])
        self.assertEqual(out.count("the same"), 1 + len(apps.WAYS))

    def test_different(self):
        for script in (STEADY + '; [ -z "$LD_PRELOAD" ] || echo more', STEADY + '; [ -z "$LD_PRELOAD" ] || exit 1',
                       STEADY.replace("PASSED", '${LD_PRELOAD:+FAILED}PASSED').replace("PASSED", "P${LD_PRELOAD:+X}ASSED", 1),
                       STEADY + '; echo "$LD_PRELOAD" >result'):
            status, out, _ = self.run_on(script, "--ways", "pool", files=["result"])
            self.assertEqual((status, out.count("DIFFERENT")), (1, 1), script + out)

    def test_settings_arrive(self):
        status, out, _ = self.run_on(STEADY + '; [ "$ALLOGRAFT_GRAPH" != all ] || echo replayed')
        self.assertEqual((status, [line.split(" | ")[0] for line in out.splitlines() if "DIFFERENT" in line]),
                         (1, ["| replay"]))

    def test_slower(self):
        status, out, _ = self.run_on(STEADY + '; [ -z "$LD_PRELOAD" ] || sleep 0.3', "--least", "0.99", "--ways", "default")
        self.assertEqual((status, out.count("DIFFERENT")), (1, 0))

    def test_what_differs_natively_is_not_compared(self):
        status, out, _ = self.run_on(STEADY + '; echo "seed $$"', "--ways", "pool")
        self.assertEqual((status, "natively 1 lines differ" in out), (0, True), out)
        status, out, _ = self.run_on(STEADY + '; touch a$$; ls', "--ways", "pool")
        self.assertEqual((status, "only the status and its own check" in out), (0, True), out)

    def test_not_to_be_had(self):
        for script, recipe, said in (("exit 4", {}, "natively it ended with 4"), ("echo", {}, "did not say PASSED"),
                                     ("", {"build": ["echo why; false"]}, "`echo why; false` ended with 1:\nwhy"),
                                     ("", {"run": "$(true)"}, "no command came of")):
            with self.subTest(said=said):
                status, out, err = self.run_on(script, **recipe)
                self.assertEqual((status, out), (3, ""))
                self.assertIn(said, err)

    def test_bad_words(self):
        for words, name, said in (((), "other", "no recipe is named other; there are tiny"), (("--runs", "0"), "tiny", "--runs"),
                                  (("--ways", "mine"), "tiny", "--ways=mine; there are default"),
                                  (("--library", "/no"), "tiny", "there is no /no")):
            with self.subTest(words=words):
                status, _, err = self.run_on("", *words, name=name)
                self.assertEqual(status, 2, err)
                self.assertIn(said, err)
        self.assertIn("tiny needs a program", self.run_on("", name="tiny", run="./{program}")[2])

    def test_recipes(self):
        for name, recipe in recipes.RECIPES.items():
            self.assertLessEqual({"source", "build", "run"}, set(recipe), name)
            apps.filled(name + "/x", self.folder, "sm_90")
            apps.noise_of(recipe)


if __name__ == "__main__":
    unittest.main()
