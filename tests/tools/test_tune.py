"""`allograft tune`: what it runs, what it compares, what it says, and every refusal. Which settings are best is
tests/tools/judge.c's business: here nothing depends on how long something takes."""

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time

import command
from command import CommandTest, allograft, clean_environment, paths

NAMES = ["as it is", "auto", "pool", "pool, frees that wait", "managed", "graphs", "auto and graphs",
         "auto, pinned memory kept"]


class TuneTest(CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def environment(self):
        return clean_environment(TMPDIR=self.folder)

    def tune(self, script, *args, stderr=""):
        """The table as JSON, of a shell script that is tuned."""
        result = allograft("tune", "--runs", "1", "--json", *args, "--", "sh", "-c", script, env=self.environment())
        self.assertEqual((result.returncode, result.stderr), (0, stderr), result.stdout)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("allograft-tune")], [])
        whole = json.loads(result.stdout)
        self.assertEqual(whole["schema"], "allograft-tune/1")
        self.assertEqual([t["name"] for t in whole["trials"]], NAMES)
        return whole

    def faults(self, *args, **kwargs):
        return [trial["fault"] for trial in self.tune(*args, **kwargs)["trials"]]


class Compared(TuneTest):
    def test_same(self):
        whole = self.tune("echo one; echo two >&2")
        self.assertEqual([t["fault"] for t in whole["trials"]], [None] * 8)
        self.assertTrue(whole["complete"] and whole["compared"])
        self.assertEqual(whole["runs"], 1)
        self.assertEqual([t["runs"] for t in whole["trials"]], [1] * 8)

    def test_other_output(self):
        self.assertEqual(self.faults('echo "$ALLOGRAFT_GRAPH"'), [None] * 5 + ["DIFFERENT OUTPUT"] * 2 + [None])

    def test_times_are_left_out(self):
        """Also one that is the same as long as nothing is faster."""
        whole = self.tune('echo "sum 7"; echo "run: $([ -z "$ALLOGRAFT_GRAPH" ] && echo 4 || echo 1) us"; '
                          'echo "kernel time $(date +%N)"')
        self.assertEqual([t["fault"] for t in whole["trials"]], [None] * 8)
        self.assertEqual((whole["compared"], whole["lines"], whole["lines_left_out"]), (True, 3, 2))

    def test_what_differs_as_it_is_is_left_out(self):
        whole = self.tune('echo "process $$"; echo "sum $ALLOGRAFT_GRAPH"')
        self.assertEqual([t["fault"] for t in whole["trials"]], [None] * 5 + ["DIFFERENT OUTPUT"] * 2 + [None])
        self.assertEqual((whole["compared"], whole["lines"], whole["lines_left_out"]), (True, 2, 1))

    def test_other_number_of_lines(self):
        self.assertEqual(self.faults('echo one; [ -z "$ALLOGRAFT_GRAPH" ] || echo took 3 ms'),
                         [None] * 5 + ["DIFFERENT OUTPUT"] * 2 + [None])

    def test_left_out_lines_are_told(self):
        result = allograft("tune", "--runs", "1", "sh", "-c", "echo $$; echo two", env=self.environment())
        self.assertIn("Lines not compared, since they report times or vary between native runs: 1 of 2.\n",
                      result.stdout)

    def test_not_looked_at(self):
        self.assertEqual(self.faults('echo "$ALLOGRAFT_GRAPH"', "--compare", "none"), [None] * 8)

    def test_other_status(self):
        self.assertEqual(self.faults('[ "$ALLOGRAFT_POLICY" != managed ]'),
                         [None] * 4 + ["different exit status"] + [None] * 3)

    def test_signal(self):
        self.assertEqual(self.faults('[ -z "$ALLOGRAFT_FREE" ] || kill -KILL $$'),
                         [None] * 3 + ["ended by a signal"] + [None] * 4)

    def test_file(self):
        path = os.path.join(self.folder, "result")
        self.assertEqual(self.faults(f'echo $$; echo "$ALLOGRAFT_FREE" > {path}', "--compare", "file:" + path),
                         [None] * 3 + ["DIFFERENT OUTPUT"] + [None] * 4)

    def test_never_the_same(self):
        result = allograft("tune", "--runs", "1", "--json", "sh", "-c", "echo $$", env=self.environment())
        self.assertEqual(result.returncode, 0)
        self.assertIn("differs from run to run even without Allograft", result.stderr)
        self.assertFalse(json.loads(result.stdout)["compared"])

    def test_too_slow(self):
        self.assertEqual(self.faults('[ "$ALLOGRAFT_POLICY" != managed ] || sleep 100', "--timeout", "8"),
                         [None] * 4 + ["took too long"] + [None] * 3)

    def test_too_slow_in_a_script(self):
        """What the program started ends with it: it would go on beside the next runs."""
        started = os.path.join(self.folder, "started")
        script = f'[ "$ALLOGRAFT_POLICY" != managed ] || {{ sh -c "echo \\$\\$ >{started}; sleep 100; :"; :; }}'
        self.assertEqual(self.faults(script, "--timeout", "8"), [None] * 4 + ["took too long"] + [None] * 3)
        with open(started, encoding="utf-8") as file:
            self.assertRaises(ProcessLookupError, os.kill, int(file.read()), 0)


class Programs(TuneTest):
    def test_peak_of_a_real_program(self):
        demo = os.path.join(paths.sim, "demo", "demo-sim")
        env = dict(self.environment(), LD_LIBRARY_PATH=paths.sim)
        result = allograft("tune", "--runs", "1", "--json", "--metric", "peak", "--", demo, env=env, unused=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        whole = json.loads(result.stdout)
        self.assertEqual([t["fault"] for t in whole["trials"]], [None] * 8)
        report = os.path.join(self.folder, "a.json")
        with open(report, "w", encoding="utf-8") as file:
            file.write("{}")
        without = "made without jansson" in allograft("report", report).stderr  # then peaks are not known
        for trial in whole["trials"]:
            # What the device gave: the program's 2 MiB, which the cache and a slab make 4, and the pool's chunk 32.
            expected = 32 << 20 if "pool" in trial["name"] else 2097408 if trial["name"] in ("as it is", "graphs") else None
            if expected or without:
                self.assertEqual(trial["peak_bytes"], 0 if without else expected, trial)
            else:
                self.assertEqual(trial["peak_bytes"], 4 << 20, trial)
        self.assertEqual(whole["best"], 0)

    def test_memory_that_runs_short(self):
        """Then all that ALLOGRAFT_OOM can do is tried, too."""
        demo = os.path.join(paths.sim, "demo", "demo-sim")
        env = dict(self.environment(), LD_LIBRARY_PATH=paths.sim, ALLOGRAFT_LIMIT="1MiB")
        result = allograft("tune", "--runs", "1", "--json", "--metric", "peak", "--", demo, env=env, unused=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        trials = json.loads(result.stdout)["trials"]
        self.assertEqual([t["name"] for t in trials], NAMES + ["auto, OOM=error", "auto, OOM=spill", "auto, OOM=page"])
        self.assertEqual([t["fault"] for t in trials], [None] + ["different exit status"] * 8 + [None] * 2)
        self.assertIn("ALLOGRAFT_OOM=page", trials[-1]["settings"])

    def test_without_cuda(self):
        """One line, at once; none where a child of the program used it."""
        result = allograft("tune", "--runs=1", "--json", "true", env=self.environment(), unused=True)
        self.assertEqual(result.returncode, 0)
        self.assertIsNotNone(command.UNUSED.fullmatch(result.stderr), result.stderr)
        unused = "nothing of the program made a CUDA call that came through"
        self.assertEqual(json.loads(result.stdout)["verdict"]["held_back"][:len(unused)], unused)
        result = allograft("tune", "--runs=1", "--json", "sh", "-c", '[ -n "$ALLOGRAFT_POLICY" ] || sleep 1',
                           env=self.environment(), unused=True)
        whole = json.loads(result.stdout)
        self.assertEqual((whole["best"], whole["verdict"]["gained"][:7], whole["verdict"]["try"]),
                         (0, "nothing", "the program as it is"))
        self.assertGreater(whole["trials"][0]["median_ns"], 1000000000)
        script = os.path.join(paths.sim, "demo", "demo-sim") + " >&2; echo done"
        result = allograft("tune", "--runs=1", "--metric=peak", "--json", "--", "sh", "-c", script,
                           env=dict(self.environment(), LD_LIBRARY_PATH=paths.sim), unused=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(json.loads(result.stdout)["verdict"]["held_back"], "nothing that was measured")

    def test_table_and_files(self):
        config, page = os.path.join(self.folder, "best.conf"), os.path.join(self.folder, "page.html")
        result = allograft("tune", "--runs", "2", "--write", config, "--html", page, "true", env=self.environment())
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for name in NAMES:
            self.assertIn(name, result.stdout)
        lines = result.stdout.splitlines()
        self.assertEqual([line[:11] for line in lines[:5]],
                         ["gained:    ", "held back: ", "try:       ", "", "Runs of tru"])
        self.assertTrue(lines[1].startswith("held back: nothing of the program made a CUDA call"), lines[1])
        with open(page, encoding="utf-8") as file:
            text = file.read()
        for words in NAMES + ["<code>true</code>", "2 runs with each setting", "<p>Best", "spread "]:
            self.assertIn(words, text)
        checked = allograft("options", "--check", env=dict(self.environment(), ALLOGRAFT_CONFIG=config))
        self.assertEqual(checked.returncode, 0, checked.stderr)
        # Nothing won, so nothing is set: not even that later runs are without Allograft.
        with open(config, encoding="utf-8") as file:
            self.assertEqual([line for line in file if not line.startswith("#")], [])

    def test_best_can_be_pasted_into_a_shell(self):
        report = 'case $ALLOGRAFT_STATS in */*) echo {} >"${ALLOGRAFT_STATS%/*}/1.json"; esac; '  # it used CUDA
        script = report + '[ -n "$ALLOGRAFT_POLICY" ] || sleep 2; echo "it\'s"'
        result = allograft("tune", "--runs", "1", "sh", "-c", script, env=self.environment())
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("Runs of sh, 1 with each setting, in turn", result.stdout)
        line, = [line for line in result.stdout.splitlines() if " allograft run -- " in line]
        self.assertEqual(shlex.split(line.partition(" -- ")[2]), ["sh", "-c", script])

    def test_interrupted(self):
        started = os.path.join(self.folder, "started")
        script = f'[ -z "$ALLOGRAFT_GRAPH" ] || {{ touch {started}; exec sleep 100; }}'
        env = self.environment()
        with subprocess.Popen([paths.command, "tune", "--runs", "3", "sh", "-c", script], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as child:
            for _ in range(1200):
                if os.path.exists(started):
                    break
                time.sleep(0.1)
            os.killpg(child.pid, signal.SIGINT)
            out, err = child.communicate(timeout=60)
        self.assertEqual((child.returncode, command.UNUSED.sub("", err)), (0, ""))
        self.assertIn("Stopped after 0 of 3 runs of each setting.", out)
        said = [line.rsplit("  ", 1)[1] for name in NAMES for line in out.splitlines() if line[2:].startswith(name + "  ")]
        self.assertEqual(said, ["the same"] * 5 + ["not run"] * 3, out)

    def ended(self, number, when, *args):
        """What `tune` prints where it alone gets a signal, in a run for which the test `when` holds."""
        started, data = os.path.join(self.folder, "started"), os.path.join(self.folder, "data")
        with open(data, "w", encoding="utf-8") as file:
            file.write("years of work")
        script = f'if {when}; then echo $$ >{started}-; mv {started}- {started}; exec sleep 100; fi; echo 1 >{data}'
        with subprocess.Popen([paths.command, "tune", *args, "--compare", "file:" + data, "sh", "-c", script], text=True,
                              env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)) as child:  # nohup has it ignored
            for _ in range(1200):
                if os.path.exists(started):
                    break
                time.sleep(0.1)
            child.send_signal(number)
            out, err = child.communicate(timeout=60)
        with open(started, encoding="utf-8") as file:
            self.assertRaises(ProcessLookupError, os.kill, int(file.read()), 0)
        self.assertEqual(command.UNUSED.sub("", err), "")
        os.unlink(started)
        self.assertLessEqual(set(os.listdir(self.folder)), {"data"})
        return child.returncode, out

    def test_ended(self):
        """The program ends, too, and nothing is left of it; what it has not written is as it was."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            self.assertEqual(self.ended(number, "true"), (1, ""))
            with open(os.path.join(self.folder, "data"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "years of work")
            status, out = self.ended(number, '[ "$ALLOGRAFT_POLICY" = pool ]')
            self.assertEqual(status, 0)
            self.assertIn("Stopped after 0 of 5 runs of each setting.", out)


class Refusals(TuneTest):
    def test_options(self):
        for args, said in ((["--runs", "0", "x"], "1..99"), (["--runs=100", "x"], "1..99"),
                           (["--metric", "speed", "x"], "time|peak|both"), (["--metric=tmie", "x"], "did you mean time?"),
                           (["--compare", "file:", "x"], "stdout|file:PATH|none"),
                           (["--timeout", "-1", "x"], "1..1000000"), (["--fast", "x"], "--fast"),
                           (["--runs"], "needs a value"), ([], "program [args]"), (["--"], "program [args]")):
            self.assert_refused(allograft("tune", *args), said)
        self.assertIn("--metric", allograft("tune", "--help").stdout)

    def test_bad_setting(self):
        result = allograft("tune", "true", env=clean_environment(ALLOGRAFT_POLICY="pol"))
        self.assertEqual((result.returncode, result.stdout), (2, ""))

    def test_programs_that_fail(self):
        self.assert_refused(allograft("tune", "sh", "-c", "echo oh no >&2; exit 3", env=self.environment()),
                            "exit status 3", "oh no", status=1)
        self.assert_refused(allograft("tune", "/nowhere/at/all", env=self.environment()), "No such file", status=1)
        self.assert_refused(allograft("tune", "--compare", "file:/nowhere/x", "true", env=self.environment()),
                            "did not write /nowhere/x", status=1)

    def test_no_temporary_folder(self):
        """At the first run, and at a later one."""
        said = "no temporary folder could be made: No such file"
        self.assert_refused(allograft("tune", "true", env=clean_environment(TMPDIR="/nowhere")), said, status=1)
        gone = os.path.join(self.folder, "gone")
        os.mkdir(gone)
        self.assert_refused(allograft("tune", "rm", "-rf", gone, env=clean_environment(TMPDIR=gone)), said, status=1)


if __name__ == "__main__":
    command.main()
