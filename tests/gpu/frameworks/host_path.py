"""Loads and stores of frameworks from ordinary memory, of some GiB, three times in one process: sums of what arrived,
the seconds of the quickest, and those of the process.

usage: host_path.py WHAT FOLDER
  torch-load    a checkpoint of 2 GiB from the page cache, by torch.load
  torch-mapped  the same, mapped
  safetensors   such a file
  loader        batches of 64 MiB by a DataLoader with two workers
  loader-pinned the same with pin_memory
  cupy          numpy arrays of 256 MiB there and back
  jax           the same
"""
import os
import sys
import time

START = time.monotonic()
PARTS, MIB, TIMES = 16, 1 << 20, 3


def report(name, once, total_of):
    """`once` returns, when all has arrived, what `total_of` adds up."""
    seconds = []
    for _ in range(TIMES):
        start = time.monotonic()
        arrived = once()
        seconds.append(time.monotonic() - start)
        print(f"{name}_sum {total_of(arrived)}")
        del arrived
    print(f"{name}_s {min(seconds):.4f}")
    print(f"{name}_whole_s {time.monotonic() - START:.4f}")


def part(i):
    import torch

    return torch.arange(32 * MIB, dtype=torch.int32).mul_(2654435761 % 2**31).add_(i)


def prepared(path, save):
    """The file, in the page cache; made by the first process that wants it."""
    if not os.path.exists(path):
        save(path + ".part")
        os.rename(path + ".part", path)
    with open(path, "rb") as file:
        while file.read(16 * MIB):
            pass
    return path


def total_of(tensors):
    import torch

    return sum(int(tensor.sum(dtype=torch.int64)) for tensor in tensors.values())


def torch_load(folder, name="torch_load", **options):
    import torch

    path = prepared(
        f"{folder}/checkpoint.pt", lambda to: torch.save({str(i): part(i) for i in range(PARTS)}, to)
    )

    def once():
        state = torch.load(path, map_location="cuda", **options)
        torch.cuda.synchronize()
        return state

    torch.cuda.synchronize()
    report(name, once, total_of)


def torch_mapped(folder):
    torch_load(folder, "torch_mapped", mmap=True)


def safetensors(folder):
    import torch
    from safetensors.torch import load_file, save_file

    path = prepared(
        f"{folder}/checkpoint.safetensors",
        lambda to: save_file({str(i): part(i) for i in range(PARTS)}, to),
    )

    def once():
        state = load_file(path, device="cuda")
        torch.cuda.synchronize()
        return state

    torch.cuda.synchronize()
    report("safetensors", once, total_of)


def loader(_folder, name="loader", **options):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    rows = torch.arange(32 * 4 * MIB, dtype=torch.int32).reshape(32, -1)
    batches = DataLoader(TensorDataset(rows), batch_size=4, num_workers=2, **options)

    def once():
        sums = []
        for (batch,) in batches:
            batch = batch.to("cuda", non_blocking=True)
            sums.append(int((batch * 3).sum(dtype=torch.int64)))
        return sums

    report(name, once, sum)


def loader_pinned(folder):
    loader(folder, "loader_pinned", pin_memory=True)


def cupy(_folder):
    import cupy as cp
    import numpy as np

    arrays = [np.arange(64 * MIB, dtype=np.int32) + i for i in range(2)]
    back = [np.empty_like(array) for array in arrays]
    cp.asarray(arrays[0][:1024]) * 2

    def once():
        for array, to in zip(arrays, back):
            (cp.asarray(array) * 2).get(out=to)
        return back

    report("cupy", once, lambda all: sum(int(to.sum(dtype=np.int64)) for to in all))


def jax(_folder):
    import jax as j
    import numpy as np

    arrays = [np.arange(64 * MIB, dtype=np.int32) + i for i in range(2)]
    double = j.jit(lambda x: x * 2)
    np.asarray(double(j.device_put(arrays[0])))

    def once():
        return [int(np.asarray(double(j.device_put(array)))[-1]) for array in arrays]

    report("jax", once, sum)


def main():
    what = sys.argv[1]
    ways = {
        "torch-load": torch_load,
        "torch-mapped": torch_mapped,
        "safetensors": safetensors,
        "loader": loader,
        "loader-pinned": loader_pinned,
        "cupy": cupy,
        "jax": jax,
    }
    try:
        ways[what](sys.argv[2])
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(77)


if __name__ == "__main__":
    main()
