"""PyTorch on two GPUs: NCCL collectives and DDP with two processes, or everything in one process.

usage: torch_nccl.py processes | graph | single
The first process is rank 0 and prints; the second one is started by it.
"""
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # no multicast between GPUs that others use too
try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(77)


def say(rank, *words):
    if rank == 0:
        print(*words, flush=True)


def net():
    """Always the same weights."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.GELU(),
        torch.nn.Linear(1024, 16)).cuda()


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(64 + 16 * (step % 3), 256, generator=generator).cuda()
    return x, x[:, :16].sin()


def sum_of(t):
    return t.double().sum().item().hex()


def collectives(rank):
    """Sizes from what fits in one packet to what is split; the buffers are freed at once."""
    for size in (1, 1000, 1 << 16, (1 << 22) + 3):
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            base = (torch.arange(size, device="cuda") % 97 + rank).to(dtype)
            total = base.clone()
            dist.all_reduce(total)
            both = [torch.empty_like(base) for _ in range(2)]
            dist.all_gather(both, base)
            given = base.clone()
            dist.broadcast(given, 1)
            one = torch.empty_like(base)
            if rank == 0:
                dist.send(base, 1)
                dist.recv(one, 1)
            else:
                dist.recv(one, 0)
                dist.send(base, 0)
            say(rank, size, dtype, sum_of(total), sum_of(both[1]), sum_of(given), sum_of(one))
            del base, total, both, given, one
    half = torch.empty(1 << 20, device="cuda")
    dist.reduce_scatter_tensor(half, torch.ones(1 << 21, device="cuda") * (rank + 1))
    say(rank, "reduce scatter", sum_of(half))


def trained(rank):
    model = torch.nn.parallel.DistributedDataParallel(net(), device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(30):
        x, y = batch(step, rank)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        say(rank, "loss", step, loss.item().hex())
    say(rank, "weights", *(sum_of(p.detach()) for p in model.parameters()))


def graph_with_collective(rank):
    """An all-reduce inside a CUDA graph, while NCCL's watchdog thread asks for its events."""
    t = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(t)
    torch.cuda.synchronize()
    for mode in ("thread_local", "relaxed"):
        graph = torch.cuda.CUDAGraph()
        t.fill_(1)
        with torch.cuda.graph(graph, capture_error_mode=mode):
            u = t * 2
            dist.all_reduce(u)
            v = u + 1
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        say(rank, "graph", mode, sum_of(v))


def one_process():
    """DataParallel and copies between the two GPUs."""
    model = torch.nn.DataParallel(net(), device_ids=[0, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(20):
        x, y = batch(step, 0)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print("loss", step, loss.item().hex())
    for step in range(20):
        there = torch.full((1 << (10 + step % 12),), step, device="cuda:0").to("cuda:1")
        back = (there + 1).to("cuda:0")
        print("copied", step, there.sum().item(), back.sum().item())


def main():
    mode, rank, store = sys.argv[1], int((sys.argv + ["0"] * 2)[2]), (sys.argv + [""] * 3)[3]
    if torch.cuda.device_count() < 2:
        sys.exit(77)
    torch.use_deterministic_algorithms(True)
    if mode == "single":
        one_process()
        return
    other = None
    if not store:
        store = tempfile.mktemp()
        other = subprocess.Popen([sys.executable, __file__, mode, "1", store])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=2)
    collectives(rank)
    if mode == "graph":
        graph_with_collective(rank)
    else:
        trained(rank)
    dist.barrier()
    dist.destroy_process_group()
    if other:
        print("the other process ended with", other.wait(60))


main()
