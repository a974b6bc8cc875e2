"""What pip calls to build the wheel (PEP 517): tools/packaging/wheel.py, which builds with Meson."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "packaging"))
import wheel  # noqa: E402: it lies in the folder above


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with wheel.tempfile.TemporaryDirectory() as work:
        return os.path.basename(wheel.make(wheel.build(work), wheel_directory))


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("the sources are the project's repository")
