"""PyTorch with CUDA graphs: torch.cuda.graph, make_graphed_callables, or torch.compile(mode="reduce-overhead").

usage: torch_graphs.py graphs | compile
Prints every loss with all its digits; a second thread allocates and frees meanwhile.
"""
import os
import sys
import tempfile
import threading

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())
try:
    import torch
except ImportError:
    sys.exit(77)


def model():
    """A net with products, norms and reductions, always with the same weights."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.LayerNorm(512),
        torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 16)).cuda()


def batches(n, rows=128):
    """The same data in every run."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(n):
        x = torch.randn(rows, 256, generator=generator).cuda()
        yield x, x[:, :16].sin()


def loss_of(net, x, y):
    return torch.nn.functional.mse_loss(net(x), y)


class Neighbour(threading.Thread):
    """Takes memory, computes and copies back on a stream of its own until told to stop."""

    def __init__(self):
        super().__init__()
        self.began, self.stop = threading.Event(), threading.Event()
        self.wrong = self.iterations = 0

    def run(self):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            while not self.stop.is_set():
                value = self.iterations % 100
                t = torch.full(((1 + value) << 16,), value, device="cuda", dtype=torch.int32)
                stream.synchronize()
                self.wrong += int((t.cpu() != value).sum())
                self.iterations += 1
                self.began.set()


def whole_step():
    """A training step captured as one graph and replayed."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)
    data = list(batches(30))
    x, y = (t.clone() for t in data[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            loss_of(net, x, y).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = loss_of(net, x, y)
        loss.backward()
        optimizer.step()
    for step, (new_x, new_y) in enumerate(data):
        x.copy_(new_x)
        y.copy_(new_y)
        graph.replay()
        print("whole step", step, loss.item().hex())
    return net


def captured_beside(mode):
    """Captures while another thread works, where the mode allows it."""
    neighbour = Neighbour()
    neighbour.start()
    neighbour.began.wait()
    net, (x, _) = model(), next(iter(batches(1)))
    with torch.no_grad():
        net(x)
        torch.cuda.synchronize()
        for iteration_ in range(5):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode=mode):
                out = x
                for _ in range(10):
                    out = net(out).repeat(1, 16)
            graph.replay()
            torch.cuda.current_stream().synchronize()
            print("beside another thread", mode, iteration_, out.double().sum().item().hex())
    neighbour.stop.set()
    neighbour.join()
    print("the other thread:", neighbour.wrong, "wrong")


def graphed_callables():
    """Forward and backward as graphs inside an eager loop."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    sample = torch.randn(128, 256, generator=torch.Generator().manual_seed(3)).cuda()
    graphed = torch.cuda.make_graphed_callables(net, (sample,))
    for step, (x, y) in enumerate(batches(30)):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(graphed, x, y)
        loss.backward()
        optimizer.step()
        print("graphed callables", step, loss.item().hex())


def compiled():
    """Inductor's CUDA graph trees: two shapes, training and inference."""
    net = model()
    fast = torch.compile(net, mode="reduce-overhead")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for rows in (128, 64, 128):
        for step, (x, y) in enumerate(batches(8, rows)):
            torch.compiler.cudagraph_mark_step_begin()
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(fast, x, y)
            loss.backward()
            optimizer.step()
            print("compiled", rows, step, loss.item().hex())
    with torch.no_grad():
        for step, (x, _) in enumerate(batches(8)):
            print("inference", step, fast(x).double().sum().item().hex())


def main():
    torch.use_deterministic_algorithms(True)
    if sys.argv[1] == "compile":
        compiled()
        return
    whole_step()
    graphed_callables()
    captured_beside("thread_local")
    captured_beside("relaxed")
    torch.cuda.synchronize()
    print("kept", torch.cuda.memory_allocated() > 0)


main()
