"""Spack's recipe of Allograft: as packages/allograft/package.py of a repository of recipes.

The sources come from a checkout: `spack dev-build -d CHECKOUT allograft@0.1.0`.
"""

from spack_repo.builtin.build_systems.meson import MesonPackage

from spack.package import *


class Allograft(MesonPackage):
    """Runs CUDA programs with device memory that is reused and, on request, their repeated work as graphs."""

    license("Apache-2.0")

    version("0.1.0")

    variant("http", default=True, description="let allograft top serve metrics over HTTP")
    variant("lines", default=True, description="name files and lines of stacks")

    depends_on("c", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("python@3.8:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cuda@13:", type="build")  # its headers
    depends_on("jansson")
    depends_on("libmicrohttpd", when="+http")
    depends_on("elfutils", when="+lines")

    conflicts("platform=darwin")
    conflicts("platform=windows")

    def meson_args(self):
        return [
            "-Dtests=false",
            "-Dcuda-root={0}".format(self.spec["cuda"].prefix),
            "-Dhttp={0}".format("enabled" if self.spec.satisfies("+http") else "disabled"),
            "-Dlibdw={0}".format("enabled" if self.spec.satisfies("+lines") else "disabled"),
        ]

    def setup_run_environment(self, env):
        # Only what the spec asks for is found by its linker; the command opens these by name.
        for name in ("jansson", "libmicrohttpd", "elfutils"):
            if name in self.spec:
                env.append_path("LD_LIBRARY_PATH", self.spec[name].prefix.lib)
        env.set("ALLOGRAFT_LIBRARY", join_path(self.prefix.lib, "liballograft.so"))
