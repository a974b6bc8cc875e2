"""The scripts people run: quickstart.sh and test.sh on a small project in place of ours."""

import glob
import os
import shutil
import subprocess
import tempfile

import command
from command import CommandTest, allograft, clean_environment, paths

PROJECT = """
project('small', 'c', meson_version: '>=1.0')
copy = find_program('cp')
foreach name : ['allograft', 'liballograft.so', 'liballograft-audit.so']
  custom_target(name, input: 'allograft', output: name, command: [copy, '@INPUT@', '@OUTPUT@'])
endforeach
subdir('tests/sim')
shell = find_program('sh')
foreach status : ['0', '0', '1', '77']
  test('status_' + status + '_' + '@0@'.format(get_option('werror')), shell, args: ['-c', 'exit ' + status])
endforeach
"""

SIMULATION = """
custom_target('driver', output: 'libcuda.so.1', command: ['touch', '@OUTPUT@'])
subdir('demo')
"""
DEMO = "custom_target('demo', output: 'demo-sim', command: ['touch', '@OUTPUT@'])\n"

# Stands for the command: says how it was called and where the driver would come from.
FAKE_COMMAND = '#!/bin/sh\necho "called: $*"\necho "driver: ${LD_LIBRARY_PATH:-default}"\n'


def bash(script, *args, **kwargs):
    return subprocess.run(["bash", script, *args], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120, check=False, **kwargs)


def our_scripts():
    return [os.path.join(paths.root, ".ci", "run"),
            *glob.glob(os.path.join(paths.root, "tools", "*.sh")),
            *glob.glob(os.path.join(paths.root, "docs", "*.sh")),
            *glob.glob(os.path.join(paths.root, "tools", "packaging", "*.sh")),
            os.path.join(paths.root, "tools", "completion", "allograft.bash")]


class Text(CommandTest):
    def test_is_bash(self):
        for script in our_scripts():
            self.assert_silent(bash("-n", script), "")

    def test_is_what_shellcheck_likes(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not installed")
        result = subprocess.run(["shellcheck", "-x", "-P", paths.root, *our_scripts()],
                                capture_output=True, text=True, check=False)
        self.assert_silent(result, "")

    def test_versions_are_compared_by_number(self):
        setup = os.path.join(paths.root, "tools", "setup.sh")
        for wanted, there, enough in (("1.0", "1.0", True), ("1.0", "1.12.1", True), ("1.9", "1.10", True),
                                      ("1.0", "0.64.1", False), ("1.0", "0", False)):
            code = f'ROOT=/nowhere; . "{setup}"; setup_at_least {wanted} {there}'
            self.assertEqual(bash("-c", code).returncode, 0 if enough else 1, (wanted, there))


    def test_goes_on_without_what_is_optional(self):
        setup = os.path.join(paths.root, "tools", "setup.sh")
        with tempfile.TemporaryDirectory() as folder:
            code = f"""ROOT={folder}; . "{setup}"; set -e; mkdir {folder}/build-deps
                pkg-config() {{ return 1; }}; apt-get() {{ return 1; }}; setup_as_root() {{ return 1; }}
                setup_optional jansson libjansson-dev; echo on"""
            result = bash("-c", code)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout.splitlines()[-2:],
                         ["  (libjansson-dev is not to be had here; going on without)", "on"])


class InSmallProject(CommandTest):
    def setUp(self):
        if not shutil.which("meson"):
            self.skipTest("meson is not in PATH")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        shutil.copytree(os.path.join(paths.root, "tools"), os.path.join(self.root, "tools"))
        self.write("meson.build", PROJECT)
        self.write("meson_options.txt", "option('cuda-root', type: 'string')\noption('lock_checks', type: 'boolean')\n")
        self.write("allograft", FAKE_COMMAND, executable=True)
        self.write("tests/sim/meson.build", SIMULATION)
        self.write("tests/sim/demo/meson.build", DEMO)
        self.write("tests/sim/demo/demo.cu", "")
        self.write("cuda/include/cuda.h", "#define CUDA_VERSION 13000\n")
        self.write("cuda/include/cudaTypedefs.h", "")
        self.write("cuda/include/crt/host_defines.h", "")
        self.write("bin/nvcc", "#!/bin/sh\nexit 0\n", executable=True)
        self.write("bin/pkg-config", "#!/bin/sh\nexit 0\n", executable=True)
        self.graphics_card("exit 9")

    def write(self, path, text, executable=False):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if executable:
            os.chmod(path, 0o755)

    def graphics_card(self, shell_code):
        self.write("bin/nvidia-smi", f"#!/bin/sh\n{shell_code}\n", executable=True)

    def run_script(self, name, *args):
        env = clean_environment(PATH=os.path.join(self.root, "bin") + ":" + os.environ["PATH"],
                                CUDA_HOME=os.path.join(self.root, "cuda"), LD_PRELOAD=None,
                                LD_LIBRARY_PATH=None, CI=None)  # where the script installs more, each time anew
        for name_of_meson in ("MESON_TESTTHREADS", "NINJA_STATUS"):
            env.pop(name_of_meson, None)
        return bash(os.path.join(self.root, "tools", name), *args, env=env)


class Test(InSmallProject):
    def test_sums_what_passes_fails_and_is_skipped(self):
        """One run of three suites: what is built for each, the sum, the times, and the budgets."""
        threaded = "test('threaded', executable('threaded', 'a.c', build_by_default: false), suite: 'threads')\n"
        self.write("busy.py", "import time\nwhile time.process_time() < 0.7: pass")
        self.write("a.c", "int main(void) { return 0; }\n")
        self.write("b.c", "no C\n")
        other = "test('other', executable('other', 'b.c', build_by_default: false))\n"
        self.write("meson.build", PROJECT + threaded + "if get_option('b_sanitize') != 'none'\n" + other +
                   "endif\ntest('busy', find_program('python3'), args: files('busy.py'))\n")
        self.graphics_card("echo 'GPU 0: a card'")
        self.write("tests/gpu/run.sh", "echo '3 passed, 1 failed, 2 skipped'; exit 1\n")
        self.write("tools/test_budgets", "gpu 600\nplain 600\ntsan 9999999\nyardstick 200\n")
        elsewhere = os.path.join(self.root, "elsewhere")
        result = self.run_script("test.sh", "--plain", "--tsan", "--gpu", "--budget", "--build", elsewhere)
        # Of plain: two that pass, threaded and busy; one that fails, as does its budget; one that is skipped.
        self.assertEqual(result.stdout.splitlines()[-1], "8 passed, 3 failed, 3 skipped", result.stdout)
        self.assertEqual(result.returncode, 1)
        # The usual machine is a thousand times as slow as this one.
        for text in (r"^=== 1 of 3: gcc$", "status_1_true",
                     r"^plain: \d+ processor seconds, \d{4,} on the usual machine; its budget is 600$",
                     r"^plain takes over a quarter more than its budget",
                     r"^tsan: \d+ processor seconds, \d{4,} on the usual machine; its budget is 9999999$"):
            self.assertRegex(result.stdout, "(?m)" + text)
        self.assertTrue(os.path.exists(os.path.join(elsewhere, "build.ninja")))
        self.assertFalse(os.path.exists(os.path.join(self.root, "build")))
        self.write("tests/gpu/run.sh", "echo 'no GPU here: no driver'; exit 77\n")
        again = self.run_script("test.sh", "--gpu", "--build", elsewhere)
        self.assertEqual((again.returncode, again.stdout.splitlines()[-1]), (0, "0 passed, 0 failed, 1 skipped"))
        self.assertRegex(again.stdout, r"(?m)^=== 1 of 1: GPU \(last time \d+ s\)$")

    def test_counts_as_failures_a_broken_build_and_a_suite_without_tests(self):
        self.write("meson.build", "project('small', 'c')\nif get_option('b_sanitize') != 'none'\n"
                                  "  error('it was to be')\nendif\n")
        result = self.run_script("test.sh", "--plain", "--tsan")
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 2 failed, 0 skipped")
        self.assertRegex(result.stdout,
                         r"(?ms)^gcc: ran no test.*^gcc, ThreadSanitizer: could not be set up.*it was to be")
        self.assertEqual(result.returncode, 1)

    def test_quick_leaves_out_what_is_slow(self):
        self.write("meson.build", PROJECT.replace("'1', ", "") + "".join(
            f"test('{name}', shell, args: ['-c', '{code}'])\n"
            for name, code in (("mutants", "exit 1"), ("fuzz_size", "exit 1"), ("unit_size", "test $DIFF_SHARE = 10"))))
        self.write("build-deps/venv/bin/clang-format", "#!/bin/sh\necho clang-format version 18.1.8\n", executable=True)
        self.write("tests/lint/lint.py", "import sys\nprint('%s: ok' % sys.argv[3])\n")
        result = self.run_script("test.sh", "--quick")
        self.assertEqual(result.stdout.splitlines()[-1], "4 passed, 0 failed, 1 skipped", result.stdout)

    def progress(self, lines, *words, terminal=False):
        """What progress makes of the lines of a builder, in a log or on a terminal."""
        setup = os.path.join(paths.root, "tools", "setup.sh")
        code = f"ROOT=/nowhere; . '{setup}'; printf '%s\\n' {lines} | progress {' '.join(words)}"
        if not terminal:
            return bash("-c", code).stdout
        return subprocess.run(["script", "-qec", f'bash -c "{code}"', "/dev/null"], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=60, check=False).stdout.decode()

    def test_progress_is_one_line_of_a_terminal(self):
        self.assertEqual(self.progress("'[1/20] cc a' other", "building"), "")
        self.assertEqual(self.progress("'[1/20] cc a' other", "lint", "all"), "other\n")
        if not shutil.which("script"):
            self.skipTest("script is not installed")
        shown = self.progress("'[1/20] cc a' '[20/20] cc b' ' 7/97 unit'", "building", terminal=True)
        self.assertEqual(shown, "\r\033[K  building: 1 of 20\r\033[K  building: 20 of 20"
                         "\r\033[K  building: 7 of 97\r\033[K")

    def test_refuses_an_unknown_option(self):
        result = self.run_script("test.sh", "--ashan")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("--ashan", result.stderr)
        self.assertEqual(self.run_script("test.sh", "--help").returncode, 0)

    def test_takes_in_the_sum_of_the_gpu_suite(self):
        """One start for all that make it fail: the n-th suite says and ends with the n-th of these."""
        self.graphics_card("echo 'GPU 0: a card'")
        said = (("3 passed, 1 failed, 2 skipped", 1),        # counts as 3 1 2
                ("10 passed, 0 failed, 0 skipped", 7),       # as 10 1 0
                ("no GPU here: no driver", 77),              # as 0 0 1
                ("died", 1))                                 # as 0 1 0
        self.write("tests/gpu/run.sh", "echo >>\"$0.n\"\ncase $(wc -l <\"$0.n\") in\n" + "".join(
            f"{n}) echo '{says}'; exit {ends} ;;\n" for n, (says, ends) in enumerate(said, 1)) +
            "*) echo '3 passed, 0 failed, 0 skipped' ;;\nesac\n")
        result = self.run_script("test.sh", *["--gpu"] * len(said))
        self.assertEqual((result.stdout.splitlines()[-1], result.returncode), ("13 passed, 3 failed, 3 skipped", 1))
        result = self.run_script("test.sh", "--gpu")
        self.assertEqual((result.stdout.splitlines()[-1], result.returncode), ("3 passed, 0 failed, 0 skipped", 0))


class Quickstart(InSmallProject):
    def next_commands(self, text):
        """What it says at its end to type, without the comments."""
        text = text[text.index("Next, three commands for a program of your own:\n"):]
        return [line.split(" #")[0].split(None, 1)[1].strip() for line in text.splitlines()
                if line.startswith("  build/allograft ")]

    def commands_exist(self, words):
        """Every command that it names is one, and its options are, too."""
        for name, *options in (line.split(" -- ")[0].split() for line in words):
            text = allograft(name, "--help").stdout
            self.assertEqual([o for o in options if o.startswith("--") and f" {o} " not in text], [], name)

    def test_without_a_gpu_runs_on_the_simulated_driver(self):
        """Once more it does the same; and from another folder it builds anew."""
        result = self.run_script("quickstart.sh")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        build = os.path.join(self.root, "build")
        self.assertIn("on the simulated driver, because this machine has no NVIDIA GPU", result.stdout)
        self.assertIn(f"called: run --simulate --policy pool --stats stderr -- {build}/tests/sim/demo/demo-sim\n",
                      result.stdout)
        self.assertIn("  $ build/allograft run --simulate --policy pool -- build/tests/sim/demo/demo-sim\n", result.stdout)
        self.assertIn("driver: default\n", result.stdout)
        self.assertEqual(self.next_commands(result.stdout),
                         ["doctor --simulate", "run --simulate --stats run.json -- ./program",
                          "report --html run.html run.json"])
        self.commands_exist(self.next_commands(result.stdout))
        said = ["Looking for what a build needs", "Setting up build/", "Building the library", "Running the demo", "Next,"]
        found = [text for line in result.stdout.splitlines() for text in said if line.startswith(text)]
        self.assertEqual(found, said, result.stdout)
        self.assertTrue(os.path.exists(f"{build}/tests/sim/demo/demo-sim"))
        self.assertTrue(os.path.exists(f"{build}/tests/sim/libcuda.so.1"))
        self.assertTrue(os.path.exists(f"{build}/liballograft-audit.so"))  # for run --audit
        again = self.run_script("quickstart.sh")
        self.assertEqual((again.returncode, again.stdout), (result.returncode, result.stdout))
        self.moved_elsewhere_builds_anew_and_ends_with_the_demos_status()

    def moved_elsewhere_builds_anew_and_ends_with_the_demos_status(self):
        moved = self.root + "-moved"
        shutil.copytree(self.root, moved)
        self.addCleanup(shutil.rmtree, moved)
        self.root = moved
        self.write("allograft", "#!/bin/sh\necho $*\nexit 5\n", executable=True)
        result = self.run_script("quickstart.sh")
        self.assertEqual((result.returncode, result.stderr), (5, ""), result.stdout)
        self.assertIn(f"-- {moved}/build/tests/sim/demo/demo-sim\n", result.stdout)

    def test_on_a_gpu_compiles_and_says_which(self):
        self.graphics_card("case $1 in -L) echo 'GPU 0: H (UUID: x)';; *) echo H;; esac")
        result = self.run_script("quickstart.sh")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertIn("on the GPU: H\n", result.stdout)
        self.assertIn(f"-- {self.root}/build/demo\n", result.stdout)
        self.assertIn("driver: default\n", result.stdout)
        self.assertNotIn("--simulate", result.stdout)
        self.assertEqual(self.next_commands(result.stdout),
                         ["doctor", "run -- ./program", "tune -- ./program"])
        self.commands_exist(self.next_commands(result.stdout))

    def test_shows_the_end_of_the_log_when_the_build_fails(self):
        self.write("meson.build", "project('small', 'c')\nerror('it was to be')\n")
        result = self.run_script("quickstart.sh")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("it was to be", result.stderr)

    def test_words_start_nothing(self):
        for words, status in ((["--help"], 0), (["--simulate"], 2)):
            result = self.run_script("quickstart.sh", *words)
            self.assertEqual(result.returncode, status)
            self.assertIn(*("installs what a build needs", result.stdout) if not status else
                          ("takes no arguments, not --simulate", result.stderr))
            self.assertFalse(os.path.exists(os.path.join(self.root, "build")))


if __name__ == "__main__":
    command.main()
