"""PyTorch with little memory: its cache is given back when memory runs out, and its error can be caught.

usage: torch_retry.py [share]
With `share` PyTorch itself is told to use 2 GiB at most, which shows what it does on a small card.
"""
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

MIB = 1 << 20


def take(mib, value):
    """A tensor of so many MiB, all of one value."""
    return torch.full((mib * MIB // 4,), value, device="cuda", dtype=torch.float32)


def main():
    if sys.argv[1:] == ["share"]:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(2048 * MIB / total)
    kept = take(64, 1.0)
    for iteration_ in range(3):
        many = [take(200, float(i)) for i in range(7)]
        print("iteration", iteration_, "seven of 200 MiB:", [t[-1].item() for t in many])
        del many
        one = take(1500, 2.0)  # only fits once what PyTorch keeps is given back
        print("iteration", iteration_, "one of 1500 MiB:", one[0].item(), one[-1].item())
        del one
        try:
            take(4096, 3.0)
            print("iteration", iteration_, "4096 MiB: given")
        except torch.cuda.OutOfMemoryError:
            print("iteration", iteration_, "4096 MiB: torch.cuda.OutOfMemoryError")
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    print("retries:", "some" if retries > 0 else "none")
    print("kept:", kept.sum().item() == 64 * MIB / 4)


main()
