"""What commands write into files: never one of their inputs, nothing that somebody would miss, all of it or nothing."""

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import stat
import subprocess

import command
from command import CommandTest, allograft, clean_environment, paths
from test_report import SAMPLE
from test_trace import EVENTS, NAMES, event, header

SOMEBODY = 54321  # a user that nothing belongs to


class OutputTest(CommandTest):
    def setUp(self):
        folder = command.tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        # Those of reports need a command that reads JSON; traces tell as much of how files are written.
        self.has_json = "made without jansson" not in allograft("report", self.write("probe.json", SAMPLE)).stderr
        self.trace = self.write("x.trace", header() + NAMES + b"".join(EVENTS))
        os.unlink(self.path("probe.json"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else json.dumps(content).encode())
        return self.path(name)

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def perfetto(self, out, *args, **kwargs):
        return allograft("trace", self.trace, "--perfetto", out, *args, **kwargs)

    def assert_perfetto(self, path):
        self.assertIn("traceEvents", json.loads(self.read(path)))

    @contextlib.contextmanager
    def assert_untouched(self):
        """Every file of the folder is as it was, and no other is there."""
        def all_files():
            return {name: self.read(self.path(name)) for name in os.listdir(self.folder)
                    if os.path.isfile(self.path(name))}
        before = all_files()
        yield
        self.assertEqual(all_files(), before)


class Inputs(OutputTest):
    def setUp(self):
        super().setUp()
        if not self.has_json:
            self.skipTest("the command was built without jansson")
        self.report = self.write("native.json", SAMPLE)

    def test_are_no_page_where_its_name_was_forgotten(self):
        counters = self.path("counters")
        demo = os.path.join(paths.sim, "demo", "demo-sim")
        env = clean_environment(LD_LIBRARY_PATH=paths.sim, ALLOGRAFT_COUNTERS=counters)
        os.mkdir(counters, 0o700)
        # Whose report cannot be written leaves its counters: so there is something to show.
        allograft("run", "--stats", "/no/such/%h/x", "--", demo, env=env)
        self.assertEqual(len(os.listdir(counters)), 1)
        other = self.write("b.json", SAMPLE)
        with self.assert_untouched():
            for args in ((self.report,), (self.report, other)):
                result = allograft("report", "--html", *args, env=env)
                self.assert_refused(result, f"--html {self.report}: this is a report, not a page of Allograft",
                                    "--html takes the name of the output file", status=1)
        page = self.path("page.html")
        self.assertEqual(allograft("report", "--html", page, env=env).stderr, "")
        # A file of counters is one that is read, too, by whatever name it was found.
        file = os.path.join(counters, os.listdir(counters)[0])
        before = self.read(file)
        for where in (file, counters):
            result = allograft("report", "--html", file, "--force", where, env=env)
            self.assert_refused(result, "this command reads that file", status=1)
        self.assertEqual(self.read(file), before)

    def test_are_never_written(self):
        for name in ("soft", "hard"):
            (os.symlink if name == "soft" else os.link)(self.report, self.path(name + ".json"))
            (os.symlink if name == "soft" else os.link)(self.trace, self.path(name + ".trace"))
        with self.assert_untouched():
            for out in ("native.json", "soft.json", "hard.json", "./native.json"):
                for args in ((self.report,), (self.report, self.trace), (self.path("soft.json"),)):
                    result = allograft("report", "--html", out, "--force", *args, cwd=self.folder)
                    self.assert_refused(result, f"report: --html {out}: this command reads that file", status=1)
            for out in ("x.trace", "soft.trace", "hard.trace"):
                for name in ("x.trace", "soft.trace"):
                    result = allograft("trace", name, "--perfetto", out, "--force", cwd=self.folder)
                    self.assert_refused(result, f"trace: --perfetto {out}: this command reads that file", status=1)

    def test_are_not_standard_output(self):
        with self.assert_untouched():
            for args in (("trace", self.trace, "--perfetto", "-"), ("trace", self.trace, "--perfetto", "/dev/stdout")):
                with open(self.trace, "ab") as out:
                    result = subprocess.run([paths.command, *args], stdout=out, stderr=subprocess.PIPE, check=False,
                                            env=clean_environment())
                self.assertEqual(result.returncode, 1)
                self.assertIn(b"this command reads that file", result.stderr)


class Tuned(OutputTest):
    def tune(self, *args, **variables):
        return allograft("tune", "--runs", "1", *args, env=clean_environment(TMPDIR=self.folder, **variables))

    def test_program_and_its_files_stay(self):
        program = self.write("program", b"#!/bin/sh\ncat \"$1\"\n")
        os.chmod(program, 0o700)
        settings = self.write("my.conf", b"POLICY = pool\n")
        with self.assert_untouched():
            for option in ("--write", "--html"):
                for out in (program, settings):
                    result = self.tune(option, out, "--force", program, settings)
                    self.assert_refused(result, f"tune: {option} {out}: this command reads that file", status=1)
                result = self.tune(option, settings, "--force", program, ALLOGRAFT_CONFIG=settings)
                self.assert_refused(result, "this command reads that file", status=1)
                self.assert_refused(self.tune(option, settings, "true"), "would be overwritten", status=1)

    def test_compared_file_comes_back_where_nobody_wrote_it(self):
        """It is removed before each run: but it may be the program's input, named by mistake."""
        data = self.write("data", b"years of work\n")
        with self.assert_untouched():
            result = self.tune("--compare", "file:" + data, "cat", data)
            self.assert_refused(result, "exit status 1", status=1)
            result = self.tune("--compare", "file:" + data, "true")
            self.assert_refused(result, f"did not write {data}", status=1)
        program = self.write("program", b"#!/bin/sh\necho 1\n")
        os.chmod(program, 0o700)
        with self.assert_untouched():
            self.assert_refused(self.tune("--compare", "file:" + program, program), "No such file", status=1)
        result = self.tune("--compare", "file:" + data, "sh", "-c", f"echo 1 > {data}")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(os.listdir(self.folder)), ["data", "program", "x.trace"])

    def test_own_files_are_replaced(self):
        settings, page = self.path("best.conf"), self.path("page.html")
        for _ in range(2):
            result = self.tune("--write", settings, "--html", page, "true")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assert_refused(self.tune("--write", page, "true"), "this is a page of Allograft, not a file of settings",
                            status=1)
        self.assert_refused(self.tune("--html", settings, "true"), "this is a file of settings", status=1)


class Several(OutputTest):
    """Nothing that a command writes lies within something else, or in its place."""

    def trace_of(self, *args):
        return allograft("trace", self.trace, *args, cwd=self.folder)

    def tune(self, *args):
        return allograft("tune", "--runs", "1", *args, "true", cwd=self.folder,
                         env=clean_environment(TMPDIR=self.folder))

    def test_two_files_of_one_name(self):
        os.mkdir(self.path("far"))
        os.symlink("new", self.path("link"))
        with self.assert_untouched():
            for other in ("new", "./new", self.path("new"), "far/../new", "link"):
                self.assert_refused(self.trace_of("--force", "--perfetto", "new", "--torch-snapshot", other),
                                    f"trace: --torch-snapshot {other}: --perfetto writes there, too")
            self.assert_refused(self.tune("--force", "--write", "new", "--html", "./new"),
                                "tune: --html ./new: --write writes there, too")
        result = self.trace_of("--perfetto", "new", "--torch-snapshot", "far/new")
        self.assert_silent(result, "")
        for name in ("new", "far/new"):
            self.assertTrue(os.path.getsize(self.path(name)), name)

    def test_standard_output_has_one(self):
        with self.assert_untouched():
            for option in ("--perfetto", "--torch-snapshot"):
                for words in (["--csv", "rmm"], ["--summary"]):
                    self.assert_refused(self.trace_of(*words, option, "-"),
                                        f"trace: {option} -: standard output is for what {words[0]} prints")
            self.assert_refused(self.trace_of("--summary", "--csv", "rmm"), "--summary or --csv")
            self.assert_refused(self.trace_of("--perfetto", "-", "--torch-snapshot", "/dev/stdout"), "writes there, too")
            for option in ("--write", "--html"):
                self.assert_refused(self.tune("--json", option, "-"), f"tune: {option} -: standard output is for")
            self.assertTrue(self.tune("--html", "-").stdout.startswith("<!doctype html>"))
            self.assertTrue(self.tune("--write", "-").stdout.startswith("# Best of `allograft tune`"))


class Run(OutputTest):
    """What the library writes when the program is done."""

    def test_program_and_its_files_stay(self):
        demo = self.path("demo-sim")
        shutil.copy(os.path.join(paths.sim, "demo", "demo-sim"), demo)
        script, settings = self.write("train.sh", b"exec \"$1\"\n"), self.write("my.conf", b"POLICY = pool\n")
        env = clean_environment(LD_LIBRARY_PATH=paths.sim)
        with self.assert_untouched():
            for name in ("STATS", "TRACE"):
                for out in (demo, script, settings):
                    result = allograft("run", "--config", settings, "--set", f"{name}={out}", "--", "sh", script,
                                       demo, env=env)
                    self.assert_refused(result, f"ALLOGRAFT_{name}={out}: this is the program or one of its files")
        result = allograft("run", "--stats", self.path("a.json"), "--", "sh", script, demo, env=env)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("a.json", os.listdir(self.folder))


class Kinds(OutputTest):
    def test_of_others_are_replaced_by_force_only(self):
        others = {"source.py": b"print(1)\n", "list.json": b"{}", "other.html": b"<!doctype html>\n<html>\n",
                  "nul": b"\0" * 100, "a.trace": header(), "report.json": json.dumps(SAMPLE).encode()}
        for name, content in others.items():
            out = self.write(name, content)
            with self.assert_untouched():
                self.assert_refused(self.perfetto(out), f"trace: --perfetto {out}: this is ", "would be overwritten",
                                    "--force", status=1)
            self.assert_silent(self.perfetto(out, "--force"), "")
            self.assert_perfetto(out)

    def test_own_and_empty_ones_are_replaced(self):
        out = self.write("empty", b"")
        for _ in range(2):
            self.assert_silent(self.perfetto(out), "")
            self.assert_perfetto(out)

    def test_pages(self):
        if not self.has_json:
            self.skipTest("the command was built without jansson")
        report, page = self.write("a.json", SAMPLE), self.path("page.html")
        for _ in range(2):
            self.assert_silent(allograft("report", "--html", page, report), "")
        self.assertIn(b"</html>", self.read(page))
        other = self.write("no.html", b"<html>")
        with self.assert_untouched():
            self.assert_refused(self.perfetto(page), "this is a page of Allograft, not a trace for Perfetto", status=1)
            self.assert_refused(allograft("report", "--html", other, report), "another kind of file", status=1)
        result = allograft("report", "--force", "--html", other, report)
        self.assert_silent(result, "")


class Whole(OutputTest):
    """An error on the way leaves what was there, and nothing else."""

    def setUp(self):
        super().setUp()
        more = b"".join(event(1, 5000 + i, 1, 0x10000 + i, 64) for i in range(5000))
        self.trace = self.write("x.trace", header() + NAMES + more)
        self.assert_silent(self.perfetto(self.path("whole.json")), "")
        self.assertGreater(os.path.getsize(self.path("whole.json")), 200000)

    def test_limit_on_sizes(self):
        out = self.write("out.json", self.read(self.path("whole.json"))[:5000])
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        with self.assert_untouched():
            for name in (out, self.path("new.json")):
                self.assert_refused(self.perfetto(name, preexec_fn=limit), name + ": File too large", status=1)

    def test_full_disk(self):
        mount = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=96k none "$1" && cp "$2" "$1/out.json" && '
                 '"$3" trace "$4" --perfetto "$1/out.json"; echo "status $?"; cmp "$2" "$1/out.json" && ls -A "$1"', "sh"]
        small, disk = self.path("small.json"), self.path("disk")
        os.mkdir(disk)
        self.write("small.json", self.read(self.path("whole.json"))[:5000])
        if not shutil.which("unshare") or subprocess.run(
                ["unshare", "-m", "mount", "-t", "tmpfs", "none", disk], stderr=subprocess.DEVNULL,
                check=False).returncode:
            self.skipTest("no file system may be mounted here")
        result = subprocess.run([*mount, disk, small, paths.command, self.trace], env=clean_environment(),
                                capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.stdout, "status 1\nout.json\n")
        self.assertEqual(result.stderr, f"allograft: trace: --perfetto {disk}/out.json: No space left on device\n")

    def test_full_device(self):
        self.assert_refused(self.perfetto("/dev/full"), "/dev/full: No space left on device", status=1)
        if not self.has_json:
            self.skipTest("the command was built without jansson")
        # A page is written at once, and what a device does not take of it is forgotten.
        result = allograft("report", "--html", "/dev/full", self.write("native.json", SAMPLE))
        self.assert_refused(result, "report: --html /dev/full: No space left on device", status=1)

    def interrupted(self, end, trace, out):
        """The status of a command that gets the signal while its file beside is there, also where the tests run under
        nohup, which has hangups ignored."""
        with subprocess.Popen([paths.command, "trace", trace, "--perfetto", out, "--slow", "0"], env=clean_environment(),
                              stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(end, signal.SIG_DFL)) as child:
            while child.poll() is None and not any(n.endswith(".part") for n in os.listdir(self.folder)):
                pass
            child.send_signal(end)
            self.assertEqual((child.stderr.read(), child.wait(60)), (b"", child.returncode))
        return child.returncode

    def test_interrupted(self):
        """As by Ctrl-C. On a busy machine the command may be done before it is seen to have begun."""
        out = self.path("out.json")
        trace = self.write("large", header() + b"".join(event(1, 5000 + i, 1, 0x10000 + i, 64) for i in range(200000)))
        for end in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for _ in range(20):
                self.write("out.json", self.read(self.path("whole.json"))[:5000])
                status = self.interrupted(end, trace, out)
                if status:
                    break
            self.assertEqual(status, -end)
            self.assertEqual(os.path.getsize(out), 5000)
            self.assertEqual(sorted(os.listdir(self.folder)), ["large", "out.json", "whole.json", "x.trace"])

    def test_missing_memory(self):
        out = self.write("out.json", self.read(self.path("whole.json"))[:5000])
        if os.environ.get("TEST_PRELOAD"):
            self.skipTest("a sanitizer needs more memory than there is to be")
        seen = set()
        for size in range(2000, 8000, 100):
            def limit(bytes_=size << 10):
                resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))
            if allograft("--version", preexec_fn=limit).returncode:
                continue  # it cannot even be loaded
            before = self.read(out)
            result = self.perfetto(out, preexec_fn=limit)
            seen.add(result.returncode)
            if result.returncode:
                self.assertEqual((result.returncode, self.read(out)), (1, before), result.stderr)
                self.assertRegex(result.stderr, r"Cannot allocate memory|out of memory for \d+ words")
            self.assertEqual(sorted(os.listdir(self.folder)), ["out.json", "whole.json", "x.trace"])
        self.assertEqual(seen, {0, 1})
        self.assert_perfetto(out)


class Places(OutputTest):
    def test_link_stays_and_leads_to_the_file(self):
        os.mkdir(self.path("far"))
        for target in ("far/there.json", "far/new.json", self.path("far/absolute.json")):
            link = self.path("link.json")
            os.symlink(target, link)
            if "there" in target:
                self.write(target, b"")
            self.assert_silent(self.perfetto(link), "")
            self.assertEqual(os.readlink(link), target)
            self.assert_perfetto(os.path.join(self.folder, target))
            os.unlink(link)
        os.symlink("link2", self.path("link1"))
        os.symlink("far/twice.json", self.path("link2"))
        self.assert_silent(self.perfetto(self.path("link1")), "")
        self.assert_perfetto(self.path("far/twice.json"))
        os.symlink("looped", self.path("looped"))
        self.assert_refused(self.perfetto(self.path("looped")), "Too many levels of symbolic links", status=1)
        self.assertEqual(sorted(os.listdir(self.path("far"))),
                         ["absolute.json", "new.json", "there.json", "twice.json"])

    def test_devices_and_pipes_are_written_as_they_are(self):
        whole = self.perfetto("-").stdout
        self.assertIn("traceEvents", whole)
        self.assert_silent(self.perfetto("/dev/null"), "")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            self.assert_silent(self.perfetto(name), whole)
        os.symlink("/dev/stdout", self.path("out"))
        self.assert_silent(self.perfetto(self.path("out")), whole)
        self.assertEqual(self.perfetto("/dev/stderr").stderr, whole)
        # What was there before, and what comes behind, stays: it is the file that is open, at its place.
        script = f'exec > "{self.path("all")}"; echo before; "$0" trace "{self.trace}" --perfetto /dev/stdout; echo behind'
        subprocess.run(["sh", "-c", script, paths.command], check=True, env=clean_environment())
        self.assertEqual(self.read(self.path("all")).decode(), "before\n" + whole + "behind\n")
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as cat:
            self.assert_silent(self.perfetto(pipe), "")
            self.assertEqual(cat.stdout.read(), whole)
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_what_is_no_file(self):
        os.mkdir(self.path("there"))
        for out, why in ((self.folder, "Is a directory"), (self.path("no/x"), "No such file or directory"),
                         (self.path("x.trace/x"), "Not a directory"), ("", "No such file or directory"),
                         (self.path("x" * 300), "File name too long"), ("/dev/fd/99", "Bad file descriptor"),
                         ("x" * 5000, "File name too long")):
            with self.assert_untouched():
                self.assert_refused(self.perfetto(out), why, status=1)

    def test_longest_name(self):
        out = self.path("x" * 255)
        self.assert_silent(self.perfetto(out), "")
        self.assert_perfetto(out)

    def test_modes(self):
        new, old = self.path("new"), self.write("old", b"")
        self.assert_silent(self.perfetto(new, umask=0o027), "")
        self.assertEqual(os.stat(new).st_mode & 0o7777, 0o640)
        for mode in (0o600, 0o664, 0o751):
            os.chmod(old, mode)
            self.assert_silent(self.perfetto(old, umask=0o077), "")
            self.assertEqual(os.stat(old).st_mode & 0o7777, mode)

    def as_somebody(self):
        if os.geteuid() != 0:
            return {}
        os.chmod(self.folder, 0o755)
        if subprocess.run([paths.command, "trace", self.trace], user=SOMEBODY, capture_output=True,
                          check=False).returncode:
            self.skipTest("another user cannot run the command here")
        return {"user": SOMEBODY, "group": SOMEBODY, "extra_groups": []}

    def test_folder_and_file_that_are_closed(self):
        user = self.as_somebody()
        os.mkdir(self.path("closed"))
        out = self.write("closed/out.json", b"")
        os.chmod(out, 0o666)
        os.chmod(self.path("closed"), 0o555)
        self.assert_refused(self.perfetto(out, **user), "it cannot be replaced by a new file beside it", "Permission denied",
                            "`--perfetto - > FILE`", status=1)
        self.assert_refused(self.perfetto(self.path("closed/new"), **user), "closed/new: Permission denied", status=1)
        os.chmod(self.path("closed"), 0o777)
        self.assertEqual((os.listdir(self.path("closed")), self.read(out)), (["out.json"], b""))
        os.chmod(out, 0o444)
        self.assert_refused(self.perfetto(out, "--force", **user), "out.json: Permission denied", status=1)

    def test_file_that_is_mounted(self):
        """As into a container: it cannot be replaced."""
        out = self.write("out.json", b"")
        script = 'mount --bind "$1" "$1" && "$2" trace "$3" --perfetto "$1"; echo "status $?"'
        result = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", out, paths.command, self.trace],
                                env=clean_environment(), capture_output=True, text=True, timeout=60, check=False)
        if not result.stderr.startswith("allograft:"):
            self.skipTest("no file system may be mounted here")
        self.assertEqual(result.stdout, "status 1\n")
        self.assertIn("it cannot be replaced by a new file beside it (Device or resource busy)", result.stderr)
        self.assertEqual(self.read(out), b"")

    def test_owner(self):
        if os.geteuid() != 0:
            self.skipTest("only root may give files to others")
        user = self.as_somebody()
        out = self.write("out.json", b"")
        os.chown(out, SOMEBODY, SOMEBODY + 1)
        os.chmod(out, 0o666)
        self.assert_silent(self.perfetto(out), "")
        st = os.stat(out)
        self.assertEqual((st.st_uid, st.st_gid, st.st_mode & 0o7777), (SOMEBODY, SOMEBODY + 1, 0o666))
        # A file of root's in a folder of somebody's: it would change hands.
        os.chown(out, 0, 0)
        os.chmod(self.folder, 0o777)
        with self.assert_untouched():
            self.assert_refused(self.perfetto(out, **user), errno_text(errno.EPERM), "`--perfetto - > FILE`", status=1)


def errno_text(number):
    return os.strerror(number)


class Torn(OutputTest):
    """A trace that somebody cuts short while it is read."""

    def test_is_said(self):
        more = b"".join(event(1, 5000 + i, 1, 0x10000 + i, 64) for i in range(20000))
        whole = header() + NAMES + more
        for size in (0, 512, 100000, len(whole) - 64):
            trace = self.write("x.trace", whole)
            with subprocess.Popen([paths.command, "trace", trace, "--perfetto", "-"], env=clean_environment(),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
                self.assertEqual(child.stdout.read(1), "{")  # it has begun, and waits for its reader
                os.truncate(trace, size)
                _, said = child.communicate(timeout=60)
            self.assertEqual((child.returncode, said),
                             (1, f"allograft: trace: {trace}: it was truncated while it was read\n"), size)


if __name__ == "__main__":
    command.main()
