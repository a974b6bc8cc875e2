"""What the checks of the control API for Python share. Importing it ends the program with 77 where they cannot run."""
import os
import statistics
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
try:
    import torch
except ImportError:
    sys.exit(77)
if not torch.cuda.is_available():
    sys.exit(77)

import allograft  # noqa: E402
from torch_replay import Gpt  # noqa: E402


def expect(condition, text):
    if not condition:
        print("not so:", text)
        sys.exit(1)


def refused(kind, call):
    """The exception that the call must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    print("not refused with", kind.__name__)
    sys.exit(1)


def ms_of(work, n):
    """Milliseconds on the device of one of n calls of work()."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(n):
        work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / n


def in_turn(first, second, n, iterations=9):
    """The medians of both in milliseconds, measured in turn."""
    times = [(ms_of(first, n), ms_of(second, n)) for _ in range(iterations)]
    return statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)


def prepare():
    torch.use_deterministic_algorithms(True)
    expect(allograft.is_loaded(), "the library is there")
