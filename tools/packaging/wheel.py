"""Makes a Python wheel from an installed tree: the module, the command, the library, the manual and the header.

    wheel.py [--stage DIR] OUT

DIR is a tree that `meson install` made, for this machine or another; without it, the project is built and installed
into one. The wheel goes into the folder OUT, and its name is printed. ALLOGRAFT_HOMEPAGE in the environment becomes the
project's address in it. Needs no network; building needs Meson and ninja.

The command and the library are in the module's folder, wherever pip puts that, and find each other there; the script
that pip installs executes that command. The wheel's tag says which C library is needed: it follows from the versions
of the symbols that the files use, as the manylinux policy defines it.
"""

import argparse
import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
MODULE = os.path.join(ROOT, "tools", "python", "allograft")

# Libraries that every Linux has by the manylinux policy, as far as C programs use them.
EVERYWHERE = re.compile(r"^(libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|librt\.so\.1|ld-linux[-\w]*\.so\.\d)$")

# e_machine of ELF files: the machine of a tag.
MACHINES = {62: "x86_64", 183: "aarch64"}


def version():
    with open(os.path.join(ROOT, "meson.build"), encoding="utf-8") as file:
        return re.search(r"version: '([^']+)'", file.read())[1]


def build(work):
    """Builds the project and installs it into a tree; libraries outside the policy are linked statically."""
    meson = os.environ.get("MESON", "meson")
    stage = os.path.join(work, "stage")
    for words in (["setup", work + "/build", ROOT, "--prefix=/usr", "--libdir=lib", "--prefer-static",
                   "--buildtype=debugoptimized", "-Dtests=false"],
                  ["compile", "-C", work + "/build"],
                  ["install", "-C", work + "/build", "--no-rebuild", "--destdir", stage]):
        done = subprocess.run([meson, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            sys.exit(done.stdout.decode(errors="replace")[-4000:])
    return stage


def installed(stage):
    """(path in the tree, path in the wheel) for every file."""
    for folder, _, names in os.walk(stage):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.basename(folder) == "bin":
                yield path, "allograft/bin/" + name
            elif folder.endswith("/allograft/simulated"):
                yield path, "allograft/lib/allograft/simulated/" + name
            elif name.endswith(".so"):
                yield path, "allograft/lib/" + name
            elif "/include/" in path:
                yield path, "allograft/include/" + path.split("/include/", 1)[1]
            elif "/share/" in path:
                yield path, "allograft-%s.data/data/share/%s" % (version(), path.split("/share/", 1)[1])


def needs(path):
    """The newest glibc version (2, N) that an ELF file needs, and the other libraries that it needs."""
    env = dict(os.environ, LC_ALL="C")
    text = subprocess.run(["readelf", "-d", "-V", "-W", path], env=env, stdout=subprocess.PIPE, check=True,
                          stderr=subprocess.DEVNULL).stdout.decode()
    versions = [tuple(int(n) for n in v.split(".")[:2]) for v in re.findall(r"Name: GLIBC_([\d.]+)", text)]
    linked = re.findall(r"\(NEEDED\).*\[([^\]]+)\]", text)
    return max(versions, default=(2, 5)), [name for name in linked if not EVERYWHERE.match(name)]


def machine_of(path):
    """The machine that an ELF file is for, as tags name it."""
    with open(path, "rb") as file:
        number = int.from_bytes(file.read(20)[18:], "little")
    if number not in MACHINES:
        sys.exit("wheel.py: no wheel is made for the machine of " + path)
    return MACHINES[number]


def platform_tag(files):
    newest, others = (2, 17), []
    machine = machine_of(files[0])
    for path in files:
        wants, linked = needs(path)
        newest = max(newest, wants)
        others += linked
    if others:
        print("not portable to every Linux: linked with " + ", ".join(sorted(set(others))), file=sys.stderr)
        return "linux_" + machine
    return "manylinux_%d_%d_%s" % (*newest, machine)


class Wheel:
    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, content, mode=0o644):
        entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)) # the same bytes from the same files
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append("%s,sha256=%s,%d" % (name, digest, len(content)))

    def add_file(self, name, path):
        with open(path, "rb") as file:
            self.add(name, file.read(), 0o755 if os.access(path, os.X_OK) else 0o644)

    def close(self, info):
        lines = self.record + [info + "/RECORD,,"]
        self.add(info + "/RECORD", ("\n".join(lines) + "\n").encode())
        self.zip.close()


def module_files():
    for folder, _, names in os.walk(MODULE):
        for name in sorted(names):
            if name.endswith((".py", ".pyi", ".typed")):
                path = os.path.join(folder, name)
                yield path, "allograft/" + os.path.relpath(path, MODULE)


def metadata():
    """Who made what, and what README's beginning says of it: its links lead nowhere outside of the repository."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        about = file.read().split("\n![", 1)[0]
    homepage = os.environ.get("ALLOGRAFT_HOMEPAGE")
    fields = ["Metadata-Version: 2.1", "Name: allograft", "Version: " + version(),
              "Summary: Runs CUDA programs with device memory that is reused and, on request, their repeated work as graphs",
              "Author: The Allograft developers", "License: Apache-2.0",
              *(["Project-URL: Homepage, " + homepage] if homepage else []),
              "Keywords: CUDA,GPU,memory,allocator,CUDA graphs", "Classifier: Environment :: GPU :: NVIDIA CUDA",
              "Classifier: License :: OSI Approved :: Apache Software License",
              "Classifier: Operating System :: POSIX :: Linux", "Classifier: Programming Language :: C",
              "Classifier: Programming Language :: Python :: 3", "Requires-Python: >=3.8",
              "Description-Content-Type: text/markdown"]
    return "\n".join(fields) + "\n\n" + about.rstrip() + """

After `pip install`, `allograft run -- ./program` starts a program under the library of this package, and
`allograft doctor` says what the machine can do. `import allograft` is the control interface for Python.
"""


def make(stage, out):
    files = sorted(installed(stage), key=lambda pair: pair[1])
    tag = platform_tag([path for path, to in files if to.startswith(("allograft/bin/", "allograft/lib/"))])
    name = "allograft-" + version()
    info = name + ".dist-info"
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, "%s-py3-none-%s.whl" % (name, tag))
    wheel = Wheel(path)
    for source, to in module_files():
        wheel.add_file(to, source)
    for source, to in files:
        wheel.add_file(to, source)
    wheel.add(info + "/METADATA", metadata().encode())
    wheel.add(info + "/WHEEL", (
        "Wheel-Version: 1.0\nGenerator: allograft\nRoot-Is-Purelib: false\nTag: py3-none-%s\n" % tag).encode())
    wheel.add(info + "/entry_points.txt", b"[console_scripts]\nallograft = allograft._command:main\n")
    wheel.add_file(info + "/LICENSE", os.path.join(ROOT, "LICENSE"))
    wheel.add_file(info + "/LICENSE.uPlot", os.path.join(ROOT, "tools", "report", "web", "LICENSE.uPlot"))
    wheel.add_file(info + "/LICENSE.jansson", os.path.join(ROOT, "tools", "report", "LICENSE.jansson"))
    wheel.close(info)
    return path


def main():
    parser = argparse.ArgumentParser(usage="wheel.py [--stage DIR] OUT")
    parser.add_argument("--stage")
    parser.add_argument("out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        print(make(args.stage or build(work), args.out))


if __name__ == "__main__":
    main()
