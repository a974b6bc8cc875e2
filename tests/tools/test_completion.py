"""Completion of the command in bash, zsh and fish: what is offered for a word, and what a TAB makes of it."""

import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time

import command
from command import CommandTest, allograft, clean_environment, paths

TIMEOUT_S = 60


def foreign(**changes):
    return clean_environment(LD_PRELOAD=None, **changes)


class Offers(CommandTest):
    """`allograft --complete`, of which all shells ask."""

    def offered(self, *words, **settings):
        result = allograft("--complete", *words, env=clean_environment(**settings))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [line.split("\t")[0] for line in result.stdout.splitlines()]

    def test_commands(self):
        self.assertEqual(self.offered(""), command.names_of_commands())
        self.assertEqual(self.offered("r"), ["run", "report"])
        self.assertEqual(self.offered("--"), ["--help", "--version"])
        self.assertEqual(self.offered("help", "do"), ["doctor"])
        self.assertEqual(self.offered("nothing", ""), [])

    def test_options_of_every_command(self):
        for name in command.names_of_commands():
            own = ["--" + option.replace("_", "-") for of, option, *_, text in command.rows_of("OPTION")
                   if of == name and text != '""']
            offered = self.offered(name, "-")
            self.assertEqual(offered[:len(own) + 1], own + ["--help"])
            self.assertEqual(len(offered), len(set(offered)))
            self.assertEqual(len(offered) > len(own) + 1, name == "run")
        self.assertEqual(self.offered("run", "--graph-st"), ["--graph-staging", "--graph-staging-slot"])
        self.assertEqual(self.offered("report", "--h"), ["--html", "--help"])
        self.assertEqual(self.offered("report", "--", "--h"), [":files "])

    def test_values(self):
        policies = ["auto", "pool", "native", "managed"]
        self.assertEqual(self.offered("run", "--policy", ""), policies)
        self.assertEqual(self.offered("run", "--policy="), ["--policy=" + word for word in policies])
        self.assertEqual(self.offered("run", "--set", "POLICY="), ["POLICY=" + word for word in policies])
        self.assertEqual(self.offered("run", "--set=ALLOGRAFT_POLICY=p"), ["--set=ALLOGRAFT_POLICY=pool"])
        self.assertEqual(self.offered("run", "--set", "POOL"), ["POOL_KEEP="])
        self.assertEqual(self.offered("run", "--set", "pol"), ["policy="])
        self.assertEqual(self.offered("run", "--set", "POLCY="), [])
        self.assertEqual(self.offered("run", "--graph", "legacy,n"), ["legacy,nonblocking", "legacy,nth:", "legacy,name:"])
        self.assertEqual(self.offered("run", "--graph", "nth:"), [])
        self.assertEqual(self.offered("run", "--prefer", ""), ["device", "host", "numa:", "none"])
        self.assertEqual(self.offered("run", "--cache", ""), ["max"])
        self.assertEqual(self.offered("run", "--rule", ""), [])
        self.assertEqual(self.offered("tune", "--metric", ""), ["time", "peak", "both"])
        self.assertEqual(self.offered("tune", "--compare", ""), ["stdout", "file:", "none"])
        self.assertEqual(self.offered("trace", "a", "--device", ""), [])

    def test_files_folders_and_programs(self):
        self.assertEqual(self.offered("run", "--stats", ""), ["off", "stderr", "full", ":files "])
        self.assertEqual(self.offered("run", "--set", "TRACE=a"), [":files TRACE="])
        self.assertEqual(self.offered("run", "--counters=x"), [":folders --counters="])
        self.assertEqual(self.offered("tune", "--compare=file:x"), [":files --compare=file:"])
        self.assertEqual(self.offered("trace", "--csv", "rmm", ""), [":files "])
        self.assertEqual(self.offered("top", ""), [":folders "])
        self.assertEqual(self.offered("run", ""), [":program 1"])
        self.assertEqual(self.offered("run", "--policy", "pool", "--audit", "pr"), [":program 4"])
        self.assertEqual(self.offered("tune", "--runs=2", "--", "ls", "--co"), [":program 3"])
        self.assertEqual(self.offered("options", ""), [])

    def test_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.offered("report", "", ALLOGRAFT_COUNTERS=folder), [":files "])
            for pid in (4194000, 4194001): # named as interpose/core/report/counters_file.c does
                open(os.path.join(folder, f"{pid:016x}-{pid}-1-0.counters"), "wb").close()
            self.assertEqual(sorted(self.offered("report", "", ALLOGRAFT_COUNTERS=folder)),
                             ["4194000", "4194001", ":files "])
            self.assertEqual(self.offered("report", "5", ALLOGRAFT_COUNTERS=folder), [":files "])


class Shells(CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.scripts = os.path.join(paths.root, "tools", "completion")
        os.makedirs(os.path.join(self.folder, "bin"))
        os.symlink(paths.command, os.path.join(self.folder, "bin", "allograft"))
        for name in ("results.json", "résumé.json", "resources/"):
            path = os.path.join(self.folder, name)
            os.makedirs(path) if name.endswith("/") else open(path, "w", encoding="utf-8").close()
        self.env = foreign(PATH=os.path.join(self.folder, "bin") + ":" + os.environ["PATH"], HOME=self.folder,
                           TERM="dumb", LC_ALL="C.UTF-8", HISTFILE=None, ALLOGRAFT_LOG="error",
                           XDG_CONFIG_HOME=self.folder, XDG_DATA_HOME=self.folder)

    def need(self, shell):
        if not shutil.which(shell):
            self.skipTest(shell + " is not installed")

    def typed(self, words, *keys):
        """What a shell on a terminal of its own writes after these keys, until it says the last of them was run."""
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.folder)
            os.execvpe(words[0], words, self.env)
        written, until = b"", time.monotonic() + TIMEOUT_S
        for key, answer in keys:
            os.write(terminal, key.encode())
            while not re.search(answer, written.decode(errors="replace")):
                ready, _, _ = select.select([terminal], [], [], max(0, until - time.monotonic()))
                if not ready:
                    break
                try:
                    written += os.read(terminal, 65536)
                except OSError:
                    break
        os.close(terminal)
        os.kill(child, 9)
        os.waitpid(child, 0)
        return written.decode(errors="replace")

    def assert_tab_completes(self, words, prepare):
        """TAB makes whole commands of these, which then run and tell what they got."""
        cases = (("--policy=na\t", "POLICY", "native"), ("--pol\t ma\t", "POLICY", "managed"),
                 ("--set POLICY=na\t", "POLICY", "native"), ("--set POL\tma\t", "POLICY", "managed"),
                 ("--stats=resul\t", "STATS", "results.json"), ("--stats resul\t", "STATS", "results.json"),
                 ("--set STATS=resul\t", "STATS", "results.json"), ("--audit", "LOG", "error"))
        keys = [(f"allograft run {line} sh -c 'echo got-{i}:$ALLOGRAFT_{name}:'\n", rf"got-{i}:[\w.]*:\s")
                for i, (line, name, _) in enumerate(cases)]
        text = self.typed(words, (prepare + "\n", r"ready-\d"), *keys)
        for i, (line, _, value) in enumerate(cases):
            self.assertIn(f"got-{i}:{value}:", text, line)


class Bash(Shells):
    def setUp(self):
        self.need("bash")
        super().setUp()
        self.script = os.path.join(self.scripts, "allograft.bash")

    def offered(self, *pieces, line=None):
        """COMPREPLY for words as bash parts them, `line` up to the cursor."""
        line = line if line is not None else " ".join(pieces)
        code = f"""compopt() {{ echo "compopt $*" >&2; }}
            . "{self.script}"
            COMP_WORDS=({' '.join(f"'{piece}'" for piece in pieces)})
            COMP_CWORD={len(pieces) - 1} COMP_LINE='{line}' COMP_POINT={len(line)}
            _allograft allograft "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
            printf '%s\\n' "${{COMPREPLY[@]}}" """
        done = subprocess.run(["bash", "-c", code], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertRegex(done.stderr, r"^(compopt -o (filenames|nospace)\n)*$")
        self.options = done.stderr
        return done.stdout.split("\n")[:-1] if done.stdout != "\n" else []

    def test_words_and_values(self):
        policies = ["auto", "pool", "native", "managed"]
        self.assertEqual(self.offered("allograft", "re"), ["report"])
        self.assertEqual(self.offered("allograft", "run", "--policy", ""), policies)
        self.assertEqual(self.offered("allograft", "run", "--policy", "=", line="allograft run --policy="), policies)
        self.assertEqual(self.offered("allograft", "run", "--policy", "=", "n", line="allograft run --policy=n"), ["native"])
        self.assertEqual(self.offered("allograft", "run", "--set", "POLICY", "=", line="allograft run --set POLICY="),
                         policies)
        self.assertEqual(self.offered("allograft", "run", "--set", "=", "POLICY", "=", "m",
                                      line="allograft run --set=POLICY=m"), ["managed"])
        self.assertEqual(self.offered("allograft", "run", "--set", "POOL"), ["POOL_KEEP="])
        self.assertIn("nospace", self.options)
        self.assertEqual(self.offered("allograft", "run", "--prefer", "=", "numa", ":", line="allograft run --prefer=numa:"), [])

    def test_files(self):
        files = ["resources", "results.json", "résumé.json"]
        for words, line in ((["report", "r"], None), (["run", "--stats", "=", "r"], "allograft run --stats=r"),
                            (["run", "--config", "r"], None),
                            (["run", "--set", "TRACE", "=", "r"], "allograft run --set TRACE=r"),
                            (["tune", "--compare", "=", "file", ":", "r"], "allograft tune --compare=file:r")):
            self.assertEqual(sorted(self.offered("allograft", *words, line=line)), files)
            self.assertIn("filenames", self.options)
        self.assertEqual(self.offered("allograft", "top", "r"), ["resources"])

    def test_programs(self):
        self.assertIn("printf", self.offered("allograft", "run", "--rule", "*", ":", "pool", "--", "print",
                                             line="allograft run --rule *:pool -- print"))
        self.assertEqual(self.offered("allograft", "tune", "cat", "resu"), ["results.json"])

    def test_tab(self):
        self.assert_tab_completes(["bash", "--norc", "--noprofile", "-i"],
                                  f"bind 'set bell-style none'; . '{self.script}'; echo ready-$((3 + 4))")


class Zsh(Shells):
    def test_tab(self):
        self.need("zsh")
        self.assert_tab_completes(["zsh", "-f", "-i"], f"fpath=('{self.scripts}' $fpath); autoload -U compinit; "
                                  "compinit -D -u; unsetopt zle_bracketed_paste; echo ready-$((3 + 4))")


class Fish(Shells):
    def offered(self, line):
        done = subprocess.run(["fish", "--no-config", "-c", f"source {self.scripts}/allograft.fish; complete -C '{line}'"],
                              env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [offer.split("\t")[0] for offer in done.stdout.splitlines()]

    def test_offers(self):
        self.need("fish")
        self.assertEqual(sorted(self.offered("allograft re")), ["report"])
        self.assertEqual(self.offered("allograft run --policy=n"), ["--policy=native"])
        self.assertEqual(self.offered("allograft run --set POLICY=m"), ["POLICY=managed"])
        self.assertEqual(self.offered("allograft run --policy m"), ["managed"])
        self.assertEqual(self.offered("allograft run --audi"), ["--audit"])
        self.assertEqual(self.offered("allograft report resu"), ["results.json"])
        self.assertEqual(self.offered("allograft run --stats=resu"), ["--stats=results.json"])
        self.assertEqual(self.offered("allograft top res"), ["resources/"])
        self.assertIn("printf", self.offered("allograft run --policy pool print"))
        self.assertEqual(self.offered("allograft tune -- cat resu"), ["results.json"])


if __name__ == "__main__":
    command.main()
