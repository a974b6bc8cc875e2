"""`allograft run`: what the program gets, how its end passes through, and every refusal."""

import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import command
from command import CommandTest, allograft, clean_environment, paths

# A whole program: exit(42).
EXIT_42 = {
    "x86_64": (62, bytes.fromhex("bf2a000000" "b83c000000" "0f05")),
    "aarch64": (183, bytes.fromhex("400580d2" "a80b80d2" "010000d4")),
}


def static_program():
    """The bytes of an ELF file without an interpreter, or None on an unknown machine."""
    if platform.machine() not in EXIT_42:
        return None
    machine, code = EXIT_42[platform.machine()]
    base, headers = 0x400000, 64 + 56
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, base + headers, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    size = headers + len(code)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    return ident + header + segment + code


class RunTest(CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, content, mode=0o755):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        os.chmod(path, mode)
        return path

    def preload(self, *args, env=None):
        """LD_PRELOAD as a program run with these arguments sees it."""
        result = allograft("run", *args, "--", "sh", "-c", 'printf %s "$LD_PRELOAD"', env=env)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout


class Settings(RunTest):
    def seen(self, variable, *args, **settings):
        result = allograft("run", *args, "sh", "-c", f'printf %s "${variable}"',
                           env=clean_environment(**settings))
        self.assert_silent(result, result.stdout)
        return result.stdout

    def test_reach_the_program(self):
        self.assertEqual(self.seen("ALLOGRAFT_POLICY", "--policy", "native"), "native")
        self.assertEqual(self.seen("ALLOGRAFT_POLICY", "--policy=managed"), "managed")
        self.assertEqual(self.seen("ALLOGRAFT_STATS", "--stats", "off"), "off")
        self.assertEqual(self.seen("ALLOGRAFT_STATS", "--stats", "off", "--trace", "off"), "off")
        self.assertEqual(self.seen("ALLOGRAFT_TRACE", "--trace", "stderr"), "stderr")
        self.assertEqual(self.seen("ALLOGRAFT_GRAPH", "--graph", "all"), "all")
        self.assertEqual(self.seen("ALLOGRAFT_GRAPH", "--graph=nth:2,legacy"), "nth:2,legacy")
        self.assertEqual(self.seen("ALLOGRAFT_STATS", "--stats=/tmp/a=b.json"), "/tmp/a=b.json")

    def test_set_takes_every_spelling(self):
        for key in ("POLICY", "ALLOGRAFT_POLICY", "policy", "allograft_policy"):
            self.assertEqual(self.seen("ALLOGRAFT_POLICY", "--set", key + "=native"), "native")
        self.assertEqual(self.seen("ALLOGRAFT_CACHE", "--set=cache=1MiB"), "1MiB")

    def test_the_last_one_wins_and_options_go_before_the_environment(self):
        self.assertEqual(self.seen("ALLOGRAFT_POLICY", "--policy", "pool", "--set", "policy=native",
                                   ALLOGRAFT_POLICY="managed"), "native")
        self.assertEqual(self.seen("ALLOGRAFT_POLICY", "--policy", "pool", ALLOGRAFT_POLICY="wrong"),
                         "pool")

    def test_rules_are_joined_in_their_order(self):
        self.assertEqual(self.seen("ALLOGRAFT_RULES", "--rule", "nth=1..4:native"), "nth=1..4:native")
        self.assertEqual(self.seen("ALLOGRAFT_RULES", "--rule", "nth=1:native", "--rule=*:pool",
                                   ALLOGRAFT_RULES="*:managed"), "nth=1:native; *:pool")
        self.assertEqual(self.seen("ALLOGRAFT_RULES", ALLOGRAFT_RULES="*:managed"), "*:managed")

    def test_the_file_is_named_wherever_the_program_goes(self):
        path = os.path.realpath(self.file("a.conf", "POLICY=native\n", 0o644))
        for args in (["--config", "a.conf"], ["--config", path], ["--set", "config=./a.conf"]):
            result = allograft("run", *args, "sh", "-c", 'printf %s "$ALLOGRAFT_CONFIG"', cwd=self.folder)
            self.assert_silent(result, path)
        for off in ("off", "none", "No", "0", "false"):
            self.assertEqual(self.seen("ALLOGRAFT_CONFIG", ALLOGRAFT_CONFIG=off), off)
        self.assertEqual(self.seen("ALLOGRAFT_POLICY", "--config", path), "")

    def refuse_at(self, result, said, *place):
        """One line on stderr, and the place below it."""
        lines = result.stderr.splitlines()
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertTrue(lines[0].startswith("allograft: " + said), lines[0])
        self.assertEqual(lines[1:], list(place))

    def test_bad_rules_and_files_are_refused_before_the_program_starts(self):
        mark = os.path.join(self.folder, "started")
        program = ("--", "touch", mark)
        place = ("  nth=1:natve", "        ^")
        said = 'column 7: unknown action "natve"'
        self.refuse_at(allograft("run", "--rule", "*:pool", "--rule", "nth=1:natve", *program),
                       "--rule: " + said, *place)
        env = clean_environment(ALLOGRAFT_RULES="nth=1:natve")
        self.refuse_at(allograft("run", *program, env=env), "ALLOGRAFT_RULES: " + said, *place)
        path = self.file("a.conf", "\nPOLICY = fast\n")
        self.refuse_at(allograft("run", "--config", path, *program),
                       path + ":2: column 10: POLICY=fast is not allowed; allowed: auto|pool|native|managed",
                       "  POLICY = fast", "           ^")
        self.assert_refused(allograft("run", "--config", "/no/such", *program), "/no/such", "No such file")
        self.assert_refused(allograft("run", "--stats", "x.%q.json", *program), "ALLOGRAFT_STATS: column 3: %q stands for nothing",
                            "%p (process id)")
        self.refuse_at(allograft("run", *program, env=clean_environment(ALLOGRAFT_TRACE="%p.%s.trace")),
                       "ALLOGRAFT_TRACE: column 4: %s stands for nothing; allowed: %p (process id), %h (host), %n (program), "
                       "%r (rank)", "  %p.%s.trace", "     ^")
        many = [word for _ in range(65) for word in ("--rule", "*:pool")]
        result = allograft("run", *many, *program)
        self.assertEqual(result.returncode, 2)
        self.assertIn("one rule too many; allowed: 64 rules", result.stderr)
        self.assertFalse(os.path.exists(mark))

    def test_bad_ones_are_refused_before_the_program_starts(self):
        mark = os.path.join(self.folder, "started")
        program = ("--", "touch", mark)
        allowed = "auto|pool|native|managed"
        self.assert_refused(allograft("run", "--policy", "fast", *program), "fast", allowed)
        self.assert_refused(allograft("run", "--policy=", *program), "ALLOGRAFT_POLICY", allowed)
        self.assert_refused(allograft("run", "--graph", "all,nht:1", *program), 'column 5: "nht:1"', "nth:K")
        self.assert_refused(allograft("run", "--set", "policy=fast", *program), "fast", allowed)
        self.assert_refused(allograft("run", "--set", "polcy=pool", *program),
                            "ALLOGRAFT_POLCY", "ALLOGRAFT_POLICY")
        self.assert_refused(allograft("run", "--set", "pool_keep=-1", *program), "ALLOGRAFT_POOL_KEEP", "-1")
        self.assert_refused(allograft("run", "--stats", "x.json", "--trace", "x.json", *program),
                            "ALLOGRAFT_STATS and ALLOGRAFT_TRACE name one file")
        self.assert_refused(allograft("run", "--set", "policy", *program), "policy", "KEY=VALUE")
        self.assert_refused(allograft("run", "--set", "=pool", *program), "=pool", "KEY=VALUE")
        self.assert_refused(allograft("run", "--set", "x" * 500 + "=1", *program), "a name that long")
        for name, value in (("ALLOGRAFT_LOG", "loud"), ("ALLOGRAFT_LOGG", "warn")):
            self.assert_refused(allograft("run", *program, env=clean_environment(**{name: value})),
                                name)
        self.assertFalse(os.path.exists(mark))

    def test_places_that_cannot_be_written_are_refused_before_the_program_starts(self):
        started = os.path.join(self.folder, "started")
        os.mkdir(os.path.join(self.folder, "there"))
        config = self.file("job.conf", "STATS = no/such/%p.json\n")
        for words, said in ((["--stats", "no/such/x.json"], "ALLOGRAFT_STATS=no/such/x.json: No such file or directory"),
                            (["--stats", "/no/such/%p.json"], "ALLOGRAFT_STATS=/no/such/%p.json: No such file or directory"),
                            (["--trace", "/no/such/x.trace"], "ALLOGRAFT_TRACE=/no/such/x.trace: No such file or directory"),
                            (["--stats", "there"], "ALLOGRAFT_STATS=there: Is a directory"),
                            (["--stats", "job.conf/x"], "ALLOGRAFT_STATS=job.conf/x: Not a directory"),
                            (["--config", config], "ALLOGRAFT_STATS=no/such/%p.json: No such file")):
            result = allograft("run", *words, "--", "touch", started, cwd=self.folder)
            self.assert_refused(result, said, status=1)
            self.assertFalse(os.path.exists(started))
        for words in (["--stats", "there/x.json"], ["--stats", "%p.json"], ["--trace", "there/%h.%p"],
                      ["--stats", "/dev/fd/9"], ["--stats", "/no/such/%h/%p.json"], ["--stats", "full"]):
            self.assert_silent(allograft("run", *words, "--", "true", cwd=self.folder), "")

    def test_bad_usage_is_refused(self):
        self.assert_refused(allograft("run"), "allograft run [options] [--] program [args]")
        self.assert_refused(allograft("run", "--"), "allograft run [options] [--] program [args]")
        self.assert_refused(allograft("run", "--policy", "pool"), "allograft run [options] [--] program [args]")
        self.assert_refused(allograft("run", "--polic", "pool", "true"), "'--polic'", "--policy")
        self.assert_refused(allograft("run", "--policyx=pool", "true"), "'--policyx=pool'")
        for flag in ("--policy", "--stats", "--rule", "--graph", "--config", "--set"):
            self.assert_refused(allograft("run", flag), flag, "needs a value")

    def test_help_names_every_word_of_a_setting(self):
        said = re.sub(r"\s+", " ", allograft("run", "--help").stdout)
        for option, words in (("--policy", "auto pool native managed"), ("--stats", "off stderr full file")):
            help_text = said.partition(option)[2].partition(" --")[0]
            self.assertEqual([word for word in words.split() if word not in help_text], [], help_text)

    def test_help(self):
        for args in (["--help"], ["-h"], ["--policy", "pool", "--help"]):
            result = allograft("run", *args)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for flag in ("--policy", "--stats", "--rule", "--graph", "--config", "--set"):
                self.assertIn(flag, result.stdout)


class Program(RunTest):
    def test_gets_its_arguments_as_they_are(self):
        result = allograft("run", "--policy", "pool", "printf", "[%s]", "--policy", "--", "a b", "")
        self.assert_silent(result, "[--policy][--][a b][]")
        result = allograft("run", "--", "printf", "[%s]", "--help")
        self.assert_silent(result, "[--help]")

    def test_named_like_an_option(self):
        path = self.file("--policy", "#!/bin/sh\necho yes\n")
        result = allograft("run", "--", os.path.basename(path),
                           env=clean_environment(PATH=self.folder))
        self.assert_silent(result, "yes\n")

    def test_exit_status_passes_through(self):
        for status in (0, 1, 2, 3, 126, 127, 255):
            result = allograft("run", "sh", "-c", f"exit {status}")
            self.assert_silent(result, "", status)

    def test_signals_pass_through(self):
        result = allograft("run", "sh", "-c", "kill -s KILL $$")
        self.assertEqual(result.returncode, -signal.SIGKILL)
        with subprocess.Popen([paths.command, "run", "sh", "-c", "echo up; exec sleep 60"],
                              env=clean_environment(), stdout=subprocess.PIPE) as child:
            self.assertEqual(child.stdout.readline(), b"up\n")
            child.send_signal(signal.SIGTERM)
            self.assertEqual(child.wait(timeout=60), -signal.SIGTERM)

    def test_takes_the_commands_place(self):
        with subprocess.Popen([paths.command, "run", "sh", "-c", "echo $$"],
                              env=clean_environment(), stdout=subprocess.PIPE) as child:
            self.assertEqual(int(child.stdout.read()), child.pid)

    def test_has_the_commands_standard_input(self):
        self.assert_silent(allograft("run", "cat", input="through\n"), "through\n")

    def test_without_cuda_sees_no_difference(self):
        code = "import sys; print(sys.version)"
        for program in (["true"], ["sh", "-c", "echo $((6 * 7))"], [sys.executable, "-c", code]):
            plain = subprocess.run(program, env=clean_environment(), capture_output=True, text=True,
                                   check=False)
            result = allograft("run", *program)
            self.assert_silent(result, plain.stdout, plain.returncode)


# It ends by Ctrl-C as a program in C does.
HOLDER = command.HOLDER + "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"


class LastWord(RunTest):
    """Where a signal ends the program, somebody says how to see what it had counted."""

    def setUp(self):
        super().setUp()
        self.counters = os.path.join(self.folder, "what it counted")
        os.mkdir(self.counters)

    def said(self, *words, then="os.kill(os.getpid(), signal.SIGINT)", **settings):
        """Exit status and stderr of the holder, in a session of its own, of which nobody is left."""
        env = clean_environment(**{"ALLOGRAFT_COUNTERS": self.counters, "LD_LIBRARY_PATH": paths.sim, **settings})
        program = self.file("holder.py", HOLDER + then + "\n")
        with subprocess.Popen([paths.command, "run", *words, "--", sys.executable, program], env=env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              start_new_session=True) as child:
            self.pid = child.pid
            out, err = child.communicate(timeout=60) # until nobody has it open
            self.assertEqual(out, "")
        with self.assertRaises(ProcessLookupError):
            for _ in range(1200): # an orphan is gone when its new parent has seen it
                os.killpg(self.pid, 0)
                time.sleep(0.05)
        return child.returncode, err

    def test_names_the_command(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGABRT):
            status, err = self.said(then=f"os.kill(os.getpid(), {int(number)})")
            self.assertEqual(status, -number)
            said = re.match(r"allograft: python\S* \(process %d\) was ended before it could write its report: "
                            r"`(ALLOGRAFT_COUNTERS=.+) allograft (report %d)` shows what it had counted\n$"
                            % (self.pid, self.pid), err)
            self.assertTrue(said, err)
            shown = subprocess.run(["sh", "-c", f"{said.group(1)} {paths.command} {said.group(2)}"],
                                   env=clean_environment(), stdout=subprocess.PIPE, text=True, check=False)
            self.assertIn(f"(process {self.pid}), killed", shown.stdout)

    def test_of_a_terminal(self):
        """Ctrl-C goes to the whole group."""
        status, err = self.said(then="os.killpg(0, signal.SIGINT)")
        self.assertEqual(status, -signal.SIGINT)
        self.assertIn(f"allograft report {self.pid}`", err)

    def test_is_not_said_of_one_that_ends_by_itself(self):
        for then in ("pass", "os._exit(0)", "sys.exit(3)", "os.execvp('true', ['true'])"):
            self.assertNotIn("was ended", self.said(then=then)[1])

    def test_is_not_said_where_no_report_is_asked_for(self):
        for words in (["--stats", "off"], ["--log", "error"], ["--counters", "off"], ["--disable", "1"]):
            self.assertEqual(self.said(*words), (-signal.SIGINT, ""))

    def test_is_by_no_child_of_the_program(self):
        """It may wait until it has none left, as one does that adopts others' children."""
        code = "import os\ntry: os.wait()\nexcept ChildProcessError: print('none')"
        for before in ("", "import ctypes; ctypes.CDLL(None).prctl(36, 1); "): # PR_SET_CHILD_SUBREAPER
            start = before + "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
            result = subprocess.run([sys.executable, "-c", start, paths.command, "run", sys.executable, "-c", code],
                                    env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                    timeout=60, check=True)
            self.assertEqual(result.stdout, "none\n")

    def test_has_none_of_the_descriptors(self):
        """A pipe that the program closes has no writer left."""
        reader, writer = os.pipe()
        program = f"exec {writer}>&- >&-; head -c 1 <&{reader} | wc -c >&2"
        with subprocess.Popen([paths.command, "run", "sh", "-c", program], env=clean_environment(), text=True,
                              pass_fds=(reader, writer), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            os.close(writer)
            os.close(reader)
            _, err = child.communicate(timeout=60)
        self.assertTrue(err.startswith("0\n"), err)


class Judged(RunTest):
    """--error-exitcode: a job fails where something was found, and the command says what."""

    def ended(self, then, *words, program=HOLDER, **settings):
        env = clean_environment(**{"ALLOGRAFT_COUNTERS": "off", "LD_LIBRARY_PATH": paths.sim, "TMPDIR": self.folder, **settings})
        result = allograft("run", "--stats", "off", *words, "--", sys.executable, self.file("judged.py", program + then + "\n"),
                           env=env)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("allograft-")], [])
        return result.returncode, result.stderr

    def test_of_leaks(self):
        free = "ok(cuda.cuMemFree_v2(memory))\n"
        status, err = self.ended("pass", "--error-exitcode", "9")
        self.assertEqual(status, 9)
        self.assertRegex(err, r"^allograft: run: python\S* \(process \d+\): 1 block was never freed\n$")
        self.assertEqual(self.ended("pass"), (0, ""))  # not asked for
        self.assertEqual(self.ended(free, "--error-exitcode=9"), (0, ""))
        self.assertEqual(self.ended(free + "sys.exit(3)", "--error-exitcode=9"), (3, ""))
        self.assertEqual(self.ended(free + "os.kill(os.getpid(), 15)", "--error-exitcode=9"), (128 + 15, ""))
        # What its context takes along is no leak.
        self.assertEqual(self.ended("ok(cuda.cuCtxDestroy_v2(context))", "--error-exitcode=9"), (0, ""))
        self.assertEqual(self.ended("", "--error-exitcode=9", program="print(1)"), (0, ""))

    def test_of_guards(self):
        beyond = ("ok(cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(1), ctypes.c_size_t((3 << 20) + 8)))\n"
                  "ok(cuda.cuMemFree_v2(memory))")
        status, err = self.ended(beyond, "--guard", "canary", "--error-exitcode=9")
        self.assertEqual(status, 9, err)
        self.assertIn("guards found 1 damaged block\n", err)

    def test_of_children(self):
        child = self.file("child.py", HOLDER)
        status, err = self.ended(f"import subprocess; subprocess.run(['{sys.executable}', '{child}'] )", "--error-exitcode", "8",
                                 program="")
        self.assertEqual((status, err.count("1 block was never freed")), (8, 1), err)

    def test_of_errors_that_stay(self):
        free = "ok(cuda.cuMemFree_v2(memory)); print(cuda.cuCtxSynchronize())"
        for words in (["--on-error", "report"], ["--on-error", "exit"]):
            status, err = self.ended(free, *words, "--error-exitcode=7", SIM_FAIL="cuCtxSynchronize:1:700")
            self.assertEqual(status, 7, err)
            self.assertRegex(err, r"(?m)^allograft: run: python\S* \(process \d+\): cuCtxSynchronize\S* returned 700 .* fails$")
        self.assertEqual(self.ended(free, "--on-error", "exit", SIM_FAIL="cuCtxSynchronize:1:700")[0], 70)

    def test_values(self):
        for value in ("0", "256", "x", "-1", "1.5"):
            self.assert_refused(allograft("run", "--error-exitcode=" + value, "touch", os.path.join(self.folder, "started")),
                                "--error-exitcode=" + value, "1..255")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "started")))
        self.assert_refused(allograft("run", "--error-exitcode=5", "no-such-program"), "not found", status=127)

    def test_signals_and_streams_are_the_programs(self):
        result = allograft("run", "--error-exitcode=5", "--stats=off", "sh", "-c", "cat; echo no >&2; exit 4", input="through\n")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (4, "through\n", "no\n"))


class Unused(RunTest):
    """One line where neither the program nor what it started used CUDA, since there is no report then."""

    def setUp(self):
        super().setUp()
        self.counters = os.path.join(self.folder, "counters")
        os.mkdir(self.counters)
        os.utime(self.counters, (1, 1)) # nobody has used it lately
        self.demo = os.path.join(paths.sim, "demo", "demo-sim")
        if not os.path.exists(self.demo):
            self.skipTest("the demo was not built")

    def said(self, *args, **settings):
        """What the library says of it; reports left out."""
        env = clean_environment(ALLOGRAFT_COUNTERS=self.counters, LD_LIBRARY_PATH=paths.sim,
                                ALLOGRAFT_STATS=os.path.join(self.folder, "%p.json"), **settings)
        result = allograft("run", *args, env=env, unused=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def assert_said(self, *args):
        lines = self.said(*args).splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"^allograft: neither \w+ \(process \d+\) nor what .* CUDA call .* no NVIDIA driver .* statically linked, setuid")

    def test_is_said_of_programs_without_cuda(self):
        for program in (["true"], ["sh", "-c", "true; /bin/true & wait"], [sys.executable, "-c", "pass"],
                        [sys.executable, "-c", "import os; os._exit(0)"], ["sh", "-c", "exec sh -c :"]):
            self.assert_said("--", *program)

    def test_is_not_said_where_a_child_used_it(self):
        for program in ([self.demo], ["sh", "-c", f"'{self.demo}'; exit 0"], ["sh", "-c", f"exec '{self.demo}'"],
                        ["sh", "-c", f"sh -c \"'{self.demo}'; true\"; true"],
                        [sys.executable, "-c", f"import subprocess; subprocess.run(['{self.demo}'])"]):
            os.utime(self.counters, (1, 1))
            self.assertEqual(self.said("--", *program), "")

    def test_is_not_said_where_no_report_is_asked_for(self):
        config = self.file("quiet.conf", "STATS = off\n")
        for words in (["--stats", "off"], ["--log", "error"], ["--disable", "1"], ["--counters", "off"],
                      ["--counters", "/no/such/folder"]):
            self.assertEqual(self.said(*words, "true"), "")
        env = clean_environment(ALLOGRAFT_COUNTERS=self.counters, ALLOGRAFT_CONFIG=config)
        self.assert_silent(allograft("run", "true", env=env, unused=True), "")

    def test_is_said_where_the_program_closes_its_standard_error(self):
        """As GNU programs do before they end; and not into a file of the program that has its number."""
        self.assert_said("--", "ls", self.folder)
        path = os.path.join(self.folder, "mine")
        for program in (f"exec 2>'{path}'", f"exec 2>&-; exec 5>'{path}'"):
            self.assert_said("--", "sh", "-c", program)
            self.assertEqual(os.path.getsize(path), 0)
        # Nothing else of it goes there, and nobody else is written to.
        with open(path, "w", encoding="utf-8") as file:
            subprocess.run([paths.command, "run", "ls", self.folder], stdout=subprocess.DEVNULL, stderr=file, check=True,
                           env=clean_environment(ALLOGRAFT_COUNTERS=self.counters, LD_LIBRARY_PATH=paths.sim))
        with open(path, encoding="utf-8") as file:
            self.assertRegex(file.read(), r"^allograft: neither ls \(process \d+\) nor .*\n$")

    def test_is_not_said_without_the_command(self):
        preload = ":".join(filter(None, [os.environ.get("TEST_PRELOAD"), paths.library]))
        result = subprocess.run(["true"], env=clean_environment(LD_PRELOAD=preload, ALLOGRAFT_COUNTERS=self.counters),
                                stderr=subprocess.PIPE, check=True)
        self.assertEqual(result.stderr, b"")


class NotStarted(RunTest):
    def test_not_found(self):
        self.assert_refused(allograft("run", "no-such-program"), "no-such-program", "not found", status=127)
        self.assert_refused(allograft("run", "./no/such"), "./no/such", "not found", status=127)
        self.assert_refused(allograft("run", ""), "not found", status=127)
        env = clean_environment(PATH=self.folder)
        self.assert_refused(allograft("run", "true", env=env), "true", "not found", status=127)

    def test_not_executable(self):
        plain = self.file("plain", "echo no\n", mode=0o644)
        self.assert_refused(allograft("run", plain), plain, "Permission denied", status=126)
        self.assert_refused(allograft("run", self.folder), self.folder, "Permission denied", status=126)
        env = clean_environment(PATH=self.folder)
        self.assert_refused(allograft("run", "plain", env=env), "plain", "Permission denied", status=126)

    def test_without_its_interpreter(self):
        script = self.file("script", "#!/no/such/interpreter\n")
        self.assert_refused(allograft("run", script), script, "interpreter", status=126)

    def test_path_is_searched_as_a_shell_does(self):
        other = os.path.join(self.folder, "other")
        os.mkdir(other)
        self.file("tool", "echo wrong\n", mode=0o644)
        self.file("other/tool", "#!/bin/sh\necho right\n")
        env = clean_environment(PATH=f"{self.folder}:{other}")
        self.assert_silent(allograft("run", "tool", env=env), "right\n")
        env = clean_environment(PATH=":/nowhere")
        self.assert_silent(allograft("run", "tool", env=env, cwd=other), "right\n")


class Nvtx(RunTest):
    def seen(self, *args, **settings):
        result = allograft("run", *args, "sh", "-c", 'printf %s "$NVTX_INJECTION64_PATH"',
                           env=clean_environment(**settings))
        self.assert_silent(result, result.stdout)
        return result.stdout

    def test_is_told_where_the_library_is_if_the_settings_need_it(self):
        path = self.file("a.conf", "GRAPH = all\nGRAPH_ITERATION = nvtx:step\n", 0o644)
        for args in (["--graph", "name:train*"], ["--graph=legacy,name:x"], ["--config", path],
                     ["--graph", "all", "--set", "graph_iteration=nvtx:step"]):
            self.assertEqual(self.seen(*args), paths.library)
        self.assertEqual(self.seen("--graph", "all", ALLOGRAFT_GRAPH_ITERATION="nvtx:step"), paths.library)
        for args in ([], ["--graph", "all"], ["--set", "graph_iteration=nvtx:step"],
                     ["--graph", "name:x", "--set", "disable=1"]):
            self.assertEqual(self.seen(*args), "")

    def test_keeps_the_library_it_has(self):
        self.assertEqual(self.seen("--graph", "name:x", NVTX_INJECTION64_PATH="/other.so"), "/other.so")
        self.assertEqual(self.seen(NVTX_INJECTION64_PATH="/other.so"), "/other.so")


class Preload(RunTest):
    def test_names_the_library_beside_the_command(self):
        self.assertEqual(self.preload().split(":")[0], paths.library)

    def test_goes_in_front_of_what_is_there(self):
        existing = clean_environment().get("LD_PRELOAD")
        both = (existing + ":" if existing else "") + "libc.so.6"
        self.assertEqual(self.preload(env=clean_environment(LD_PRELOAD=both)),
                         paths.library + ":" + both)

    def test_names_it_once(self):
        others = [*filter(None, [os.environ.get("TEST_PRELOAD")]), "libc.so.6"]
        for separator in (":", " "):
            there = separator.join([paths.library, *others])
            self.assertEqual(self.preload(env=clean_environment(LD_PRELOAD=there)), there)
        inner = allograft("run", paths.command, "run", "sh", "-c", 'printf %s "$LD_PRELOAD"')
        self.assert_silent(inner, self.preload())

    def test_of_a_like_named_library_does_not_count(self):
        longer = shutil.copy(paths.library, os.path.join(self.folder, "liballograft.so"))
        there = longer + (":" + os.environ["TEST_PRELOAD"] if os.environ.get("TEST_PRELOAD") else "")
        env = clean_environment(LD_PRELOAD=there)
        seen = self.preload(env=env)
        self.assertEqual(seen, paths.library + ":" + there)

    def test_warns_where_nothing_can_be_preloaded(self):
        content = static_program()
        if not content:
            self.skipTest("no static program for " + platform.machine())
        program = self.file("static", content)
        result = allograft("run", program)
        self.assertEqual((result.returncode, result.stdout), (42, ""))
        self.assertEqual(len(result.stderr.splitlines()), 1)
        for text in ("warning", program, "statically linked"):
            self.assertIn(text, result.stderr)
        result = allograft("run", "static", env=clean_environment(PATH=self.folder))
        self.assertEqual(result.returncode, 42)
        self.assertIn("statically linked", result.stderr)

    def test_warns_of_a_32_bit_program(self):
        program = self.file("small", b"\x7fELF" + bytes([1, 1, 1]) + bytes(57))
        result = allograft("run", program)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("32-bit", result.stderr.splitlines()[0])

    def test_warns_of_a_setuid_program(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to make a setuid program of another user")
        for mode, user, group in ((0o4755, 65534, 0), (0o2755, 0, 65534)):
            program = shutil.copy(shutil.which("true"), os.path.join(self.folder, f"raised{mode:o}"))
            os.chown(program, user, group)
            os.chmod(program, mode)
            result = allograft("run", program)
            self.assertEqual((result.returncode, result.stdout), (0, ""))
            self.assertIn("setuid", result.stderr.splitlines()[0])

    def test_does_not_warn_of_a_script(self):
        script = self.file("script", "#!/bin/sh\necho fine\n")
        self.assert_silent(allograft("run", script), "fine\n")


@unittest.skipIf(tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2])) < (2, 35), "no audit there")
class Audit(RunTest):
    """What earlier runs have found (tests/preload/lookup/test_loaders.py) decides about the audit."""

    def setUp(self):
        super().setUp()
        self.says = 'printf "%s|%s" "${LD_AUDIT##*/}" "$ALLOGRAFT_AUDIT_MEMORY"'
        self.script = os.path.realpath(self.file("a.sh", f"#!/bin/sh\n{self.says}\n"))
        self.shell = os.path.realpath(shutil.which("sh"))
        self.memory = os.path.join(self.folder, "state", "allograft", "audit")

    def remember(self, *lines, memory=None):
        memory = memory or self.memory
        os.makedirs(os.path.dirname(memory), exist_ok=True)
        with open(memory, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)

    def run_with(self, *words, **changes):
        result = allograft("run", *words, env=clean_environment(**{"XDG_STATE_HOME": self.folder + "/state", **changes}))
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def assert_off(self, line, *words, **changes):
        """`line`: what its processes would note."""
        result = self.run_with(*words, **changes)
        self.assertEqual((result.stdout, result.stderr), ("|" + (f"{self.memory}\t{line}" if line else ""), ""))

    def assert_on(self, *words, **changes):
        result = self.run_with(*words, **changes)
        self.assertEqual(result.stdout, "liballograft-audit.so|")
        self.assertEqual(result.stderr, f"allograft: run: calls of {words[0]} went past Allograft before (RTLD_DEEPBIND): "
                                        "--audit is on; --no-audit leaves it off\n")

    def test_of_this_program_alone(self):
        of_script = f"{self.shell} {self.script}"
        other = os.path.realpath(self.file("b.sh", f"{self.says}\n"))
        self.assert_off(of_script, "sh", self.script)
        self.remember("/some/program", of_script + "x", "x" + of_script, self.shell)
        self.assert_off(of_script, "sh", self.script)
        self.remember("/some/program", of_script, "/another")
        self.assert_on("sh", self.script)
        self.assert_on("sh", "-e", self.script, "argument")
        self.assert_off(f"{self.shell} {other}", "sh", other, self.script)
        self.assert_off(self.script, self.script)
        self.remember(self.script)
        self.assert_on(self.script)
        # What comes from a text, or names no program, is nobody's.
        self.remember(self.shell)
        self.assert_off("", "sh", "-c", self.says)
        self.assertEqual(os.listdir(os.path.dirname(self.memory)), ["audit"])

    def test_modules_of_python(self):
        python = os.path.realpath(sys.executable)
        self.file("spoken.py", "import os; print(os.environ.get('LD_AUDIT', '')[-9:] + '|' + "
                               "os.environ.get('ALLOGRAFT_AUDIT_MEMORY', ''), end='')")
        command = sys.executable, "-m", "spoken"
        self.assert_off(f"{python} -m spoken", *command, PYTHONPATH=self.folder)
        self.remember(f"{python} -m spoken")
        self.assertEqual(self.run_with(*command, PYTHONPATH=self.folder).stdout, "-audit.so|")

    def test_options_decide(self):
        self.remember(self.script)
        self.assert_off("", "--no-audit", self.script)
        self.assert_silent(self.run_with("--audit", self.script), "liballograft-audit.so|")
        self.remember("/another")
        self.assert_off("", "--no-audit", self.script)
        self.assert_silent(self.run_with("--audit", self.script), "liballograft-audit.so|")

    def test_where_it_is_kept(self):
        for state in (None, "", "relative"):
            self.remember(self.script, memory=os.path.join(self.folder, ".local/state/allograft/audit"))
            self.assert_on(self.script, XDG_STATE_HOME=state, HOME=self.folder)
            self.assert_off("", self.script, XDG_STATE_HOME=state, HOME=None)
        os.mkdir(os.path.join(self.folder, "state"))
        os.mkfifo(os.path.join(self.folder, "state", "allograft"))
        self.assert_off(self.script, self.script)

    def test_without_the_audit_library(self):
        program = os.path.join(self.folder, "bin", "allograft")
        os.makedirs(os.path.dirname(program))
        shutil.copy(paths.command, program)
        shutil.copy(paths.library, os.path.join(self.folder, "bin", "liballograft.so"))
        self.remember(self.script)
        result = allograft("run", self.script, command=program, env=clean_environment(XDG_STATE_HOME=self.folder + "/state"))
        self.assert_silent(result, "|")

    def test_of_a_run_around_it(self):
        self.remember("/another")
        result = self.run_with("--audit", paths.command, "run", "--no-audit", self.script)
        self.assertEqual(result.stdout, "liballograft-audit.so|")
        result = self.run_with(paths.command, "run", self.script)
        self.assertEqual(result.stdout, f"|{self.memory}\t{self.script}")


class Library(RunTest):
    def install(self, *folders):
        """The command in a prefix of its own with the library in these folders of it."""
        program = os.path.join(self.folder, "bin", "allograft")
        os.makedirs(os.path.dirname(program))
        shutil.copy(paths.command, program)
        for folder in folders:
            os.makedirs(os.path.join(self.folder, folder), exist_ok=True)
            shutil.copy(paths.library, os.path.join(self.folder, folder, "liballograft.so"))
        return program

    def test_for_an_audit_that_was_not_built(self):
        """In a build folder the line says what builds it."""
        folder = os.path.realpath(self.folder)
        program = self.install("bin")
        audited = ("run", "--audit", "touch", os.path.join(folder, "started"))
        result = allograft(*audited, command=program)
        self.assert_refused(result, f"--audit: {folder}/bin/liballograft-audit.so: No such file", status=1)
        self.file("bin/build.ninja", "")
        result = allograft(*audited, command=program)
        self.assert_refused(result, f"--audit: {folder}/bin/liballograft-audit.so was not built: `ninja -C {folder}/bin "
                            "liballograft-audit.so` builds it", status=1)
        self.assertFalse(os.path.exists(os.path.join(folder, "started")))

    def first_preload(self, program, env=None):
        result = allograft("run", "sh", "-c", 'printf %s "$LD_PRELOAD"', command=program, env=env)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.split(":")[0]

    def test_is_found_from_an_installed_command(self):
        machine = platform.machine() + "-linux-gnu"
        for folder in ("bin", "lib", "lib/" + machine, "lib64"):
            program = self.install(folder)
            self.assertEqual(self.first_preload(program),
                             os.path.realpath(os.path.join(self.folder, folder, "liballograft.so")))
            shutil.rmtree(os.path.join(self.folder, "bin"))
            shutil.rmtree(os.path.join(self.folder, folder), ignore_errors=True)

    def test_that_is_nowhere_is_an_error_naming_the_places(self):
        with open(paths.command, "rb") as file:
            installed = [place for place in re.findall(rb"/[^\0]*/liballograft\.so", file.read())
                         if not place.startswith(b"/../") and os.path.exists(place)]
        if installed:
            self.skipTest(f"this build is installed: {installed[0].decode()}")
        program = self.install()
        installed = allograft("run", "true", command=program)
        self.assertEqual((installed.returncode, installed.stdout), (1, ""))
        lines = installed.stderr.splitlines()
        self.assertIn("ALLOGRAFT_LIBRARY", lines[0])
        self.assertEqual(lines[1].strip(), os.path.join(self.folder, "bin", "liballograft.so"))
        self.assertGreaterEqual(len(lines), 4)

    def test_can_be_named(self):
        program = self.install()
        there = shutil.copy(paths.library, os.path.join(self.folder, "other.so"))
        self.assertEqual(self.first_preload(program, clean_environment(ALLOGRAFT_LIBRARY=there)),
                         os.path.realpath(there))
        result = allograft("run", "sh", "-c", 'printf %s "$LD_PRELOAD"', command=program, cwd=self.folder,
                           env=clean_environment(ALLOGRAFT_LIBRARY="./other.so"))
        self.assertEqual(result.stdout.split(":")[0], os.path.realpath(there))

    def test_named_wrongly_is_an_error(self):
        env = clean_environment(ALLOGRAFT_LIBRARY="/no/such.so")
        self.assert_refused(allograft("run", "true", env=env), "ALLOGRAFT_LIBRARY=/no/such.so", status=1)
        with open(paths.library, "rb") as file:
            head = file.read(64)
        for name, content in (("empty", b""), ("text", b"no library\n" * 10), ("cut", head[:63]),
                              ("other", head[:18] + b"\x08\x00" + head[20:])):
            there = os.path.join(self.folder, name)
            with open(there, "wb") as file:
                file.write(content)
            for words in (("run",), ("tune", "--runs", "1"), ("profile",)):
                result = allograft(*words, "true", env=clean_environment(ALLOGRAFT_LIBRARY=there))
                self.assert_refused(result, f"{there}: it is ", status=1)
        result = allograft("run", "true", env=clean_environment(ALLOGRAFT_LIBRARY=self.folder))
        self.assert_refused(result, f"{self.folder}: Is a directory", status=1)

    def test_in_a_place_ld_preload_cannot_name_is_an_error(self):
        for name in ("with space", "with:colon"):
            os.mkdir(os.path.join(self.folder, name))
            there = shutil.copy(paths.library, os.path.join(self.folder, name, "liballograft.so"))
            env = clean_environment(ALLOGRAFT_LIBRARY=there)
            for words in (("run",), ("tune", "--runs", "1"), ("profile",)):
                self.assert_refused(allograft(*words, "true", env=env), there, "LD_PRELOAD", status=1)

    def test_in_such_a_place_is_found_through_a_link(self):
        os.mkdir(os.path.join(self.folder, "with space"))
        shutil.copy(paths.library, os.path.join(self.folder, "with space", "liballograft.so"))
        os.symlink("with space", os.path.join(self.folder, "link"))
        through = os.path.join(os.path.realpath(self.folder), "link", "liballograft.so")
        for name in (through, "link/liballograft.so"):
            result = allograft("run", "sh", "-c", 'printf %s "$LD_PRELOAD"', cwd=self.folder,
                               env=clean_environment(ALLOGRAFT_LIBRARY=name))
            self.assertEqual((result.returncode, result.stderr, result.stdout.split(":")[0]), (0, "", through))


if __name__ == "__main__":
    command.main()
