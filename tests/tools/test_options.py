"""`allograft options`, --check, --version and --help: the tables and every refusal."""

import fcntl
import os
import pty
import re
import subprocess
import struct
import termios

import command
from command import CommandTest, allograft, clean_environment, paths, some


def read(*path):
    with open(os.path.join(paths.root, *path), encoding="utf-8") as file:
        return file.read()


def rows_of_the_list():
    """(variable, default, allowed) of each row of interpose/core/settings/options.def, in its order."""
    row = re.compile(r'^AG_OPTION\(\w+, (\w+), \w+, "([^"]*)", "([^"]*)"', re.MULTILINE)
    return [("ALLOGRAFT_" + m[1], m[2], m[3]) for m in row.finditer(read("interpose", "core", "settings", "options.def"))]


class Table(CommandTest):
    def setUp(self):
        result = allograft("options")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.table = result.stdout

    def test_lists_every_row_in_order(self):
        rows = rows_of_the_list()
        self.assertGreaterEqual(len(rows), 8)
        listed = [tuple(line.split()[:3]) for line in self.table.splitlines()
                  if line.startswith("ALLOGRAFT_")]
        self.assertEqual(listed, rows)

    def test_holds_the_whole_meaning(self):
        source = read("interpose", "core", "settings", "options.def")
        meanings = re.findall(r'AG_OPTION\((?:[^"\n]*"[^"]*"){2},\s*((?:"[^"]*"\s*)+)\)', source)
        self.assertEqual(len(meanings), len(rows_of_the_list()))
        start = self.table.index("meaning")
        column = [line[start:] for line in self.table.splitlines()[1:]]
        words = " ".join(" ".join(column).split())
        for meaning in meanings:
            self.assertIn(" ".join("".join(re.findall(r'"([^"]*)"', meaning)).split()), words)

    def test_is_aligned_and_fits_100_columns(self):
        lines = self.table.splitlines()
        start = lines[0].index("meaning")
        for line in lines:
            self.assertLessEqual(len(line), 100)
            self.assertEqual(line, line.rstrip())
            self.assertEqual(line[start - 2:start], "  ")
            self.assertNotEqual(line[start], " ")


    def test_is_a_list_in_a_narrow_terminal(self):
        def shown(columns):
            ours, theirs = pty.openpty()
            self.addCleanup(os.close, ours)
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
            child = command.subprocess.Popen([paths.command, "options"], stdin=theirs, stdout=theirs, stderr=theirs,
                                             env=clean_environment())
            os.close(theirs)
            text = b""
            try:
                while chunk := os.read(ours, 65536):
                    text += chunk
            except OSError: # its end
                pass
            self.assertEqual(child.wait(), 0)
            return text.decode().replace("\r\n", "\n")
        self.assertEqual(shown(100), self.table)
        narrow = shown(80)
        for line in narrow.splitlines():
            self.assertLess(len(line), 80)
        for name, value, allowed in rows_of_the_list():
            self.assertIn(f"{name}  {allowed}  ({value})\n    ", narrow)


class Check(CommandTest):
    def check(self, **settings):
        return allograft("options", "--check", env=clean_environment(**settings))

    def test_says_where_each_value_comes_from(self):
        result = self.check(ALLOGRAFT_POLICY="native", ALLOGRAFT_CACHE="64MiB")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        expected = []
        for name, value, _ in rows_of_the_list():
            changed = {"ALLOGRAFT_POLICY": "native", "ALLOGRAFT_CACHE": "64MiB"}.get(name)
            expected.append([name, changed or value, "environment" if changed else "default"])
        self.assertEqual([line.split() for line in result.stdout.partition("\n\n")[0].splitlines()],
                         expected)

    def test_refuses_a_bad_value(self):
        self.assert_refused(self.check(ALLOGRAFT_POLICY="fast"),
                            "ALLOGRAFT_POLICY", "fast", "auto|pool|native|managed")

    def test_refuses_an_unknown_name(self):
        self.assert_refused(self.check(ALLOGRAFT_POLCY="pool"),
                            "ALLOGRAFT_POLCY", "ALLOGRAFT_POLICY")

    def test_names_every_wrong_setting(self):
        result = self.check(ALLOGRAFT_POLICY="fast", ALLOGRAFT_LOG="loud")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(len(result.stderr.splitlines()), 2)

    def test_prints_the_rules_as_they_are_understood(self):
        result = self.check(ALLOGRAFT_RULES="size > 1023 : Managed , prefer = host;*:pool;nth=7:native;"
                                            "from=libnccl*:backend=plain")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn(["ALLOGRAFT_RULES", "4", "rules", "environment"],
                      [line.split() for line in result.stdout.splitlines()])
        table = result.stdout.partition("\n\n")[2].splitlines()
        self.assertEqual(table[:6], ["rule  conditions        placement  settings",
                                     "   1  size>=1KiB        managed    prefer=host",
                                     "   2  *                 pool",
                                     "   3  nth=7             native",
                                     "      rule 3 never decides: rule 2 applies wherever it does",
                                     "   4  from=libnccl*                backend=plain"])
        for line in table:
            self.assertEqual(line, line.rstrip())
            self.assertLessEqual(len(line), 100)

    def test_prints_the_built_in_rules_below(self):
        globs = re.findall(r'"(lib\w+\*)"', read("interpose", "core", "settings", "rules.c"))
        self.assertIn("libnccl*", globs)
        for rules in (None, "*:pool"):
            lines = self.check(ALLOGRAFT_RULES=rules).stdout.splitlines()
            built_in = [line.split() for line in lines if line.startswith("   - ")]
            self.assertEqual(built_in, [["-", "from=" + glob, "native"] for glob in globs])

    def test_points_at_mistakes_in_rules(self):
        for rules, shown, caret in (("nth=1:native; *:pol", "  nth=1:native; *:pol", 16),
                                    ("*", "  *", 1), ("\tsize=1:\npool,", "   size=1: pool,", 14),
                                    ("thread=\u00e4\u00f6:pol", "  thread=\u00e4\u00f6:pol", 10)):
            result = self.check(ALLOGRAFT_RULES=rules)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            lines = result.stderr.splitlines()
            self.assertEqual(len(lines), 3, result.stderr)
            self.assertTrue(lines[0].startswith("allograft: ALLOGRAFT_RULES: column "), lines[0])
            self.assertEqual(lines[1:], [shown, "  " + " " * caret + "^"])

    def test_points_at_mistakes_in_streams(self):
        result = self.check(ALLOGRAFT_GRAPH="legacy, nth:0")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr.splitlines()[1:], ["  legacy, nth:0", "          ^"])

    def test_points_into_long_rules(self):
        rules = "*:pool;" * 30 + "nth=1:natve" + ";*:pool" * 30
        lines = self.check(ALLOGRAFT_RULES=rules).stderr.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertLessEqual(len(lines[1]), 100)
        self.assertEqual(lines[1][lines[2].index("^"):][:5], "natve")

    def config(self, text):
        folder = command.tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "a.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_reads_the_file_and_says_where_values_stand(self):
        path = self.config("# settings\nPOLICY = managed\nFREE = sync\nRULES = nth=1:pool\n")
        result = self.check(ALLOGRAFT_CONFIG=path, ALLOGRAFT_FREE="ordered")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = [line.split() for line in result.stdout.splitlines()]
        for expected in (["ALLOGRAFT_POLICY", "managed", path + ":2"],
                         ["ALLOGRAFT_FREE", "ordered", "environment"],
                         ["ALLOGRAFT_RULES", "1", "rule", path + ":4"],
                         ["ALLOGRAFT_CONFIG", path, "environment"],
                         ["ALLOGRAFT_LIMIT", "max", "default"], ["1", "nth=1", "pool"]):
            self.assertIn(expected, lines)

    def test_points_at_mistakes_in_the_file(self):
        path = self.config("POLICY = pool\n  RULES = szie>1:pool\nFREE\n")
        result = self.check(ALLOGRAFT_CONFIG=path)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 6)
        self.assertTrue(lines[0].startswith(f'allograft: {path}:2: column 11: unknown condition "szie"'))
        self.assertEqual(lines[1:3], ["    RULES = szie>1:pool", "            ^"])
        self.assertTrue(lines[3].startswith(f"allograft: {path}:3: column 5: no '='"))
        self.assertEqual(lines[4:], ["  FREE", "      ^"])

    def test_refuses_a_file_that_is_none(self):
        self.assert_refused(self.check(ALLOGRAFT_CONFIG="/no/such.conf"), "/no/such.conf", "No such file")
        self.assert_refused(self.check(ALLOGRAFT_CONFIG="/"), "ALLOGRAFT_CONFIG=/", "directory")
        self.assert_refused(self.check(ALLOGRAFT_CONFIG="/dev/null"), "/dev/null", "no regular file")
        self.assert_refused(self.check(ALLOGRAFT_CONFIG=self.config("\n" * 65537)), "too large")

    def test_reads_no_binary_file(self):
        """One line at the first NUL byte, be it in a comment; what comes behind it is no text either."""
        for text, line, column in (("\0\n\0\nPOLICY = fast\n", 1, 1), ("LOG = info\n# a\0b\n", 2, 4),
                                   ("LOG = in\0fo\nnonsense\n", 1, 9)):
            path = self.config(text)
            result = self.check(ALLOGRAFT_CONFIG=path)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            said = [one for one in result.stderr.splitlines() if one.startswith("allograft: ")]
            self.assertEqual(said, [f"allograft: {path}:{line}: column {column}: a NUL byte; allowed: text"])

    def test_takes_any_sign_of_per_cent_that_names_nothing(self):
        for value in ("100%.json", "50%/%p.json", "%%p.json", "%"):
            self.assertEqual(self.check(ALLOGRAFT_STATS=value).returncode, 0, value)

    def test_lets_the_commands_own_variable_pass(self):
        self.assertEqual(self.check(ALLOGRAFT_LIBRARY="/anything").returncode, 0)

    def test_lets_other_variables_pass(self):
        self.assertEqual(self.check(ALLOGRAFTING="1", NOT_ALLOGRAFT_X="1").returncode, 0)


class NearNames(CommandTest):
    """Variables that were likely meant to be settings: one line each, and all goes on."""

    NEAR = {"ALOGRAFT_POLICY": "ALLOGRAFT_POLICY", "ALLOGRAF_POLCY": "ALLOGRAFT_POLICY",
            "ALLOGRAFTPOLICY": "ALLOGRAFT_POLICY", "allograft_stats": "ALLOGRAFT_STATS",
            "ALOLGRAFT_LOG": "ALLOGRAFT_LOG", "ALLOGRAPH_CACHE": "ALLOGRAFT_CACHE",
            "ALLOGRAFTS_GRAPH_HOLD_US": "ALLOGRAFT_GRAPH_HOLD_US", "ALLOGRAF_TRACE": "ALLOGRAFT_TRACE"}
    OTHERS = ("ALLOGRAFTING", "ALLOGRAFT", "ALOGRAFT_HOME", "ALLOGRAFTS_DIR", "GRAFT_POLICY", "POLICY", "GRAPH",
              "ALLOCATOR_POLICY", "_ALLOGRAFT_", "ALLO_LOG", "MALLOC_TRACE", "A" * 500)

    def test_are_named(self):
        for words in (["options", "--check"], ["run", "true"], ["tune", "--runs=1", "--compare=none", "true"]):
            result = allograft(*words, env=clean_environment(ALOGRAFT_POLICY="x"))
            self.assertEqual(result.returncode, 0)
            self.assertEqual(result.stderr.splitlines()[0],
                             "allograft: warning: ALOGRAFT_POLICY is not a setting; did you mean ALLOGRAFT_POLICY?")
        for name, meant in self.NEAR.items():
            result = allograft("options", "--check", env=clean_environment(**{name: "1"}))
            self.assertEqual(result.stderr, f"allograft: warning: {name} is not a setting; did you mean {meant}?\n")

    def test_others_are_left_alone(self):
        for name in self.OTHERS:
            result = allograft("options", "--check", env=clean_environment(**{name: "1"}))
            self.assertEqual((result.returncode, result.stderr), (0, ""), name)


class Units(CommandTest):
    """What is not allowed is answered by what is: numbers by what they are counted in, words by the likely one."""

    WRONG = {"BYTES|N%|max": ("1XB", "64KiB"), "BYTES": ("1XB", "64KiB"), "COUNT": ("3ms", "without a unit"),
             "SEGMENT": ("4x", "without a unit"), "PREFER": ("numa:x", "numa:0")}

    def test_every_type_names_what_is_allowed(self):
        rows = re.findall(r'^AG_OPTION\(\w+, (\w+), (\w+), "[^"]*", "([^"]*)"', read("interpose", "core", "settings", "options.def"), re.M)
        numbers = 0
        for name, kind, allowed in rows:
            value, hint = self.WRONG.get(allowed, self.WRONG.get(kind, ("\x7f", "")))
            if kind in ("TEXT", "PATH"):
                continue
            result = allograft("options", "--check", env=clean_environment(**{"ALLOGRAFT_" + name: value}))
            self.assertEqual(result.returncode, 2, name)
            self.assertIn("allowed: ", result.stderr)
            self.assertIn(hint, result.stderr, name)
            numbers += bool(hint)
        self.assertGreater(numbers, 12)

    def test_words_that_are_nearly_right(self):
        for name, value, meant in (("POLICY", "manged", "managed"), ("FREE", "synch", "sync"), ("PREFER", "hots", "host"),
                                   ("GRAPH_SEGMENT", "grow", "growing"), ("LOG", "wran", "warn")):
            self.assert_refused(allograft("options", "--check", env=clean_environment(**{"ALLOGRAFT_" + name: value})),
                                f"ALLOGRAFT_{name}={value} is not allowed", f"did you mean {meant}?")
        result = allograft("options", "--check", env=clean_environment(ALLOGRAFT_FROBNICATE="1"))
        self.assert_refused(result, "ALLOGRAFT_FROBNICATE", "`allograft options` lists them")


class Words(CommandTest):
    def test_version(self):
        version = re.search(r"\n\s*version: '([^']+)'", read("meson.build"))[1]
        said = allograft("--version")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertRegex(said.stdout, r"^allograft %s( \(commit [0-9a-f]{12,40}(-dirty)?\))?\n$" % re.escape(version))
        head = subprocess.run(["git", "-C", paths.root, "rev-parse", "HEAD"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True, check=False)
        if os.path.exists(os.path.join(paths.root, ".git")) and head.returncode == 0:
            self.assertIn(" (commit " + head.stdout[:12], said.stdout)

    def test_help_names_every_command(self):
        for word in ("--help", "-h", "help"):
            result = allograft(word)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for name in ("allograft run", "allograft options", "--check", "--version"):
                self.assertIn(name, result.stdout)
            self.assertEqual(re.findall(r"(?m)^  (\w+)  ", result.stdout), command.names_of_commands())

    def test_help_of_options(self):
        result = allograft("options", "--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("--check", result.stdout)

    def test_nothing_said_is_a_usage_error_with_the_help(self):
        result = allograft()
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, allograft("--help").stdout)

    def test_refuses_what_it_does_not_know(self):
        self.assert_refused(allograft("rum"), "'rum'", "did you mean run?")
        self.assert_refused(allograft("reprot"), "did you mean report?")
        self.assert_refused(allograft("help", "reprot"), "did you mean report?")
        self.assert_refused(allograft("version"), "did you mean --version?")
        self.assert_refused(allograft("frobnicate"), "'frobnicate'", "`allograft --help`")
        self.assert_refused(allograft("--policy=pool"), "`allograft run --policy=pool`")
        self.assert_refused(allograft(paths.command), f"`allograft run {paths.command}`")
        self.assert_refused(allograft("options", "--chekc"), "'--chekc'", "--check")
        self.assert_refused(allograft("options", "--check", "more"), "'more'")

    def test_a_full_disk_is_no_success(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = command.subprocess.run([paths.command, "options"], stdout=full,
                                            stderr=command.subprocess.PIPE, text=True,
                                            env=clean_environment(), check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write", result.stderr)


class Line(CommandTest):
    """What is the same of every command: each row of the table, taken, refused and explained."""

    def options(self):
        for name, option, _, argument, *_ in command.rows_of("OPTION"):
            yield name, "--" + option.replace("_", "-"), argument.strip('"')

    def test_help_has_every_row(self):
        self.assertGreater(len(list(self.options())), 25)
        for name in command.names_of_commands():
            for words in ([name, "--help"], [name, "-h"], ["help", name], [name, "--help", "--nothing"]):
                result = allograft(*words)
                self.assertEqual((result.returncode, result.stderr), (0, ""), words)
                self.assertEqual(result.stdout, allograft(name, "--help").stdout)
        for name, option, argument in self.options():
            said = f"\n  {option} {argument}" if argument != "NULL" else f"\n  {option}"
            found = re.search(re.escape(said) + r"\s", allograft(name, "--help").stdout)
            self.assertEqual(found is not None, option != "--work", option)

    def test_help_fits_a_terminal(self):
        for words in [["--help"]] + [[name, "--help"] for name in command.names_of_commands()]:
            for line in allograft(*words).stdout.splitlines():
                self.assertLess(len(line), 80, line)

    def test_help_is_found_behind_other_options(self):
        for words in (["run", "--policy", "pool"], ["run", "--rule=*:pool"], ["top", "--json"], ["trace", "a"],
                      ["options", "--check"], ["tune", "--runs=2"], ["report", "a", "b"]):
            self.assertEqual(allograft(*words, "--help").stdout, allograft(words[0], "--help").stdout)

    def test_a_value_that_is_missing_is_said(self):
        for name, option, argument in some(self.options()):
            if argument == "NULL":
                self.assert_refused(allograft(name, option + "=1"), f"{name}: {option} takes no value")
                continue
            for behind in ([], ["--"], ["--json"]):
                self.assert_refused(allograft(name, option, *behind),
                                    f"{name}: {option} needs a value: {option} {argument}")

    def test_near_misses_are_named(self):
        for name, option, argument in some(self.options()):
            if option == "--work": # of the self-test alone
                continue
            for miss in (option[:-1], option + "x", option[:-2] + option[:-3:-1]):
                if any(miss == other for its, other, _ in self.options() if its == name):
                    continue
                near = allograft(name, miss + ("=1" if argument != "NULL" else ""))
                self.assert_refused(near, f"{name}: no option '{miss}", "did you mean --")
        for name in command.names_of_commands():
            self.assert_refused(allograft(name, "--frobnicate"), "'--frobnicate'", f"`allograft {name} --help`")
        self.assert_refused(allograft("run", "--polcy", "pool", "true"), "did you mean --policy?")
        self.assert_refused(allograft("run", "--pool_keep=0", "true"), "did you mean --pool-keep?")
        self.assert_refused(allograft("run", "-x", "true"), "'-x'")

    def test_values_are_taken_both_ways(self):
        with command.tempfile.TemporaryDirectory() as folder:
            for words in (["top", "--json", "--interval", "x"], ["top", "--json", "--interval=x"]):
                self.assert_refused(allograft(*words), "--interval=x", "seconds")
            for words in (["--html", "a.html"], ["--html=a.html"]):
                allograft("tune", "--runs=1", "--compare=none", *words, "true", cwd=folder)
                os.remove(os.path.join(folder, "a.html"))

    def test_two_dashes_end_the_options(self):
        for name in ("report", "top", "trace"):
            result = allograft(name, "--", "--json")
            self.assertRegex(result.stderr, r"^allograft: (\w+: )?--json: [Nn]o such file")
            self.assertEqual(result.returncode, 1)
        result = allograft("diff", "--", "--json", "-h")
        self.assertEqual([line.split(":")[1] for line in result.stderr.splitlines()], [" --json", " -h"])
        with command.tempfile.TemporaryDirectory() as folder:
            self.assert_refused(allograft("run", "--stats", "--", "true", cwd=folder), "--stats needs a value")
            self.assertEqual(os.listdir(folder), [])

    def test_every_setting_is_an_option_of_run(self):
        for name, value, _ in some(rows_of_the_list()):
            option = "--" + name[len("ALLOGRAFT_"):].lower().replace("_", "-")
            for words in ([option, value], [f"{option}={value}"]):
                result = allograft("run", *words, "sh", "-c", f'printf %s "${name}"')
                self.assert_silent(result, value)
            self.assertIn(option, allograft("run", "--help").stdout)

    def test_operands_are_counted(self):
        for words in (["run"], ["tune"], ["diff", "a"], ["trace"]):
            self.assert_refused(allograft(*words), words[0] + ": too few arguments", "usage: allograft " + words[0])
        for words in (["options", "x"], ["doctor", "x"], ["top", "a", "x"], ["trace", "a", "x"], ["diff", "a", "b", "x"]):
            self.assert_refused(allograft(*words), "'x' is one argument too many", "usage: allograft " + words[0])


if __name__ == "__main__":
    command.main()
