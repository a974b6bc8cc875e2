"""What is installed is there and works: the tree, the Debian package and the Python wheel made of it."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import command
from command import CommandTest, allograft, clean_environment, paths

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "contract"))

import pages  # noqa: E402: the contract's reading of pages

# No newer C library than this one is needed, by the wheel that is built here too.
NEWEST_GLIBC = (2, 34)

# The machine that this build is for, by its names in ELF files and in packages.
MACHINE = os.environ["TEST_MACHINE"]
MACHINE_NAMES = {"x86_64": ("X86-64", "amd64"), "aarch64": ("AArch64", "arm64")}


def foreign(**changes):
    """The environment of programs that are not ours: a sanitizer has nothing to do there, and packages need not be small."""
    return clean_environment(LD_PRELOAD=None, DPKG_DEB_COMPRESSOR_LEVEL="1", **changes)


def execute(*words, env=None, **kwargs):
    return subprocess.run(words, env=env or foreign(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=100, universal_newlines=True, check=False, **kwargs)


def install_command(build):
    """How the build folder itself calls Meson to install."""
    with open(os.path.join(build, "build.ninja"), encoding="utf-8", errors="replace") as file:
        match = re.search(r"^ *COMMAND = (.*) install --no-rebuild", file.read(), re.MULTILINE)
    return match and match[1].replace("'", "").split()


def dynamic_symbols(path):
    """What the loader, `run --audit` and tools find in a file: type, binding, visibility and name."""
    rows = [line.split()[3:] for line in execute("readelf", "--dyn-syms", "-W", path).stdout.splitlines()]
    found = sorted((row[0], row[1], row[2], row[4]) for row in rows if len(row) > 4 and row[0] != "Type")
    assert found, path
    return found


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


class Install(CommandTest):
    packages = None

    @classmethod
    def setUpClass(cls):
        build = os.path.dirname(paths.command)
        words = install_command(build)
        if not words:
            raise command.unittest.SkipTest("the build folder does not say how to install")
        folder = command.tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.stage = os.path.join(folder.name, "stage")
        cls.build, cls.meson = build, words
        done = execute(*words, "install", "--no-rebuild", "--quiet", "-C", build, "--destdir", cls.stage)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)

    def one(self, pattern, root=None):
        found = glob.glob(os.path.join(root or self.stage, "**", pattern), recursive=True)
        self.assertEqual(len(found), 1, (pattern, found))
        return found[0]

    def works(self, installed, **changes):
        """The command of a tree finds the library of that tree, which counts what the demo does."""
        env = clean_environment(LD_LIBRARY_PATH=paths.sim, **changes)
        self.assertEqual(allograft("--version", command=installed, env=env).stdout, allograft("--version").stdout)
        report = os.path.join(self.folder, "report.json")
        demo = os.path.join(paths.sim, "demo", "demo-sim")
        result = allograft("run", "--stats", report, "--", demo, command=installed, env=env)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(report, encoding="utf-8") as file:
            self.assertIn('"redirecting":true', file.read().replace(" ", ""))
        os.remove(report)

    def test_has_everything(self):
        for name in ("bin/allograft", "liballograft.so", "liballograft-audit.so", "include/allograft.h",
                     "man1/allograft.1", "man7/allograft.7", "pkgconfig/allograft.pc",
                     "bash-completion/completions/allograft", "zsh/site-functions/_allograft",
                     "fish/vendor_completions.d/allograft.fish", "allograft/allograft-stats.schema.json"):
            self.one(name)

    def test_licenses(self):
        self.has_licenses(self.one("doc/allograft/LICENSE"), self.one("doc/allograft/LICENSE.uPlot"),
                          self.one("doc/allograft/LICENSE.jansson"))

    def test_installing_builds_no_test(self):
        targets = json.loads(execute(*self.meson, "introspect", "--targets", self.build).stdout)
        for target in targets:
            if target["build_by_default"] and not target["installed"]:
                self.assertNotIn("/tests/", target["defined_in"].replace(paths.root, "", 1), target["name"])

    def test_is_stripped_of_what_no_loader_needs(self):
        for name in ("bin/allograft", "liballograft.so", "liballograft-audit.so"):
            installed = self.one(name)
            sections = execute("readelf", "-SW", installed).stdout
            self.assertNotRegex(sections, r" \.(symtab|debug_\w+) ",
                                "%s is not stripped (a build folder from before: meson configure -Dstrip=true)" % name)
            built = os.path.join(self.build, os.path.basename(name))
            self.assertEqual(dynamic_symbols(installed), dynamic_symbols(built))

    def is_for_its_machine(self, tree):
        """The library, the audit library, the command and the simulated driver of a tree."""
        programs = [path for path in glob.glob(os.path.join(tree, "**"), recursive=True)
                    if os.path.isfile(path) and not os.path.islink(path) and is_elf(path)]
        self.assertEqual(sorted(os.path.basename(path) for path in programs),
                         ["allograft", "liballograft-audit.so", "liballograft.so", "libcuda.so.1"])
        for path in programs:
            self.assertRegex(execute("readelf", "-h", path).stdout, r"Machine: .*\b%s\n" % MACHINE_NAMES[MACHINE][0])

    def loads(self, library):
        """A program loads the library of a tree by LD_PRELOAD, and its allocations are redirected."""
        report = os.path.join(self.folder, "loaded.json")
        demo = os.path.join(paths.sim, "demo", "demo-sim")
        env = clean_environment(LD_LIBRARY_PATH=paths.sim, ALLOGRAFT_POLICY="pool", ALLOGRAFT_STATS=report)
        env["LD_PRELOAD"] = ":".join(filter(None, (library, env.get("LD_PRELOAD"))))
        ran = execute(demo, env=env)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        with open(report, encoding="utf-8") as file:
            self.assertIn('"redirecting":true', file.read().replace(" ", ""))
        os.remove(report)

    def links_lead_somewhere(self, tree):
        """From each page of a tree to another one of it."""
        folder = os.path.dirname(self.one("doc/allograft/README.md", tree))
        there = set(glob.glob("**", root_dir=folder, recursive=True))
        read = pages.read_pages(folder, there)
        self.assertIn("docs/settings.md", read)
        self.assertEqual(pages.link_problems(read, there), [])

    def has_licenses(self, *files):
        """Ours, and those of the libraries that pages and the command carry."""
        said = ""
        for path in files:
            with open(path, encoding="utf-8") as file:
                said += file.read()
        self.assertIn("Apache License", said)
        self.assertRegex(said, r"(?s)The MIT License.*Leon Sorokin")
        self.assertRegex(said, r"(?s)The MIT License.*Petri Lehtinen")

    def simulates(self, installed, **changes):
        """The simulated driver of the same tree is the one that is found."""
        env = clean_environment(**{"LD_LIBRARY_PATH": None, "LD_PRELOAD": None, **changes})
        result = allograft("doctor", "--simulate", "--json", command=installed, env=env)
        self.assertEqual(result.stderr, "")
        self.assertIn('"name":"pool_dlsym","verdict":"good"', result.stdout)
        seen = allograft("run", "--simulate", "sh", "-c", 'printf %s "$LD_LIBRARY_PATH"', command=installed, env=env)
        self.assertTrue(seen.stdout.endswith("/allograft/simulated"), seen)
        self.assertEqual(os.listdir(seen.stdout), ["libcuda.so.1"])

    def test_the_simulated_driver_lies_where_no_loader_looks(self):
        place = os.path.dirname(self.one("libcuda.so*"))
        self.assertEqual(place, os.path.join(os.path.dirname(self.one("liballograft.so")), "allograft", "simulated"))

    def test_pages(self):
        self.links_lead_somewhere(self.stage)

    def test_command_works(self):
        self.works(self.one("bin/allograft"))
        self.simulates(self.one("bin/allograft"))

    def test_manual_says_it_all(self):
        with open(self.one("man1/allograft.1"), encoding="utf-8") as file:
            page = file.read().replace("\\-", "-")
        for name in command.names_of_commands():
            self.assertIn("\n.SS %s\n" % name, page)
        for _, name, *_, text in command.rows_of("OPTION"):
            self.assertEqual("\n.BR --" + name.replace("_", "-") in page, text != '""', name)
        with open(self.one("man7/allograft.7"), encoding="utf-8") as file:
            page = file.read()
        for name in re.findall(r"^ALLOGRAFT_\w+", allograft("options").stdout, re.MULTILINE):
            self.assertIn("\n.BR %s = " % name, page)
        self.assertNotRegex(page, r"@[A-Z]+@")

    def test_manual_is_clean(self):
        if not shutil.which("man") or not shutil.which("groff"):
            self.skipTest("man or groff is not installed")
        env = foreign(LC_ALL="C.UTF-8", MANROFFSEQ="", MANWIDTH="110")
        for page in ("man1/allograft.1", "man7/allograft.7"):
            done = execute("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", self.one(page), env=env)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertGreater(len(done.stdout), 2000)

    def test_manual_fits_80_columns(self):
        pages = [self.one("man1/allograft.1"), self.one("man7/allograft.7")]
        if shutil.which("groff"):
            words = ["groff", "-man", "-Tutf8", "-P-cbou", "-rLL=80n"]
        elif shutil.which("mandoc"):
            words = ["mandoc", "-Tutf8", "-Owidth=80"]
        else:
            self.skipTest("neither groff nor mandoc is installed")
        for page in pages:
            done = execute(*words, page, env=foreign(LC_ALL="C.UTF-8"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            lines = [re.sub(".\x08", "", line) for line in done.stdout.splitlines()]
            self.assertGreater(len(lines), 100)
            self.assertEqual([line for line in lines if len(line) > 80], [])

    def test_pkg_config(self):
        if not shutil.which("pkg-config"):
            self.skipTest("pkg-config is not installed")
        env = foreign(PKG_CONFIG_PATH=os.path.dirname(self.one("pkgconfig/allograft.pc")))
        version = execute("pkg-config", "--modversion", "allograft", env=env)
        self.assertEqual((version.stdout, version.stderr), (allograft("--version").stdout.split()[1] + "\n", ""))
        library = execute("pkg-config", "--variable=library", "allograft", env=env).stdout.strip()
        self.assertTrue(os.path.exists(self.stage + library), library)

    def debian_packages(self):
        """Made once: the tree has no debug information, so they are two."""
        if not Install.packages:
            script = os.path.join(paths.root, "tools", "packaging", "deb.sh")
            made = execute("bash", script, "--stage", self.stage, os.path.join(self.folder, "deb"))
            self.assertEqual((made.returncode, made.stderr), (0, ""))
            Install.packages = made.stdout.split()
        return Install.packages

    def test_debian_package(self):
        if not shutil.which("dpkg-deb"):
            self.skipTest("dpkg-deb is not installed")
        package, dev = self.debian_packages()
        fields = execute("dpkg-deb", "--field", package).stdout
        version, architecture = allograft("--version").stdout.split()[1], MACHINE_NAMES[MACHINE][1]
        self.assertEqual([os.path.basename(one) for one in (package, dev)],
                         ["%s_%s_%s.deb" % (name, version, architecture) for name in ("allograft", "allograft-dev")])
        self.assertIn("Package: allograft\nVersion: %s\nArchitecture: %s\n" % (version, architecture), fields)
        libc = re.search(r"(?m)^Depends: libc6 \(>= (\d+)\.(\d+)\)$", fields)
        self.assertLessEqual((int(libc[1]), int(libc[2])), NEWEST_GLIBC)
        self.assertRegex(fields, r"(?m)^Installed-Size: [1-9]\d+$")
        self.assertNotIn("Homepage", fields)
        for name, package_name in (("libdw.so.1", "libdw1"), ("libmicrohttpd.so.12", "libmicrohttpd12"),
                                   ("libjansson.so.4", "libjansson4")):
            with open(self.one("bin/allograft"), "rb") as file:
                opens = ("\0%s\0" % name).encode() in file.read()
            self.assertEqual(bool(re.search("(?m)^Recommends: .*" + package_name, fields)), opens, name)
        for one in (package, dev):
            listed = execute("dpkg-deb", "--contents", one).stdout
            self.assertNotRegex(listed, r"(?m)^\S+ (?!root/root )")
            self.assertEqual("allograft.h" in listed, one == dev)
            self.assertEqual("allograft.pc" in listed, one == dev)
        self.assertIn("Depends: allograft (= ", execute("dpkg-deb", "--field", dev).stdout)
        tree = os.path.join(self.folder, "unpacked")
        self.assertEqual(execute("dpkg-deb", "--extract", package, tree).returncode, 0)
        self.one("man1/allograft.1.gz", tree)
        self.has_licenses(self.one("doc/allograft/copyright", tree))
        self.links_lead_somewhere(tree)
        self.one("zsh/vendor-completions/_allograft", tree)
        self.is_for_its_machine(tree)
        self.loads(self.one("liballograft.so", tree))
        self.works(self.one("bin/allograft", tree))
        self.simulates(self.one("bin/allograft", tree))

    def test_debian_package_of_debug_information(self):
        if not shutil.which("dpkg-deb") or not shutil.which("objcopy"):
            self.skipTest("dpkg-deb or objcopy is not installed")
        stage = os.path.join(self.folder, "unstripped")
        shutil.copytree(self.stage, stage, symlinks=True)
        for name in ("liballograft.so", "bin/allograft"):
            shutil.copy(os.path.join(self.build, os.path.basename(name)), self.one(name, stage))
        script = os.path.join(paths.root, "tools", "packaging", "deb.sh")
        made = execute("bash", script, "--stage", stage, os.path.join(self.folder, "debug"),
                       env=foreign(ALLOGRAFT_HOMEPAGE="https://example.org/allograft",
                                   ALLOGRAFT_MAINTAINER="A B <a@example.org>"))
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        package, _, debug = made.stdout.split()
        fields = execute("dpkg-deb", "--field", package).stdout
        self.assertIn("\nHomepage: https://example.org/allograft\n", fields)
        self.assertIn("\nMaintainer: A B <a@example.org>\n", fields)
        tree = os.path.join(self.folder, "debugged")
        for one in (package, debug):
            self.assertEqual(execute("dpkg-deb", "--extract", one, tree).returncode, 0)
        for name in ("liballograft.so", "bin/allograft"):
            installed = self.one(name, tree)
            self.assertNotIn(".debug_info", execute("readelf", "-SW", installed).stdout)
            self.assertEqual(dynamic_symbols(installed), dynamic_symbols(self.one(name)))
            build_id = re.search(r"Build ID: (\w{2})(\w+)", execute("readelf", "-n", installed).stdout)
            found = os.path.join(tree, "usr/lib/debug/.build-id", build_id[1], build_id[2] + ".debug")
            self.assertIn(".debug_info", execute("readelf", "-SW", found).stdout)
        self.works(self.one("bin/allograft", tree))

    def in_root(self, root, *words):
        """Runs our command in another root, as a container does: with /proc, and a /dev of its own."""
        script = ('mount --rbind /proc "$0/proc" && mount -t tmpfs none "$0/dev" && mkdir "$0/dev/shm" && : >"$0/dev/null" && '
                  'exec chroot "$0" "$@"')
        simulated = os.path.dirname(self.one("libcuda.so*", root))[len(root):]
        return execute("unshare", "-m", "sh", "-c", script, root, self.one("bin/allograft", root)[len(root):], *words,
                       env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": simulated})

    def put_installed(self, root):
        shutil.copytree(self.stage, root, symlinks=True)

    def put_debian_package(self, root):
        extracted = execute("dpkg-deb", "--extract", self.debian_packages()[0], root)
        self.assertEqual(extracted.returncode, 0, extracted.stderr)

    def put_wheel(self, root):
        with zipfile.ZipFile(self.make_wheel().stdout.strip()) as wheel:
            for entry in wheel.infolist():
                os.chmod(wheel.extract(entry, root), entry.external_attr >> 16 & 0o777)

    def make_bare(self, put, used):
        """A root with a tree of ours, the demo, and the libraries that the two need."""
        root = os.path.join(self.folder, "root-" + put.__name__)
        put(root)
        shutil.copy(os.path.join(paths.sim, "demo", "demo-sim"), root)
        for folder in ("proc", "dev", "tmp"):
            os.mkdir(os.path.join(root, folder))
        for name in set(re.findall(r"(/\S+) \(0x", used)):
            os.makedirs(root + os.path.dirname(name), exist_ok=True)
            emulated = os.environ.get("QEMU_LD_PREFIX", "") + name
            shutil.copy(emulated if os.path.exists(emulated) else name, root + name)
        return root

    def test_in_a_bare_container(self):
        """With libc and the program's own libraries: the command needs no others, also to read JSON."""
        demo = os.path.join(paths.sim, "demo", "demo-sim")
        installed = self.one("bin/allograft")
        if not os.path.exists(demo):
            self.skipTest("the demo was not built")
        used = "".join(execute(one, env=foreign(LD_TRACE_LOADED_OBJECTS="1")).stdout for one in (demo, installed))
        self.assertIn("libc.so.6", used)
        if re.search(r"lib[atu]\w*san\.", used):
            self.skipTest("a sanitizer's library is needed")
        needed = re.findall(r"NEEDED.*\[(.*)\]", execute("readelf", "-d", installed).stdout)
        self.assertEqual([name for name in needed if not re.match(r"lib(c|dl|m|pthread)\.so\.|ld-linux", name)], [])
        for put in (self.put_installed, self.put_debian_package, self.put_wheel):
            with self.subTest(put=put.__name__):
                if put == self.put_debian_package and not shutil.which("dpkg-deb"):
                    continue
                root = self.make_bare(put, used)
                if self.in_root(root, "--version").returncode:
                    self.skipTest("no other root can be entered here")
                self.works_bare(root)

    def works_bare(self, root):
        self.assertIn("self-test", self.in_root(root, "doctor").stdout)
        ran = self.in_root(root, "run", "--stats", "/tmp/a.json", "--", "/demo-sim")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        shown = self.in_root(root, "report", "/tmp/a.json")
        if shown.returncode:  # made where there was no static library of it, or nothing of it
            self.assertRegex(shown.stderr, r"^allograft: /tmp/a.json is a JSON report, (and there is no jansson here|"
                                           r"which this command cannot read: it was made without jansson) .*\n$")
        else:
            self.assertEqual(shown.stderr, "")
            self.assertIn("demo-sim (process ", shown.stdout)
        top = self.in_root(root, "top", "--once")
        self.assertEqual((top.returncode, top.stderr), (0, ""))
        metrics = self.in_root(root, "top", "--once", "--prometheus", "/tmp/a.prom")
        self.assertEqual((metrics.returncode, metrics.stderr), (0, ""))

    def test_debian_package_needs_a_folder(self):
        script = os.path.join(paths.root, "tools", "packaging", "deb.sh")
        for words, said in (([], "one folder is needed, not 0"), (["a", "b"], "one folder is needed, not 2"),
                            (["--help"], "no option '--help'"), (["--stage"], "--stage needs a folder, not ''"),
                            (["--stage", "/no/such", "a"], "--stage needs a folder, not '/no/such'")):
            made = execute("bash", script, *words, cwd=self.folder)
            self.assertEqual((made.returncode, made.stdout, made.stderr),
                             (2, "", f"deb.sh: {said}; usage: deb.sh [--stage DIR] OUT\n"))

    def make_wheel(self):
        script = os.path.join(paths.root, "tools", "packaging", "wheel.py")
        made = execute(sys.executable, script, "--stage", self.stage, os.path.join(self.folder, "wheel"))
        self.assertEqual(made.returncode, 0, made.stderr)
        return made

    def test_wheel(self):
        made = self.make_wheel()
        path = made.stdout.strip()
        tag = re.fullmatch(r"allograft-[\d.]+-py3-none-(?:manylinux_(\d+)_(\d+)|linux)_%s\.whl" % MACHINE,
                           os.path.basename(path))
        self.assertIsNotNone(tag, path)
        if tag[1]:
            self.assertLessEqual((int(tag[1]), int(tag[2])), NEWEST_GLIBC)
        else: # says what is in the way
            self.assertRegex(made.stderr, r"^not portable to every Linux: linked with lib(asan|tsan|ubsan)")
        with zipfile.ZipFile(path) as wheel:
            self.assertIsNone(wheel.testzip())
            names = [n for n in wheel.namelist() if not n.endswith("/RECORD")]
            told = wheel.read([n for n in names if n.endswith("/METADATA")][0]).decode()
            record = wheel.read([n for n in wheel.namelist() if n.endswith("/RECORD")][0]).decode().splitlines()
        self.assertEqual([line.split(",")[0] for line in record[:-1]], names)
        fields, _, about = told.partition("\n\n")
        for field in ("Author: ", "Summary: ", "License: Apache-2.0\n", "Description-Content-Type: text/markdown"):
            self.assertIn("\n" + field, fields)
        self.assertNotIn("Homepage", fields)
        self.assertIn("# Allograft\n", about)
        self.assertNotIn("](", about)  # links lead nowhere outside of the repository
        for name in ("LICENSE", "LICENSE.uPlot", "LICENSE.jansson"):
            self.assertEqual(len([n for n in names if n.endswith(".dist-info/" + name)]), 1, name)
        package = os.path.join(paths.root, "tools", "python")
        modules = glob.glob(os.path.join(package, "allograft", "**", "*.py"), recursive=True)
        self.assertIn("allograft/compat/full_cuda_graph.py", names)
        self.assertEqual({os.path.relpath(path, package) for path in modules}, {n for n in names if n.endswith(".py")})

    def test_wheel_is_the_same_each_time(self):
        with open(self.make_wheel().stdout.strip(), "rb") as file:
            first = file.read()
        with open(self.make_wheel().stdout.strip(), "rb") as file:
            self.assertEqual(first, file.read())

    def as_on_its_machine(self, wheel):
        """What makes pip install a wheel for another machine than this one, as it would there."""
        if MACHINE == os.uname().machine:
            return []
        return ["--only-binary=:all:", "--platform", re.search(r"-none-(.*)\.whl$", wheel)[1]]

    def test_wheel_works(self):
        env = foreign(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore", PIP_CONFIG_FILE=os.devnull)
        if execute(sys.executable, "-m", "pip", "--version", env=env).returncode:
            self.skipTest("pip is not installed")
        target, wheel = os.path.join(self.folder, "target"), self.make_wheel().stdout.strip()
        done = execute(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-cache-dir",
                       *self.as_on_its_machine(wheel), "--target", target, wheel, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        installed = os.path.join(target, "bin", "allograft")
        self.works(installed, PYTHONPATH=target)
        self.simulates(installed, PYTHONPATH=target)
        self.is_for_its_machine(target)
        self.loads(self.one("liballograft.so", target))
        env = clean_environment(PYTHONPATH=target)
        as_module = execute(sys.executable, "-m", "allograft", "options", env=env, cwd=self.folder)
        self.assertEqual((as_module.stdout, as_module.stderr), (allograft("options").stdout, ""))
        imported = execute(sys.executable, "-c", "import allograft.compat.full_cuda_graph as m; print(m.__file__)",
                           env=env, cwd=self.folder)
        self.assertTrue(imported.stdout.startswith(target), imported)
        version = execute(sys.executable, "-c", "import allograft; print(allograft.__version__)", env=env, cwd=self.folder)
        self.assertEqual(version.stdout, allograft("--version").stdout.split()[1] + "\n")
        bad = execute(installed, "run", "--policy", "none", "true", env=env)
        self.assertEqual(bad.returncode, 2)


if __name__ == "__main__":
    command.main()
