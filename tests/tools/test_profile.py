"""`allograft profile`: one command, one page; the program is what it was, and nothing else is left behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import command
from command import HOLDER, CommandTest, allograft, clean_environment, paths


def end_session(leader):
    """What a failed test leaves."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


class ProfileTest(CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.tmp = folder.name, os.path.join(folder.name, "tmp", "not for long")
        os.makedirs(self.tmp)
        self.demo = os.path.join(paths.sim, "demo", "demo-sim")
        if not os.path.exists(self.demo):
            self.skipTest("the demo was not built")
        report = self.file("a.json", "{}")
        if "made without jansson" in allograft("report", report).stderr:
            self.skipTest("made without jansson")
        os.unlink(report)

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def environment(self, **settings):
        return clean_environment(**{"TMPDIR": self.tmp, "LD_LIBRARY_PATH": paths.sim, **settings})

    def profile(self, *args, status=0, **settings):
        """Runs it in self.folder, where the page goes; nothing temporary is left."""
        result = allograft("profile", *args, env=self.environment(**settings), cwd=self.folder, unused=True)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(os.listdir(self.tmp), [])
        return result

    def script(self, script, *args, **kwargs):
        return self.profile(*args, "--", "sh", "-c", script.replace("DEMO", self.demo), **kwargs)

    def page(self, name="profile.html"):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def pages(self):
        return sorted(name for name in os.listdir(self.folder) if name != "tmp")


class Pages(ProfileTest):
    def test_of_a_program(self):
        native = subprocess.run([self.demo], env=self.environment(), stdout=subprocess.PIPE, text=True, check=True)
        result = self.profile(self.demo)
        self.assertEqual(result.stdout, native.stdout)
        lines = result.stderr.splitlines()
        self.assertEqual([line[:13] for line in lines[:3]], ["  gained:    ", "  held back: ", "  try:       "])
        self.assertTrue(lines[3].startswith("  memory:    at most "), lines[3])
        self.assertEqual(lines[4:], ["allograft: profile: the page of 1 process is profile.html"])
        page = self.page()
        self.assertIn("<title>demo-sim: Allograft report</title>", page)
        self.assertIn("Who held memory", page)  # of the stacks
        self.assertIn("Who waited", page)
        self.assertEqual(page.count('<div class="flames">'), 2)
        self.assertIn('"series":[', page)  # of the trace
        self.assertEqual(self.pages(), ["profile.html"])

    def test_goes_where_it_is_told(self):
        for option, name in (("-o", "a.html"), ("--output", "b.html")):
            result = self.profile(option, name, "--", self.demo)
            self.assertTrue(result.stderr.endswith(f" is {name}\n"), result.stderr)
            self.assertIn("Who held memory", self.page(name))
        self.assertEqual(self.pages(), ["a.html", "b.html"])

    def test_is_made_again(self):
        self.profile(self.demo)
        os.truncate(os.path.join(self.folder, "profile.html"), 600)
        self.profile(self.demo)
        self.assertIn("Who held memory", self.page())

    def test_of_several_processes(self):
        result = self.script("DEMO & DEMO; wait; exec DEMO")
        self.assertIn("the page of 3 processes is profile.html", result.stderr)
        page = self.page()
        self.assertEqual(page.count('<div class="flames">'), 6)
        self.assertEqual(page.count('"series":['), 3)
        self.assertEqual(len(set(re.findall(r"process (\d+)", page))), 3)

    def test_of_a_killed_process(self):
        """Its counters are what is left of it."""
        holder = self.file("holder.py", HOLDER + "os.kill(os.getpid(), signal.SIGKILL)\n")
        result = self.script(f"{sys.executable} {holder}; DEMO")
        self.assertIn("the page of 2 processes is", result.stderr)
        self.assertEqual(self.page().count('<div class="flames">'), 3)  # of memory, and of one who waited
        self.assertIn("killed", self.page())
        self.profile("-o", "alone.html", "--", sys.executable, holder, status=128 + signal.SIGKILL)
        self.assertIn("3.00 MiB", self.page("alone.html"))

    def test_of_one_that_goes_on(self):
        holder = self.file("holder.py", HOLDER + "open('ready', 'w').close()\nsys.stdin.read()\n")
        with subprocess.Popen(["sleep", "1000"], stdout=subprocess.PIPE) as end:
            try:
                # The background process reads a pipe that this test holds open.
                result = self.script(f"exec 3</proc/{end.pid}/fd/1; {sys.executable} {holder} <&3 >&- 2>&- & "
                                     "while [ ! -e ready ]; do sleep 0.01; done")
                self.assertIn("the page of 1 process is", result.stderr)
                self.assertIn("running", self.page())
            finally:
                end.kill()

    def test_of_none(self):
        for words in (["true"], ["sh", "-c", "true & wait"]):
            result = self.profile(*words, status=1)
            self.assertIsNotNone(command.UNUSED.fullmatch(result.stderr), result.stderr)
        self.profile("sh", "-c", "exit 9", status=9)
        self.assertEqual(self.pages(), [])

    def test_without_a_gpu(self):
        env = self.environment(LD_LIBRARY_PATH=None)
        result = allograft("profile", "--simulate", "--", self.demo, env=env, cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("times mean nothing", self.page())


class Programs(ProfileTest):
    """The program is what it would be without."""

    def test_exit_status(self):
        self.script("DEMO >/dev/null; exit 7", status=7)
        self.assertEqual(self.pages(), ["profile.html"])
        self.script("DEMO >/dev/null; kill -TERM $$", "-o", "b.html", status=128 + signal.SIGTERM)
        self.assertEqual(self.pages(), ["b.html", "profile.html"])

    def test_standard_input(self):
        env = self.environment()
        result = allograft("profile", "cat", env=env, cwd=self.folder, input="through\n")
        self.assertEqual((result.returncode, result.stdout), (1, "through\n"))

    def started(self, script, ignored=()):
        """A running profile of the script, which makes the file `ready`. Whoever runs the tests in the background ignores
        signals of the terminal, and what a shell finds ignored it cannot trap."""
        def begin():
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

        child = subprocess.Popen([paths.command, "profile", "sh", "-c", script.replace("DEMO", self.demo)],
                                 env=self.environment(), cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, start_new_session=True, preexec_fn=begin)
        self.addCleanup(end_session, child.pid)
        for _ in range(1200):
            if os.path.exists(os.path.join(self.folder, "ready")):
                return child
            time.sleep(0.1)
        child.kill()
        self.fail("it was not started")

    def test_signals_are_the_programs(self):
        """It decides what comes of them; then the page is made."""
        script = "trap 'DEMO; exit 5' %s; touch ready; while :; do sleep 0.05; done"
        for name, send in (("TERM", os.kill), ("HUP", os.kill), ("INT", os.killpg), ("QUIT", os.killpg)):
            child = self.started(script % name)
            send(child.pid, getattr(signal, "SIG" + name))
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 5, err)
            self.assertIn("demo: done", out)
            self.assertIn("the page of 1 process is profile.html", err)
            self.assertEqual(os.listdir(self.tmp), [])
            os.unlink(os.path.join(self.folder, "ready"))

    def test_signals_that_are_ignored_stay_so(self):
        script = "trap 'echo trapped' HUP; touch ready; kill -HUP $$; kill -HUP $PPID; DEMO >/dev/null"
        child = self.started(script, ignored=(signal.SIGHUP,))
        out, err = child.communicate(timeout=60)
        self.assertEqual((child.returncode, out), (0, ""), err)


class Settings(ProfileTest):
    def asked(self, *args, **settings):
        """The settings that the program sees."""
        code = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k[:10] == 'ALLOGRAFT_'}))"
        result = self.profile(*args, "--", sys.executable, "-c", code, status=1, **settings)
        return json.loads(result.stdout)

    def test_of_its_own(self):
        seen = self.asked()
        self.assertEqual(set(seen), {"ALLOGRAFT_STACKS", "ALLOGRAFT_WAITS", "ALLOGRAFT_STATS", "ALLOGRAFT_TRACE",
                                     "ALLOGRAFT_COUNTERS"})
        self.assertEqual((seen["ALLOGRAFT_STACKS"], seen["ALLOGRAFT_WAITS"]), ("16", "1"))
        for name in ("STATS", "TRACE", "COUNTERS"):
            self.assertTrue(seen["ALLOGRAFT_" + name].startswith(os.path.realpath(self.tmp) + "/allograft-profile-"), seen)
        # Where nobody else looks, whatever the user has set.
        self.assertNotEqual(self.asked(ALLOGRAFT_STATS="off")["ALLOGRAFT_STATS"], "off")

    def test_of_the_user(self):
        self.assertEqual(self.asked(ALLOGRAFT_STACKS="off")["ALLOGRAFT_STACKS"], "off")
        seen = self.asked("--set", "STACKS=4", "--set=cache=1MiB", ALLOGRAFT_STACKS="8")
        self.assertEqual((seen["ALLOGRAFT_STACKS"], seen["ALLOGRAFT_CACHE"]), ("4", "1MiB"))


class Refusals(ProfileTest):
    def refused(self, *args, said, status, **settings):
        result = allograft("profile", *args, env=self.environment(**settings), cwd=self.folder, unused=True)
        self.assert_refused(result, *said, status=status)
        self.assertEqual((os.listdir(self.tmp), os.path.exists(os.path.join(self.folder, "started"))), ([], False))

    def test_settings(self):
        start = ("touch", "started")
        self.refused("--set", "STACKS=x", *start, said=["ALLOGRAFT_STACKS"], status=2)
        self.refused("--set", "POLICY", *start, said=["KEY=VALUE"], status=2)
        self.refused(*start, said=["ALLOGRAFT_POLICY"], status=2, ALLOGRAFT_POLICY="pol")
        for name in ("STATS", "ALLOGRAFT_TRACE", "counters"):
            self.refused("--set", name + "=x.json", *start, said=["--set " + name, "allograft run"], status=2)
        self.refused("--stacks", "9", *start, said=["no option '--stacks'"], status=2)
        self.refused("-o", said=["needs a value"], status=2)
        self.refused(said=["program [args]"], status=2)

    def test_programs(self):
        self.refused("no-such-program", said=["no-such-program", "not found"], status=127)
        plain = self.file("plain", "")
        self.refused(plain, said=["Permission denied"], status=126)
        self.assertEqual(self.pages(), ["plain"])

    def test_pages(self):
        """Before the program is started."""
        mine = self.file("mine.txt", "words\n")
        self.refused("-o", mine, "touch", "started", said=["mine.txt"], status=1)
        self.refused("-o", "/no/such/folder/x.html", "touch", "started", said=["/no/such/folder"], status=1)
        page = self.file("page.html", "<!doctype html>\n")
        self.refused("-o", page, "--force", "touch", "started", page, said=["page.html"], status=1)
        self.assertEqual(self.pages(), ["mine.txt", "page.html"])
        self.profile("-o", mine, "--force", self.demo)
        self.assertIn("Who held memory", self.page("mine.txt"))

    def test_temporary_files(self):
        self.refused("touch", "started", said=["no temporary folder"], status=1, TMPDIR="/no/such/folder")

    def test_a_page_that_cannot_be_written(self):
        """The program's own status comes first; what its processes wrote is kept, and makes the page elsewhere."""
        holder = self.file("holder.py", HOLDER + "os.kill(os.getpid(), signal.SIGKILL)\n")
        for script, status, n in (("DEMO; mkdir profile.html; exit 4", 4, 1),
                                  (f"{sys.executable} {holder}; DEMO; mkdir profile.html", 1, 2)):
            words = ["profile", "--", "sh", "-c", script.replace("DEMO", self.demo)]
            result = allograft(*words, env=self.environment(), cwd=self.folder)
            self.assertEqual(result.returncode, status, result.stderr)
            self.assertIn("profile.html: Is a directory", result.stderr)
            said = re.search(r"is kept: `allograft (report --html PAGE .*)` makes a page of it\n$", result.stderr)
            again = subprocess.run(["sh", "-c", f"{paths.command} {said.group(1)}".replace("PAGE", "kept.html")],
                                   env=self.environment(), cwd=self.folder, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((again.returncode, again.stderr), (0, ""))
            self.assertEqual(len(set(re.findall(r"process (\d+)", self.page("kept.html")))), n)
            os.rmdir(os.path.join(self.folder, "profile.html"))
            shutil.rmtree(os.path.join(self.tmp, *os.listdir(self.tmp)))

    def test_a_page_on_a_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full")
        result = allograft("profile", "-o", "/dev/full", self.demo, env=self.environment(), cwd=self.folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn("/dev/full: No space left on device", result.stderr)
        self.assertIn("what the processes wrote is kept", result.stderr)
        self.assertEqual(len(os.listdir(self.tmp)), 1)


if __name__ == "__main__":
    command.main()
