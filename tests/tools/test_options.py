"""`allograft options`, --check, --version and --help: the tables and every refusal."""

import os
import re

import command
from command import CommandTest, allograft, clean_environment, paths


def read(*path):
    with open(os.path.join(paths.root, *path), encoding="utf-8") as file:
        return file.read()


def rows_of_the_list():
    """(variable, default, allowed) of each row of interpose/options.def, in its order."""
    row = re.compile(r'^AG_OPTION\(\w+, (\w+), \w+, "([^"]*)", "([^"]*)"', re.MULTILINE)
    return [("ALLOGRAFT_" + m[1], m[2], m[3]) for m in row.finditer(read("interpose", "options.def"))]


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
        source = read("interpose", "options.def")
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
        self.assertEqual([line.split() for line in result.stdout.splitlines()], expected)

    def test_refuses_a_bad_value(self):
        self.assert_refused(self.check(ALLOGRAFT_POLICY="fast"),
                            "ALLOGRAFT_POLICY", "fast", "pool|native|managed")

    def test_refuses_an_unknown_name(self):
        self.assert_refused(self.check(ALLOGRAFT_POLCY="pool"),
                            "ALLOGRAFT_POLCY", "ALLOGRAFT_POLICY")

    def test_names_every_wrong_setting(self):
        result = self.check(ALLOGRAFT_POLICY="fast", ALLOGRAFT_LOG="loud")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(len(result.stderr.splitlines()), 2)

    def test_lets_the_commands_own_variable_pass(self):
        self.assertEqual(self.check(ALLOGRAFT_LIBRARY="/anything").returncode, 0)

    def test_lets_other_variables_pass(self):
        self.assertEqual(self.check(ALLOGRAFTING="1", NOT_ALLOGRAFT_X="1").returncode, 0)


class Words(CommandTest):
    def test_version(self):
        version = re.search(r"\n\s*version: '([^']+)'", read("meson.build"))[1]
        self.assert_silent(allograft("--version"), f"allograft {version}\n")

    def test_help_names_every_command(self):
        for word in ("--help", "-h", "help"):
            result = allograft(word)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for name in ("allograft run", "allograft options", "--check", "--version"):
                self.assertIn(name, result.stdout)

    def test_help_of_options(self):
        result = allograft("options", "--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("--check", result.stdout)

    def test_nothing_said_is_a_usage_error_with_the_help(self):
        result = allograft()
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, allograft("--help").stdout)

    def test_refuses_what_it_does_not_know(self):
        self.assert_refused(allograft("rum"), "'rum'", "run", "options")
        self.assert_refused(allograft("options", "--chekc"), "'--chekc'", "--check")
        self.assert_refused(allograft("options", "--check", "more"), "'more'")

    def test_a_full_disk_is_no_success(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = command.subprocess.run([paths.command, "options"], stdout=full,
                                            stderr=command.subprocess.PIPE, text=True,
                                            env=clean_environment(), check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write", result.stderr)


if __name__ == "__main__":
    command.main()
