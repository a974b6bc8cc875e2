"""README.md and docs/ against what the code and the command say: tables, rules, settings, examples."""

import glob
import json
import os
import re
import subprocess
import sys

import command
from command import CommandTest, allograft, paths

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "docs"))
import tables  # noqa: E402


def read(name):
    with open(os.path.join(paths.root, name), encoding="utf-8") as file:
        return file.read()


def pages():
    return ["README.md", "CONTRIBUTING.md"] + sorted(glob.glob("docs/*.md", root_dir=paths.root))


def all_texts():
    """The sources of the library and the command, with the pieces of each text in one."""
    said = ""
    for folder in ("interpose", "policy", "graph", "tools"):
        for name in glob.glob(f"{folder}/**/*.[chd]*", root_dir=paths.root, recursive=True):
            if name.endswith((".c", ".h", ".def")):
                said += re.sub(r'"\s*\n?\s*"', "", read(name))
    return said


class Pages(CommandTest):
    def block(self, page, pattern):
        match = re.search(pattern, read(page), re.DOTALL)
        self.assertIsNotNone(match, pattern)
        return match[1]

    def assert_is_table(self, page, place, table):
        found = place.search(read(page))
        self.assertIsNotNone(found, page)
        self.assertEqual(found[2].splitlines(), table.splitlines(),
                         f"{page}: python3 docs/tables.py BUILD writes the table anew")

    def test_settings_are_the_commands(self):
        self.assert_is_table("docs/settings.md", tables.SETTINGS, allograft("options").stdout)

    def test_examples_of_rules_are_rules(self):
        text = "".join(read(page) for page in pages())
        rules = re.findall(r'ALLOGRAFT_RULES="([^"]+)"', text) + re.findall(r"--rule '([^']+)'", text)
        rules += re.findall(r"^RULES = (.*)$", text, re.MULTILINE)
        rules += re.findall(r"`((?:size|from|thread|nth)[^`]*:(?:native|pool|managed|host=\w+|fail[^`]*))`", text)
        self.assertGreater(len(rules), 9)
        for rule in rules:
            result = allograft("run", "--rule", rule, "true")
            self.assertEqual((result.returncode, result.stderr), (0, ""), rule)

    def test_rules_name_every_word(self):
        source = read("interpose/core/settings/rules.c")
        conditions = re.search(r'condition_words\[\] = "([^"]+)"', source)[1].split("|")
        chapter = self.block("docs/settings.md", r"\n## Rules\n(.*?)\n## ")
        for word in conditions:
            self.assertRegex(chapter, rf"`{re.escape(word)}[`<=>]")
        actions = re.findall(r'\[AG_SAYS_\w+\] = \{"(\w*)",\s*"([^"]+)"\}', source)
        self.assertEqual(len(actions), 14)
        for name, _ in actions[8:]:  # of calls that fail
            self.assertRegex(chapter, rf"\| [^|]*`{name}[`=]")
        for name, values in actions[:8]:
            written = values.replace("|", r"\|") if name else "` `".join(values.split("|"))
            for value in values.split("|"):
                self.assertIn(value, chapter)
            self.assertTrue(not name or f"`{name}=" in chapter, name)
            self.assertTrue(name in ("", "async") and values.split("|")[0] in chapter
                            or f"`{name}={written}`" in chapter, name)

    def test_calls_of_rules_are_named(self):
        words = re.search(r'call_words\[\] = "([^"]+)"', read("interpose/core/settings/rules.c"))[1].split("|")
        chapter = self.block("docs/settings.md", r"\n### Failing calls on purpose\n(.*?)\n## ")
        self.assertEqual(re.findall(r"^\| `(\w+)` \|", chapter, re.MULTILINE), words)

    def test_seeds_find_a_run_that_fails(self):
        """The loop of the page, with a program that some of its seeds break: the demo checks what cudaMalloc returns."""
        text = self.block("docs/settings.md", r"<!-- seeds -->\n```bash\n(.*?)```")
        with command.tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(paths.sim, "demo", "demo-sim"), os.path.join(folder, "program"))
            env = command.clean_environment(LD_LIBRARY_PATH=paths.sim, ALLOGRAFT_LIBRARY=paths.library)
            found = [subprocess.run(["bash", "-c", text.replace("build/allograft", paths.command)], cwd=folder, env=env,
                                    capture_output=True, text=True, check=False).stdout for _ in range(2)]
        failed = re.findall(r"^seed \d: status \d+$", found[0], re.MULTILINE)
        self.assertTrue(failed, found[0])
        self.assertEqual(failed, re.findall(r"^seed \d: status \d+$", found[1], re.MULTILINE))

    def test_the_file_of_settings_is_one(self):
        with command.tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.conf")
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.block("docs/settings.md", r"```ini\n(.*?)```"))
            result = allograft("run", "--config", path, "true")
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_coverage_is_the_lists(self):
        table = tables.coverage()
        self.assertIn("`cuMemAlloc_v2`", table)
        self.assertIn("`cuMemFreeAsync` (`_ptsz`)", table)
        self.assert_is_table("docs/guarantees.md", tables.COVERAGE, table)

    def test_coverage_names_every_hook(self):
        hooked = re.findall(r"^AG_HOOK(?:_IF)?\(\w+, (\w+),", read("interpose/core/driver/hooks.def"), re.MULTILINE)
        table = tables.coverage()
        twins = {symbol: symbol.removesuffix("_ptsz") for symbol in hooked}
        self.assertEqual([symbol for symbol, twin in twins.items()
                          if (f"`{symbol}`" if twin not in hooked or twin == symbol else f"`{twin}` (`_ptsz`)")
                          not in table], [])

    def test_tables_are_written(self):
        written = ["docs/settings.md", "docs/guarantees.md"]
        with command.tempfile.TemporaryDirectory() as folder:
            for name in [*written, "docs/tables.py", "interpose/core/driver/hooks.def"]:
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(re.sub(r"\nALLOGRAFT_CACHE .*?(?=\nALL)|\n\| waits: [^\n]*", "", read(name), flags=re.DOTALL)
                               if name in written else read(name))
            subprocess.run([sys.executable, os.path.join(folder, "docs", "tables.py"), os.path.dirname(paths.command)],
                           check=True)
            for name in written:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self.assertEqual(file.read(), read(name))

    def test_what_troubleshooting_quotes_is_said(self):
        """Text in quotation marks there is what the library, the command or the report says."""
        said = all_texts()
        chapter = self.block("docs/troubleshooting.md", r"(.*?)\n## Finding the allocation")
        quoted = re.findall(r'(?<!=)"([^"]+)"', re.sub(r"`[^`]*`", "", chapter))
        self.assertGreater(len(quoted), 20)
        for quote in quoted:
            for part in quote.split("..."):
                self.assertIn(part, said)

    def test_lines_of_reports_are_said(self):
        """Reports that pages show have the labels and headings of today's reports."""
        said, n = all_texts(), 0
        for page in pages():
            for block in re.findall(r"```(?:text|console)\n(.*?)```", read(page), re.DOTALL):
                for label in re.findall(r"^ {4}([a-z].*?) {2,}\d|^ {2}((?:[a-z']+ )*[a-z']+)$", block, re.MULTILINE):
                    self.assertIn(label[0] or label[1], said, page)
                    n += 1
        self.assertGreater(n, 35)

    def test_sample_report_is_todays(self):
        """Settings, labels and counts; not what comes with time, with the process, and with each hook."""
        def without_chances(text):
            text = re.sub(r"\(process \d+\) after .*", "", text)
            return re.sub(r"^( {4}(?:pointers|.* look-ups) .*?)\d+$", r"\1", text, flags=re.MULTILINE).splitlines()
        line = r"build/allograft (run --simulate --policy pool --stats full -- )build/(tests/sim/demo/demo-sim)\n"
        shown = re.search(r"```console\n\$ " + line + r"(.*?)```", read("docs/report.md"), re.DOTALL)
        self.assertIsNotNone(shown)
        demo = os.path.join(paths.sim, "demo", os.path.basename(shown[2]))
        result = allograft(*shown[1].split(), demo)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.maxDiff = None
        self.assertEqual(without_chances(shown[3]), without_chances(result.stdout + result.stderr),
                         "docs/report.md: its sample is what its command prints, line breaks included")

    def test_names_of_tests_are_whole(self):
        """Meson 1.0 takes a pattern for a name that no test has, runs the others, and says nothing."""
        commands = re.findall(r"meson test [^`\n]*", "".join(read(page) for page in pages()))
        self.assertGreater(len(commands), 9)
        for line in commands:
            self.assertNotRegex(line.partition("#")[0], r"[*?\[]")

    def test_settings_of_troubleshooting_are_taken(self):
        chapter = self.block("docs/troubleshooting.md", r"(.*?)\n## Finding the allocation")
        settings = set(re.findall(r"`ALLOGRAFT_(\w+=[\w%]+)`", chapter)) | set(re.findall(r"--set (\w+=\w+)", chapter))
        self.assertGreater(len(settings), 12)
        for setting in settings:
            result = allograft("run", "--set", setting, "true")
            self.assertEqual((result.returncode, result.stderr), (0, ""), setting)


# Launchers of jobs, as far as a program can tell: the variables that each sets, one process after the other.
LAUNCHER = """#!@PYTHON@
import os, subprocess, sys
name, words, n = os.path.basename(sys.argv[0]), sys.argv[1:], 2
env, mounts = dict(os.environ), {}
if name in ("docker", "apptainer"):
    words.pop(0)  # run, exec
while words and words[0].startswith("-"):
    option = words.pop(0)
    if option in ("-n", "--nproc-per-node"):
        n = int(words.pop(0))
    elif option in ("-v", "--bind"):
        outside, inside = words.pop(0).split(":")[:2]
        mounts[inside] = outside
    elif option == "--gpus":
        words.pop(0)
if name in ("docker", "apptainer"):
    words.pop(0)  # the image
    for inside, outside in mounts.items():
        words = [outside + word[len(inside):] if word.startswith(inside) else word for word in words]
    env["OF_IMAGE"] = "yes"
    sys.exit(subprocess.run(words, env=env).returncode)
rank = {"mpirun": "OMPI_COMM_WORLD_RANK", "srun": "SLURM_PROCID", "torchrun": "RANK"}[name]
if name == "torchrun":
    words.insert(0, sys.executable)
if name != "mpirun":  # torchrun runs within Slurm, too
    env["SLURM_PROCID"] = "7"
for i in range(n):
    env[rank] = str(i)
    if subprocess.run(words, env=env).returncode:
        sys.exit(1)
"""


class Jobs(CommandTest):
    """The examples of launchers in docs/jobs.md, with launchers that do no more than set variables."""

    def setUp(self):
        folder = command.tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(self.path("bin"))
        os.mkdir(self.path("build"))
        os.symlink(paths.command, self.path("build/allograft"))
        os.symlink(os.path.join(paths.sim, "demo", "demo-sim"), self.path("program"))
        for name in ("mpirun", "srun", "torchrun", "docker", "apptainer"):
            self.write("bin/" + name, LAUNCHER.replace("@PYTHON@", sys.executable))
        self.write("train.py", "import os\nos.execv('./program', ['program'])\n")
        self.write("best.conf", "POLICY=managed\n")
        self.write("sbatch", self.block("batch", "bash"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), 0o755)

    def block(self, mark, kind):
        match = re.search(rf"<!-- {mark} -->\n```{kind}\n(.*?)```", read("docs/jobs.md"), re.DOTALL)
        self.assertIsNotNone(match, mark)
        return match[1]

    def shell(self, line):
        env = command.clean_environment(LD_LIBRARY_PATH=paths.sim, ALLOGRAFT_LIBRARY=paths.library,
                                        PATH=self.path("bin") + ":" + os.environ["PATH"])
        for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
            env.pop(name, None)
        result = subprocess.run(["bash", "-ec", line], cwd=self.folder, env=env, capture_output=True, text=True,
                                timeout=120, check=False)
        self.assertEqual(result.returncode, 0, line + "\n" + result.stderr)
        return result

    def ranks(self, prefix):
        found = {}
        for name in os.listdir(self.folder):
            if name.startswith(prefix) and name.endswith(".json"):
                with open(self.path(name), encoding="utf-8") as file:
                    report = json.load(file)
                found[name] = report["process"]["rank"]
                self.assertEqual(report["process"]["program"], "program")
                self.assertGreater(report["coverage"]["redirected"], 0)
        return found

    def reads_json(self):
        return "made without jansson" not in allograft("report", self.path("mpi-0.json")).stderr

    def test_launchers(self):
        lines = [line[2:].partition(" #")[0] for line in self.block("jobs", "console").splitlines()]
        self.assertEqual(len([line for line in lines if "--stats" in line]), 3)
        for line in [line for line in lines if "--stats" in line]:
            self.shell(line)
        for launcher in ("mpi", "slurm", "torch"):
            self.assertEqual(self.ranks(launcher), {f"{launcher}-{rank}.json": rank for rank in (0, 1)})
        for line in [line for line in lines if "--stats" not in line and self.reads_json()]:
            self.shell(line)
            self.assertTrue("--html" not in line or os.path.getsize(self.path("page.html")) > 1000)

    def test_batch_job(self):
        shown = self.shell("./sbatch || [ $? = 1 ]")
        self.assertEqual(self.ranks("job"), {"job-0.json": 0, "job-1.json": 1})
        with open(self.path("job-1.json"), encoding="utf-8") as file:
            self.assertIn('"value":"managed","source":"file"', file.read())
        self.assertTrue("2 processes" in shown.stdout or "made without jansson" in shown.stderr, shown.stdout)

    def test_containers(self):
        lines = self.block("container", "console").splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertIn("  gained: ", self.shell(line[2:]).stderr)


if __name__ == "__main__":
    command.main()
