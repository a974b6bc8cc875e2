"""How long a step of PyTorch takes under one setting of Allograft and under another.

Two processes of Python differ by up to 1.5 times for the same work: by where things lie in memory, and by phases of the
host. So one parent imports everything and forks a child for each measurement, which sets the environment before its
first call of CUDA; the ways take turns. What the children print must be equal.

usage: torch_children.py TURNS NET[,NET]... WAY...
  NET: of torch_replay.py. WAY: VAR=VALUE,... or `-` for none, the library preloaded in any case; times are over the first.
Prints for each way but the first, and each net: `NAME_WAY_times 1 R`, R the median over the turns of how many times as
long a step takes, and `step_ms_NAME_WAY FIRST THIS`, the medians in milliseconds.
"""
import os
import statistics
import sys
import tempfile
import time

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # torch sees whether there is a GPU without a call of CUDA
try:
    import torch
except ImportError:
    sys.exit(77)
if not torch.cuda.is_available():
    sys.exit(77)
import torch_replay  # noqa: E402


def run_child(way, nets):
    """What the nets print, in a child with these variables."""
    with tempfile.TemporaryFile("w+") as out:
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            os.dup2(out.fileno(), 1)
            os.environ.update(pair.split("=", 1) for pair in way.split(",") if "=" in pair)
            try:
                torch_replay.run(nets)
                sys.stdout.flush()
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            sys.exit(f"a child with {way} failed")
        out.seek(0)
        return out.read().splitlines()


def label(way):
    return "".join(c if c.isalnum() else "_" for c in way.replace("ALLOGRAFT_", "")).lower()


def main():
    turns, nets, ways = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    if "generate" in nets:
        import transformers  # noqa: F401  # once, in the parent
    times, said = {way: {} for way in ways}, None
    for turn in range(turns):
        for way in ways if turn % 2 == 0 else ways[::-1]:
            began = time.monotonic()
            lines = run_child(way, nets)
            took = time.monotonic() - began
            steps = [line for line in lines if line.startswith("step_ms_")]
            print(f"turn {turn + 1}, {way}: {took:.1f} s, {', '.join(steps)}", file=sys.stderr, flush=True)
            for name, ms in map(str.split, steps):
                times[way].setdefault(name, []).append(float(ms))
            lines = [line for line in lines if line not in steps]
            if said is not None and lines != said:
                sys.exit(f"the output with {way} is another one: {next(p for p in zip(lines, said) if p[0] != p[1])}")
            said = lines
    for way in ways[1:]:
        for name, first in times[ways[0]].items():
            mine = times[way][name]
            times_as_long = statistics.median(b / a for a, b in zip(first, mine))
            print(f"{name[8:]}_{label(way)}_times 1 {times_as_long:.4f}")
            print(f"{name}_{label(way)} {statistics.median(first):.4f} {statistics.median(mine):.4f}")
    print(f"{len(said)} lines equal in {turns * len(ways)} children", file=sys.stderr)


main()
