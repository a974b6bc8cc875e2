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

    def test_examples_of_rules_are_rules(self):
        text = read("README.md")
        rules = re.findall(r'ALLOGRAFT_RULES="([^"]+)"', text) + re.findall(r"--rule '([^']+)'", text)
        rules += re.findall(r"^RULES = (.*)$", text, re.MULTILINE)
        rules += re.findall(r"`((?:size|from|thread|nth)[^`]*:(?:native|pool|managed))`", text)
        self.assertGreater(len(rules), 9)
        for rule in rules:
            result = allograft("run", "--rule", rule, "true")
            self.assertEqual((result.returncode, result.stderr), (0, ""), rule)

    def test_rules_name_every_word(self):
        source = read("interpose/rules.c")
        conditions = re.search(r'condition_words\[\] = "([^"]+)"', source)[1].split("|")
        chapter = self.block(r"\n### Rules\n(.*?)\n### ")
        for word in conditions:
            self.assertRegex(chapter, rf"`{re.escape(word)}[`<=>]")
        actions = re.findall(r'\[AG_SAYS_\w+\] = \{"(\w*)",\s*"([^"]+)"\}', source)
        self.assertEqual(len(actions), 7)
        for name, values in actions:
            written = values.replace("|", r"\|") if name else "` `".join(values.split("|"))
            for value in values.split("|"):
                self.assertIn(value, chapter)
            self.assertTrue(not name or f"`{name}=" in chapter, name)
            self.assertTrue(name in ("", "async") and values.split("|")[0] in chapter
                            or f"`{name}={written}`" in chapter, name)

    def test_the_file_of_settings_is_one(self):
        with command.tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.conf")
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.block(r"```ini\n(.*?)```"))
            result = allograft("run", "--config", path, "true")
            self.assertEqual((result.returncode, result.stderr), (0, ""))

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

    def test_what_troubleshooting_quotes_is_said(self):
        """Text in quotation marks there is what the library, the command or the report says."""
        said = ""
        for folder in ("interpose", "policy", "graph", "tools"):
            for name in os.listdir(os.path.join(paths.root, folder)):
                if name.endswith((".c", ".h", ".def")):
                    said += re.sub(r'"\s*\n?\s*"', "", read(f"{folder}/{name}"))
        chapter = self.block(r"\n## Troubleshooting\n(.*?)\n## ")
        quoted = re.findall(r'(?<!=)"([^"]+)"', re.sub(r"`[^`]*`", "", chapter))
        self.assertGreater(len(quoted), 20)
        for quote in quoted:
            for part in quote.split("..."):
                self.assertIn(part, said)


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
