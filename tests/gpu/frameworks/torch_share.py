"""PyTorch: CUDA tensors between processes by torch.multiprocessing, there and back, every sum exact.

usage: torch_share.py [DEVICE_OF_THE_OTHER]
"""
import sys

try:
    import torch
    import torch.multiprocessing as mp
except ImportError:
    sys.exit(77)


def work(device, todo, done):
    """Takes tensors of the other process, changes them where they lie, and sends new ones back."""
    torch.cuda.set_device(device)
    while True:
        item = todo.get()
        if item is None:
            break
        step, tensors = item
        sums = [t.double().sum().item() for t in tensors]
        for i, t in enumerate(tensors):
            t.mul_(2).add_(i + step)
        torch.cuda.synchronize()
        answer = [torch.full((1000 + step,), float(i + step), device=f"cuda:{device}") for i in range(2)]
        torch.cuda.synchronize()
        done.put((step, sums, answer))
        del tensors, item, t
        todo.task_done()
        done.join()  # the answers must live until they have been looked at
        del answer
    done.put(None)


def hex_of(tensor):
    return tensor.double().sum().item().hex()


def main():
    device = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    if not torch.cuda.is_available() or torch.cuda.device_count() <= device:
        sys.exit(77)
    context = mp.get_context("spawn")
    todo, done = context.JoinableQueue(), context.JoinableQueue()
    other = context.Process(target=work, args=(device, todo, done))
    other.start()
    generator = torch.Generator().manual_seed(7)
    for step in range(12):
        # Many pieces of one segment of PyTorch's allocator, and some large ones.
        sizes = [3, 1000, 4096 + step, 1 << 20, (1 << 22) + step]
        tensors = [torch.randn(n, generator=generator).cuda() for n in sizes]
        views = tensors + [tensors[3][1000:2000]]
        torch.cuda.synchronize()
        todo.put((step, views))
        there, sums, answer = done.get()
        todo.join()
        print(step, there == step, [s.hex() for s in sums])
        print(step, [hex_of(t) for t in tensors], [hex_of(a.to("cuda:0")) for a in answer])
        del answer
        done.task_done()
        del tensors, views
    todo.put(None)
    print("end", done.get())
    done.task_done()
    other.join()
    print("exit", other.exitcode)


if __name__ == "__main__":
    main()
