"""README.md and HACKING.md against what the code says: tables, links, files they name."""

import os
import re
import subprocess
import sys

import command
from command import CommandTest, allograft, paths


def read(name):
    with open(os.path.join(paths.root, name), encoding="utf-8") as file:
        return file.read()


class Readme(CommandTest):
    def block(self, pattern):
        match = re.search(pattern, read("README.md"), re.DOTALL)
        self.assertIsNotNone(match, pattern)
        return match[1]

    def test_settings_are_the_commands(self):
        self.assertEqual(self.block(r"<!-- allograft options -->\n```text\n(.*?)```\n"),
                         allograft("options").stdout)

    def test_coverage_is_the_lists(self):
        script = os.path.join(paths.root, "tools", "coverage_table.py")
        printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
        self.assertIn("`cuMemAlloc_v2`", printed.stdout)
        self.assertIn("`cuMemFreeAsync` (`_ptsz`)", printed.stdout)
        self.assertEqual(self.block(r"<!-- coverage table -->\n(.*?)\n## "), printed.stdout)

    def test_coverage_names_every_hook(self):
        hooked = re.findall(r"^AG_HOOK(?:_IF)?\(\w+, (\w+),", read("interpose/hooks.def"), re.MULTILINE)
        table = self.block(r"<!-- coverage table -->\n(.*?)\n## ")
        for symbol in hooked:
            twin = symbol.removesuffix("_ptsz")
            self.assertIn(f"`{symbol}`" if twin not in hooked or twin == symbol
                          else f"`{twin}` (`_ptsz`)", table)


class Names(CommandTest):
    def test_that_look_like_files_of_ours_are(self):
        folders = "interpose|policy|graph|tools|tests"
        for document in ("README.md", "HACKING.md"):
            named = set(re.findall(rf"(?<![\w/.-])((?:{folders})/[\w./*-]*\w)", read(document)))
            self.assertGreater(len(named), 2)
            for name in named - {"tests/sim/demo/demo-sim"}:
                folder, last = os.path.split(os.path.join(paths.root, name))
                pattern = re.compile(re.escape(last).replace(r"\*", ".*"))
                there = [f for f in os.listdir(folder) if pattern.match(f)]
                self.assertNotEqual(there, [], f"{document} names {name}")

    def test_of_links_are_files(self):
        for document in ("README.md", "HACKING.md"):
            for target in re.findall(r"\]\((?!http)([^)#]+)\)", read(document)):
                self.assertTrue(os.path.exists(os.path.join(paths.root, target)), target)


if __name__ == "__main__":
    command.main()
