"""apps.py, suite.py, tuned.py and pressed.py on programs of a few lines, which show what they would see of real ones.

usage: test_apps.py LIBRARY ALLOGRAFT
"""

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY, ALLOGRAFT = sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, HERE)

import apps  # noqa: E402
import pressed  # noqa: E402
import programs  # noqa: E402
import recipes  # noqa: E402
import suite  # noqa: E402
import tuned  # noqa: E402

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
                                  (("--library", "/no"), "tiny", "there is no /no"),
                                  (("--timeout", "-1"), "tiny", "--timeout must be above 0, not -1"),
                                  (("--out", self.folder), "tiny", f"--out {self.folder}: Is a directory")):
            with self.subTest(words=words):
                status, _, err = self.run_on("", *words, name=name)
                self.assertEqual(status, 2, err)
                self.assertIn(said, err)
        status, out, err = self.run_on("", "--no-build", run="./never-built")
        self.assertEqual((status, out, "never-built" in err, len(err.splitlines())), (3, "", True, 1), err)
        self.assertIn("tiny needs a program", self.run_on("", name="tiny", run="./{program}")[2])

    def test_recipes(self):
        for name, recipe in recipes.RECIPES.items():
            self.assertLessEqual({"source", "build", "run"}, set(recipe), name)
            apps.filled(name + "/x", self.folder, "sm_90")
            apps.noise_of(recipe)


class Packs(unittest.TestCase):
    """Packs programs, takes their sources away, and runs them."""

    STEADY = 'echo "$1, $(cat ../data/read)"; echo "id $$"; echo "took $RANDOM"; echo "total: 2 s"\n'

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.sources, self.pack, self.out = (os.path.join(folder.name, name) for name in ("sources", "pack", "out"))
        self.addCleanup(setattr, recipes, "RECIPES", recipes.RECIPES)
        self.addCleanup(setattr, programs, "PROGRAMS", programs.PROGRAMS)

    def call(self, *words, script=suite):
        """Exit status, standard output, standard error."""
        out, err = io.StringIO(), io.StringIO()
        was = sys.argv
        sys.argv = [script.__name__ + ".py", *words]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = script.main()
        except SystemExit as end:
            status = end.code
        finally:
            sys.argv = was
        return status, out.getvalue(), err.getvalue()

    def make(self, scripts, **more):
        """A pack of the programs {name: (lists, script)}, each of which reads a file and is given a word."""
        recipes.RECIPES = {"tiny": {"source": "here", "noise": ["took"], "timer": r"total: (\d+) s", "run": "true",
                                    "build": ["chmod +x {program}"], "binary": "{program}"}}
        programs.PROGRAMS = {f"tiny/{name}": {"lists": lists, "arguments": "word", "reads": ["../data/read"],
                                              "noise": ["^id "], **more} for name, (lists, _) in scripts.items()}
        checkout = os.path.join(self.sources, "checkout")
        for path, text in (("../data/read", "what is read"), *((name, script) for name, (_, script) in scripts.items())):
            path = os.path.join(checkout, path)
            os.makedirs(os.path.dirname(path) if "data" in path else checkout, exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text if "data" in path or text.startswith("#!") else "#!/bin/bash\n" + text)
        status = self.call("--pack", self.pack, "--source", "tiny=" + checkout)
        shutil.rmtree(self.sources)
        return status

    def run_pack(self, *words):
        status, out, err = self.call("--run", self.pack, "--library", LIBRARY, "--out", self.out, "--runs", "3",
                                     "--least", "0.01", *words)
        rows = {}
        if os.path.exists(os.path.join(self.out, "results.json")):
            with open(os.path.join(self.out, "results.json"), encoding="utf-8") as file:
                rows = {row["name"].partition("/")[2]: row for row in json.load(file)}
        return status, rows, out + err


class Suite(Packs):
    def test_same(self):
        status, out, err = self.make({"one": ("a", self.STEADY), "two": ("ab", self.STEADY)})
        self.assertEqual((status, "2 programs are in" in out), (0, True), out + err)
        status, rows, said = self.run_pack()
        self.assertEqual(status, 0, said)
        for name, ways in (("one", ["native", "default"]), ("two", ["native", "default", "replay"])):
            row = rows[name]
            self.assertEqual((row["output"], row["turns"], row["lines_compared"], list(row["ways"])),
                             ("the same", 3, 2, ways))
            self.assertEqual(row["compared_ways"], list(apps.WAYS))
            self.assertEqual([(len(way["all"]), way["timer_ratio"]) for way in row["ways"].values()], [(3, 1)] * len(ways))
        self.assertIn("list a, default: 2 programs", said)
        self.assertIn("list b, replay: 1 programs", said)

    def test_different(self):
        self.make({"one": ("c", self.STEADY + '[ "$ALLOGRAFT_POLICY" != pool ] || echo more'),
                   "two": ("c", self.STEADY + '[ "$ALLOGRAFT_GRAPH" != all ] || exit 1')})
        status, rows, _ = self.run_pack()
        self.assertEqual((status, rows["one"]["output"], rows["two"]["output"]),
                         (1, "DIFFERENT: pool, managed", "DIFFERENT: replay"))
        self.assertEqual(rows["one"]["native_runs"], 2 + 3 + 3)
        with open(os.path.join(self.out, "tiny-one.pool.0.txt"), encoding="utf-8") as file:
            self.assertIn("total: 2 s\nmore\n", file.read())

    def test_guards(self):
        """What a guard says on stderr counts, also where the output is not deterministic; no time is taken."""
        said = '[ "$ALLOGRAFT_GUARD" != %s ] || echo "  what guards found" >&2'
        self.make({"one": ("c", self.STEADY), "two": ("c", self.STEADY + said % "canary"),
                   "three": ("c", self.STEADY + "touch $$; ls; " + said % "page")})
        status, rows, _ = self.run_pack("--ways", "poison,canary,page", "--no-timing")
        self.assertEqual((status, [rows[name]["output"] for name in ("one", "two", "three")]),
                         (1, ["the same", "DIFFERENT: canary", "DIFFERENT: page"]))
        self.assertEqual([row["turns"] for row in rows.values()], [0, 0, 0])
        self.assertEqual(list(apps.GUARDS), ["poison", "canary", "page"])

    def test_different_only_while_measured(self):
        """The first run of the default way is as natively, the second is not."""
        self.make({"one": ("c", self.STEADY + '[ -z "$LD_PRELOAD" ] || echo >>seen; '
                                              '[ -z "$LD_PRELOAD" ] || [ $(wc -l <seen) = 1 ] || echo more')})
        status, rows, _ = self.run_pack("--ways", "default")
        self.assertEqual((status, rows["one"]["output"]), (1, "DIFFERENT: default"))

    def test_not_deterministic(self):
        """From the third run on, one line differs, natively as well."""
        self.make({"seldom": ("c", self.STEADY + "echo >>seen; [ $(wc -l <seen) -lt 3 ] && echo few || echo many"),
                   "lines": ("c", self.STEADY + "touch $$; ls")})
        status, rows, _ = self.run_pack("--ways", "default", "--runs", "1")
        self.assertEqual((status, rows["seldom"]["output"], rows["lines"]["output"]),
                         (0, "the same, 1 lines not deterministic", "not deterministic, status and own check the same"))
        self.assertEqual(rows["seldom"]["native_runs"], 2 + 1 + 1)

    def test_not_to_be_had(self):
        self.make({"fails": ("c", "echo why >&2; exit 4"), "hangs": ("c", self.STEADY + '[ -z "$LD_PRELOAD" ] || sleep 60')})
        status, rows, said = self.run_pack("--timeout", "1", "--ways", "pool")
        self.assertEqual((status, rows["fails"]["trouble"], rows["hangs"]["trouble"]),
                         (1, "natively it ended with 4, passed: why", "pool: it took more than 1 s"))
        self.assertIn("not run: 2", said)
        status, rows, _ = self.run_pack("--no-check", "--only", "tiny/fails", "--ways", "default")
        self.assertEqual((status, rows["fails"]["trouble"]), (1, "natively it ended with 4, passed: why"))

    def test_not_built(self):
        status, out, err = self.make({"one": ("c", self.STEADY)})
        programs.PROGRAMS["tiny/none"] = {"lists": "c"}
        programs.PROGRAMS["other/one"] = {"lists": "c"}
        os.makedirs(self.sources)
        status, out, err = self.call("--pack", self.pack, "--source", "tiny=" + self.sources)
        self.assertEqual((status, "0 programs are in" in out, "other/one: no --source for it" in err,
                          "tiny/none: `chmod +x none` ended with 1" in err), (1, True, True, True), out + err)
        status, out, err = self.call("--pack", self.pack, "--source", "tiny=" + self.sources, "--no-build")
        self.assertIn("No such file", err)
        self.assertNotIn("ended with", err)

    def test_budget(self):
        """The number of turns is odd, and what there was no time for is said."""
        slow = self.STEADY + "sleep 0.4"
        self.make({"one": ("c", slow), "two": ("c", slow)})
        status, rows, _ = self.run_pack("--ways", "default", "--budget", "4", "--no-check", "--runs", "99")
        turns = [rows[name]["turns"] for name in ("one", "two")]
        self.assertEqual((status, [n % 2 for n in turns]), (0, [1, 1]))
        self.assertLess(max(turns), 9)
        self.assertEqual(rows["one"]["output"], "the same")
        status, rows, _ = self.run_pack("--no-check", "--runs", "1")
        self.assertEqual((status, rows["one"]["output"]), (0, "the same under default"))
        status, rows, said = self.run_pack("--budget", "0")
        self.assertEqual((status, rows["one"]["trouble"], rows["one"]["turns"]), (1, "no time was left for it", 0))

    def test_children(self):
        """What is measured of a program of Python runs in children of one process that has imported what it asks for."""
        program = ("#!/usr/bin/env python3\n"
                   "import fractions, os, sys\n"
                   "with open('seen', 'a') as file:\n"
                   "    print(os.getppid(), os.environ.get('ALLOGRAFT_DISABLE'), os.environ.get('ALLOGRAFT_GRAPH'), file=file)\n"
                   "print(sys.argv, fractions.Fraction(1, 2), sys.stdin.read(), open('../data/read').read())\n"
                   "print('total: 2 s')\n")
        self.make({"steady": ("p", program), "ends": ("p", program + "os.environ.get('ALLOGRAFT_GRAPH') and sys.exit(3)\n"),
                   "sleeps": ("p", program + "import time\n'ALLOGRAFT_POLICY' in os.environ and time.sleep(9)\n")},
                  imports=["fractions"])
        status, rows, said = self.run_pack("--no-check", "--ways", "default,replay", "--only", "tiny/steady,tiny/ends")
        self.assertEqual((status, rows["steady"]["output"], rows["ends"]["output"]),
                         (1, "the same", "DIFFERENT: replay"), said)
        self.assertEqual({way: len(figures["all"]) for way, figures in rows["steady"]["ways"].items()},
                         {"native": 3, "default": 3, "replay": 3})
        with open(os.path.join(self.pack, "tiny-steady", "seen"), encoding="utf-8") as file:
            seen = [line.split() for line in file]
        forth = [["1", "None"], ["None", "None"], ["None", "all"]]
        self.assertEqual([words[1:] for words in seen], [["1", "None"]] + forth + forth[::-1] + forth)
        self.assertEqual(len({words[0] for words in seen}), 1)
        status, rows, said = self.run_pack("--no-check", "--ways", "pool", "--time-all", "--timeout", "2", "--only", "tiny/sleeps")
        self.assertEqual((status, rows["sleeps"]["trouble"]), (1, "pool: it took more than 2 s"), said)

    def test_cost_of_children(self):
        """How long imports take does not count where there is a parent that has done them."""
        program = ("#!/usr/bin/env python3\n"
                   "import sys, time\n"
                   "time.sleep(0 if 'fractions' in sys.modules else 1.2)\n"
                   "print('total: 2 s')\n")
        self.make({"one": ("p", program)}, imports=["fractions"])
        status, rows, said = self.run_pack("--ways", "default", "--budget", "8", "--first", "3")
        self.assertEqual((rows["one"]["output"], rows["one"]["turns"]), ("the same", 3), said)

    def test_no_parent(self):
        """What cannot be imported is said, and nothing is measured."""
        self.make({"one": ("p", "#!/usr/bin/env python3\n")})
        case = suite.Case({"name": "one", "folder": "tiny-one", "lists": "p", "command": ["./one"],
                           "imports": ["no_such_module"]}, self.pack)
        refusals = []
        for _ in range(2):  # the second time it is known
            with self.assertRaisesRegex(OSError, "no parent for no_such_module: .*No module named") as caught:
                suite.ForkedRun(case.recipe, {"LD_PRELOAD": LIBRARY}, 9)
            refusals.append(caught.exception)
        self.assertIs(refusals[0], refusals[1])

    def test_order(self):
        cases = [suite.Case({"name": name, "folder": "", "lists": lists}, "")
                 for name, lists in (("p", "a"), ("q", "ab"), ("r", "b"), ("s", "c"))]
        self.assertEqual([case.name for case in suite.in_order(cases)], ["p", "r", "s", "q"])

    def test_bad_words(self):
        self.make({"one": ("c", self.STEADY)})
        for words, said in ((("--runs", "2"), "must be odd"), (("--first", "5"), "must be odd, not 3 and 5"),
                            (("--only", "other/x"), "--only=other/x"), (("--ways", "mine"), "--ways=mine"),
                            (("--library", "/no"), "there is no /no"), (("--run", "/no"), "there is no /no/manifest.json")):
            with self.subTest(words=words):
                status, _, err = self.run_pack(*words)
                self.assertEqual(status, 2, err)
                self.assertIn(said, err)
        self.assertIn("--source", self.call("--pack", self.pack, "--source", "other=/")[2])

    def test_programs(self):
        wanted = {"a": 20, "b": 20, "c": 10, "d": 5, "e": 5, "h": 10, "p": 9}
        for one, n in wanted.items():
            self.assertGreaterEqual(sum(one in program["lists"] for program in programs.PROGRAMS.values()), n, one)
        for name, program in programs.PROGRAMS.items():
            self.assertLessEqual(set(program["lists"]), set(wanted), name)
            self.assertIn("binary", apps.filled(name, self.pack, "sm_90"), name)
        self.assertEqual(len(self.call("--list")[1].splitlines()), len(programs.PROGRAMS))


class Tuned(Packs):
    SETTINGS = [("as it is", []), ("auto", ["ALLOGRAFT_POLICY=auto"]),
                ("auto and graphs", ["ALLOGRAFT_POLICY=auto", "ALLOGRAFT_GRAPH=all"]), ("managed", ["ALLOGRAFT_POLICY=managed"])]

    def command(self, best, took):
        """Says what tune would, of so many seconds under each of the settings."""
        said = {"best": best, "trials": [{"name": name, "settings": settings, "median_ns": 1e9 * seconds, "fault": None}
                                         for (name, settings), seconds in zip(self.SETTINGS, took)]}
        path = os.path.join(self.pack, "allograft")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho '{json.dumps(said)}'\n")
        os.chmod(path, 0o755)
        return path

    def tune(self, command, *words, ways=None):
        results = os.path.join(self.pack, "measured.json")
        with open(results, "w", encoding="utf-8") as file:
            json.dump([{"name": "tiny/one", "ways": {way: {"ratio": ratio} for way, ratio in (ways or {}).items()}}], file)
        status, out, err = self.call(self.pack, "--command", command, "--out", self.out, "--results", results, *words,
                                     script=tuned)
        with open(os.path.join(self.out, "tuned.json"), encoding="utf-8") as file:
            return status, {row["name"].partition("/")[2]: row for row in json.load(file)}, out + err

    def test_picks(self):
        self.make({"one": ("a", self.STEADY)})
        for best, took, ways, wanted in ((1, (2, 1, 2, 2), {"native": 1, "default": 1.9, "replay": 1.2}, ("default", True, 0)),
                                         (2, (2, 2, 1, 2), {"native": 1, "default": 1.9, "replay": 1.2}, ("default", False, 1)),
                                         (2, (2, 2, 1, 2), {"native": 1, "default": 1.90, "replay": 1.88}, ("default", True, 0)),
                                         (0, (1, 2, 2, 2), {"native": 1, "default": 1.02, "replay": 0.9}, ("native", True, 0)),
                                         (0, (1, 2, 2, 2), {"native": 1, "default": 1.2, "replay": 0.9}, ("default", False, 1)),
                                         (3, (2, 2, 2, 1), {"native": 1, "default": 1.2}, ("default", None, 0)),
                                         (1, (2, 1, 2, 2), None, (None, None, 0))):
            with self.subTest(best=best, ways=ways):
                status, rows, said = self.tune(self.command(best, took), ways=ways)
                row = rows["one"]
                self.assertEqual((row["best"], row["right"], status), wanted, said)
                self.assertEqual((row["pick"], row["gain"]), (self.SETTINGS[best][0], took[0] / took[best]))
                self.assertIn({True: "1 right, 0 wrong", False: "0 right, 1 wrong", None: "0 right, 0 wrong"}[row["right"]], said)

    def test_as_it_speaks(self):
        """The real one, of programs that use no CUDA, or fail."""
        self.make({"one": ("a", self.STEADY), "fails": ("c", "exit 4"), "python": ("p", self.STEADY)})
        status, rows, said = self.tune(ALLOGRAFT, "--runs", "1", ways={"native": 1, "default": 1.0})
        self.assertEqual((status, rows["one"]["pick"], rows["one"]["gain"], rows["one"]["right"]), (0, "as it is", 1, True), said)
        self.assertIn("fails without Allograft", rows["fails"]["trouble"])
        self.assertNotIn("python", rows)
        status, rows, said = self.tune(ALLOGRAFT, "--budget", "0")
        self.assertEqual((status, rows), (0, {}), said)

    def test_bad_words(self):
        self.make({"one": ("c", self.STEADY)})
        for words, said in (((self.pack, "--command", "/no"), "there is no /no"), (("/no", "--command", ALLOGRAFT), "/no/manifest"),
                            ((self.pack, "--command", ALLOGRAFT, "--results", "/no"), "there is no /no"),
                            ((self.pack, "--command", ALLOGRAFT, "--only", "other/x"), "--only=other/x")):
            with self.subTest(words=words):
                status, _, err = self.call(*words, "--out", self.out, script=tuned)
                self.assertEqual(status, 2, err)
                self.assertIn(said, err)


class PressedPrograms(Packs):
    # Instead of the library, each writes its report. A turn takes $SPILL or $PAGE of its own seconds.
    REPORT = ('[ -z "$ALLOGRAFT_STATS" ] || echo \'{"devices": [{"peak_bytes": 4000}], "pressure": {"moves": 7}}\' '
              '>"${ALLOGRAFT_STATS//%p/$$}"; [ -z "$ALLOGRAFT_STATS" ] || echo \'{"devices": []}\' >"${ALLOGRAFT_STATS//%p/1}"\n')
    TIMED = ('echo "$1, $(cat ../data/read)"; case $ALLOGRAFT_OOM in spill) echo "took total: $SPILL s";; page) echo "took total: $PAGE s";;'
             ' *) echo "took total: 1 s";; esac\n')

    def press(self, script, *words, report=REPORT, spill=9, page=3):
        self.make({"one": ("a", f"SPILL={spill} PAGE={page}\n" + report + script), "other": ("a", "exit 1")})
        manifest = os.path.join(self.pack, "manifest.json")
        with open(manifest, encoding="utf-8") as file:
            known = json.load(file)
        known[0]["pressed"] = [known[0]["command"][0], "large"]
        with open(manifest, "w", encoding="utf-8") as file:
            json.dump(known, file)
        status, out, err = self.call(self.pack, "--library", LIBRARY, "--out", self.out, *words, script=pressed)
        with open(os.path.join(self.out, "pressed.json"), encoding="utf-8") as file:
            rows = json.load(file)
        self.assertEqual([row["name"] for row in rows], ["tiny/one"])
        return status, rows[0], out + err

    def test_same(self):
        limits = 'echo "$ALLOGRAFT_OOM $ALLOGRAFT_LIMIT" >>seen\n'
        status, row, said = self.press(self.TIMED + limits, "--runs", "2")
        self.assertEqual((status, row["output"], row["peak_bytes"], row["gains"]),
                         (0, "the same", 4000, {"0.75": 3, "0.5": 3}), said)
        self.assertEqual((row["native"], row["seconds"]["page 0.5"], row["moved"]["page 0.5"]), (1, 3, {"moves": 7}))
        self.assertIn("at 0.5: 1 programs, page 3.00 times as fast as spill in the geometric mean, 3.00 at least", said)
        with open(os.path.join(self.pack, "tiny-one", "seen"), encoding="utf-8") as file:
            seen = [line.split() for line in file]
        forth = [["spill", "3000"], ["page", "3000"], ["spill", "2000"], ["page", "2000"]]
        self.assertEqual(seen, [[], [], []] + forth + forth[::-1])

    def test_slower(self):
        status, row, said = self.press(self.TIMED, "--shares", "0.5", page=10)
        self.assertEqual((status, row["gains"]), (1, {"0.5": 0.9}), said)

    def test_different(self):
        status, row, said = self.press(self.TIMED + '[ "$ALLOGRAFT_OOM" != page ] || echo more\n')
        self.assertEqual((status, row["output"]), (1, "DIFFERENT: page 0.75, page 0.5"), said)
        with open(os.path.join(self.out, "tiny-one.page 0.5.0.txt"), encoding="utf-8") as file:
            self.assertIn("more\n", file.read())

    def test_not_to_be_had(self):
        for script, report, said in (("exit 3", self.REPORT, "natively it ended with 3"),
                                     (self.TIMED, "", "by default: it ended with 0 and left no report: no word of it"),
                                     (self.TIMED, self.REPORT.replace("4000", "0"), "it has no memory of the device"),
                                     (self.TIMED + '[ "$ALLOGRAFT_OOM" != page ] || sleep 60\n', self.REPORT, "timed out")):
            with self.subTest(said=said):
                status, row, out = self.press(script, "--timeout", "1", report=report)
                self.assertEqual((status, said in row["trouble"], said in out), (1, True, True), out)

    def test_bad_words(self):
        self.make({"one": ("a", self.STEADY)})
        for words, said in ((("--shares", "1.5"), "--shares"), (("--runs", "0"), "--runs must be 1 or more, not 0"),
                            (("--library", "/no"), "there is no /no"), (("--only", "tiny/one"), "--only=tiny/one")):
            with self.subTest(words=words):
                status, _, err = self.call(self.pack, "--library", LIBRARY, "--out", self.out, *words, script=pressed)
                self.assertEqual(status, 2, err)
                self.assertIn(said, err)


if __name__ == "__main__":
    unittest.main()
