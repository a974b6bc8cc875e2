# Shared by the hostile tests: the harness of tests/preload, and how often a thing is tried.

import os

from harness import *  # noqa: F401,F403: one harness for both

# By hand, for longer: HOSTILE_TIMES=20 meson test -C build --suite hostile --timeout-multiplier 0
TIMES = int(os.environ.get('HOSTILE_TIMES', '1'))


def often(n):
    """How often to try what is tried n times when tests run by themselves."""
    return n * TIMES
