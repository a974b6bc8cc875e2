"""The recipes in tools/packaging for containers, clusters, services and monitoring name what there is, and work."""

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))

import command  # noqa: E402: of the folder above
from command import CommandTest, allograft, clean_environment, paths  # noqa: E402

try:
    import yaml
except ImportError:
    yaml = None

FOLDER = os.path.join("tools", "packaging")
# Those of metrics, those that Prometheus gives, and that of histograms.
LABELS = {"uid", "program", "rank", "slot", "device", "placement", "instance", "job"}


def read(name):
    with open(os.path.join(paths.root, name), encoding="utf-8") as file:
        return file.read()


def recipe(*names):
    return read(os.path.join(FOLDER, *names))


def path_of(*names):
    return os.path.join(paths.root, FOLDER, *names)


def execute(*words, env=None, **kwargs):
    return subprocess.run(words, env=env or clean_environment(LD_PRELOAD=None), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100, universal_newlines=True,
                          check=False, **kwargs)


def version():
    return re.search(r"\n\s*version: '([^']+)'", read("meson.build"))[1]


class Recipes(CommandTest):
    def needs(self, tool):
        found = shutil.which(tool)
        if not found:
            self.skipTest(tool + " is not installed")
        return found

    def settings_exist(self, text):
        names = set(re.findall(r"\bALLOGRAFT_[A-Z_]+", text)) - {"ALLOGRAFT_LIBRARY"}
        known = set(re.findall(r"(?m)^ALLOGRAFT_\w+", allograft("options").stdout))
        self.assertEqual(names - known, set())

    def test_settings_that_recipes_name(self):
        for folder, _, names in os.walk(os.path.join(paths.root, FOLDER)):
            for name in names if folder != os.path.join(paths.root, FOLDER) else ():
                self.settings_exist(read(os.path.relpath(os.path.join(folder, name), paths.root)))

    def test_versions(self):
        for names, shape in ((("spack", "package.py"), r'version\("([^"]+)"\)'), (("conda", "recipe.yaml"), r"version: ([\d.]+)"),
                             (("modulefile", "allograft"), r"set version (\S+)"),
                             (("kubernetes", "pod.yaml"), r"image: allograft:(\S+)")):
            self.assertEqual(set(re.findall(shape, recipe(*names))), {version()}, names)
        self.assertIn('\n__version__ = "%s"\n' % version(), read("tools/python/allograft/__init__.py"))

    def test_container(self):
        text = recipe("container", "Dockerfile")
        pattern = re.search(r"^COPY (\S+) ", text, re.MULTILINE)[1]
        self.assertTrue(fnmatch.fnmatch("allograft_%s_amd64.deb" % version(), pattern))
        for other in ("allograft-dev", "allograft-dbgsym"):
            self.assertFalse(fnmatch.fnmatch("%s_%s_amd64.deb" % (other, version()), pattern))
        for words in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", text, re.MULTILINE):
            self.assertIsInstance(json.loads(words), list)
        if shutil.which("hadolint"):
            linted = execute("hadolint", path_of("container", "Dockerfile"))
            self.assertEqual((linted.returncode, linted.stdout), (0, ""))

    def test_pod(self):
        if not yaml:
            self.skipTest("no parser of YAML is installed")
        spec = yaml.safe_load(recipe("kubernetes", "pod.yaml"))["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in spec["initContainers"] + spec["containers"]:
            self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)
        program, metrics = spec["containers"]
        folder, = (item["value"] for item in program["env"] if item["name"] == "ALLOGRAFT_COUNTERS")
        self.assertEqual(metrics["command"][:3] + metrics["command"][-1:], ["allograft", "top", "--prometheus", folder])
        self.assertTrue(metrics["command"][3].endswith(":%d" % metrics["ports"][0]["containerPort"]))

    def test_slurm(self):
        script, demo = path_of("slurm", "task_prolog.sh"), os.path.join(paths.sim, "demo", "demo-sim")
        self.assertTrue(os.stat(script).st_mode & 0o001, "Slurm executes it, as the job's user")
        with command.tempfile.TemporaryDirectory() as folder:
            job = dict(USE_ALLOGRAFT="1", CUDA_VISIBLE_DEVICES="0", ALLOGRAFT_LIBRARY=paths.library, SLURM_SUBMIT_DIR=folder,
                       SLURM_JOB_ID="77", LD_PRELOAD=None)
            for change in ({"USE_ALLOGRAFT": None}, {"CUDA_VISIBLE_DEVICES": None}):
                self.assert_silent(execute(script, env=clean_environment(**{**job, **change})), "")
            own = execute(script, env=clean_environment(**job, ALLOGRAFT_STATS="off"))
            self.assert_silent(own, "export LD_PRELOAD=%s\n" % paths.library)
            given = execute(script, env=clean_environment(**job)).stdout
            task = dict(re.fullmatch(r"export (\w+)=(.*)", line).groups() for line in given.splitlines())
            self.assertEqual(set(task), {"LD_PRELOAD", "ALLOGRAFT_STATS"})
            if os.path.exists(demo) and not os.environ.get("TEST_PRELOAD"):
                ran = execute(demo, env=clean_environment(**task, SLURM_PROCID="3", LD_LIBRARY_PATH=paths.sim))
                self.assertEqual((ran.returncode, ran.stderr), (0, ""))
                self.assertEqual(os.listdir(folder), ["allograft-77-3.json"])

    def test_systemd(self):
        tool, unit = self.needs("systemd-analyze"), recipe("systemd", "allograft-metrics.service")
        self.assertIn("ExecStart=/usr/bin/allograft top --prometheus ${LISTEN}\n", unit)
        with command.tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "allograft-metrics.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(unit.replace("/usr/bin/allograft", paths.command))
            done = execute(tool, "verify", "--man=no", path)
        said = [line for line in done.stderr.splitlines() if "allograft" in line]
        self.assertEqual((done.returncode, said), (0, []))

    def test_modulefile(self):
        tool = self.needs("modulecmd")
        with command.tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "lib", "x86_64-linux-gnu", "liballograft.so")
            os.makedirs(os.path.dirname(library))
            os.makedirs(os.path.join(folder, "modules", "allograft"))
            os.symlink(paths.library, library)
            with open(os.path.join(folder, "modules", "allograft", version()), "w", encoding="utf-8") as file:
                file.write(recipe("modulefile", "allograft").replace("set prefix /usr/local", "set prefix " + folder))
            env = clean_environment(MODULEPATH=os.path.join(folder, "modules"), LD_PRELOAD=None)
            done = execute(tool, "sh", "load", "allograft", env=env)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for said in ("ALLOGRAFT_LIBRARY=" + library, "PATH=%s/bin:" % folder, "CPATH=%s/include" % folder,
                         "PKG_CONFIG_PATH=%s/pkgconfig" % os.path.dirname(library)):
                self.assertIn(said, done.stdout)
            self.assertNotIn("LD_PRELOAD", done.stdout)

    def options_exist(self, words):
        known = re.findall(r"(?m)^option\('([\w-]+)'", read("meson_options.txt"))
        given = [re.match(r"-D([\w-]+)=", word)[1] for word in words if word.startswith("-D")]
        self.assertLessEqual(set(given), set(known))
        self.assertIn("cuda-root", given)

    def test_spack(self):
        """Executed with a stand-in for Spack: the directives it gives, and the words for Meson."""
        directives = []

        def directive(name):
            return lambda *words, **_: directives.append((name, words[0]))

        given = {name: directive(name) for name in ("license", "version", "variant", "depends_on", "conflicts")}
        given.update(MesonPackage=object, join_path=os.path.join)
        code = re.sub(r"(?m)^from spack.*$", "", recipe("spack", "package.py"))
        exec(compile(code, "package.py", "exec"), given)  # noqa: S102: ours
        self.assertIn(("version", version()), directives)
        package = given["Allograft"]()
        cuda = types.SimpleNamespace(prefix="/cuda")
        for has in (True, False):
            package.spec = type("Spec", (dict,), {"satisfies": lambda self, what, has=has: has})(cuda=cuda)
            self.options_exist(package.meson_args())
            self.assertIn("-Dcuda-root=/cuda", package.meson_args())

    def test_conda(self):
        text = recipe("conda", "recipe.yaml")
        self.options_exist(re.search(r"meson setup [^\n]*\n[^\n]*", text)[0].split())
        for name in re.findall(r"(?m)^ +- (LICENSE|tools/\S+)$", text):
            self.assertTrue(os.path.exists(os.path.join(paths.root, name)), name)
        if yaml:
            recipe_folder = os.path.dirname(path_of("conda", "recipe.yaml"))
            source = os.path.join(recipe_folder, yaml.safe_load(text)["source"]["path"])
            self.assertEqual(os.path.realpath(source), os.path.realpath(paths.root))


class Monitoring(CommandTest):
    def expressions(self):
        for rule in re.findall(r"(?m)^ +expr: (?:>-\n((?: {10}.*\n)+)|(.*))", recipe("prometheus", "alerts.yaml")):
            yield rule[0] or rule[1]
        for panel in json.loads(recipe("grafana", "dashboard.json"))["panels"]:
            for target in panel["targets"]:
                yield target["expr"]

    def test_metrics_and_labels_exist(self):
        env = clean_environment(ALLOGRAFT_COUNTERS="/no/such/folder")
        shown = allograft("top", "--prometheus", "-", env=env).stdout
        suffixes = {"counter": "_total", "info": "_info", "gauge": ""}
        there = {name + suffixes[kind] for name, kind in re.findall(r"# TYPE (\w+) (\w+)", shown)}
        self.assertGreater(len(there), 20)
        n = 0
        for expression in self.expressions():
            n += 1
            used = set(re.findall(r"\ballograft_\w+", expression))
            self.assertEqual(used - there, set(), expression)
            self.assertTrue(used or "up{" in expression, expression)
            labels = set(re.findall(r"(\w+)(?:=~|!=|=)\"", expression))
            for names in re.findall(r"\bby \(([^)]*)\)", expression):
                labels |= set(names.split(", "))
            self.assertLessEqual(labels, LABELS, expression)
        self.assertGreater(n, 20)

    def test_dashboard(self):
        board = json.loads(recipe("grafana", "dashboard.json"))
        panels = board["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = set()
        for panel in panels:
            place = panel["gridPos"]
            cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
            self.assertFalse(taken & cells, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], 24)
            taken |= cells
        variables = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval"}
        self.assertEqual(set(re.findall(r"\$\{?(\w+)", recipe("grafana", "dashboard.json"))) - {"__all"}, variables)

    def promtool(self, *words):
        tool = shutil.which("promtool")
        if not tool:
            self.skipTest("promtool is not installed")
        done = execute(tool, *words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_alerts_fire_when_they_shall(self):
        self.promtool("check", "rules", path_of("prometheus", "alerts.yaml"))
        self.promtool("test", "rules", path_of("prometheus", "alerts_test.yaml"))
        self.promtool("check", "config", path_of("prometheus", "scrape.yaml"))

    def test_dashboard_asks_what_prometheus_understands(self):
        with command.tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rules.yaml")
            rules = [{"record": "x%d" % i, "expr": one.replace("$__rate_interval", "1m")}
                     for i, one in enumerate(self.expressions())]
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"groups": [{"name": "x", "rules": rules}]}, file)  # which is YAML, too
            self.promtool("check", "rules", path)


if __name__ == "__main__":
    command.main()
