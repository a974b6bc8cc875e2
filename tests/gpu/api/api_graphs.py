"""allograft.Graph beside torch.cuda.CUDAGraph: the same bytes, the same rules, the same time of a replay."""
import ctypes
import os
import tempfile

from api_common import Gpt, allograft, expect, in_turn, prepare, refused, torch

NEAR = 1.03


def by_torch(body):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = body()
    return graph, result


def by_allograft(body):
    graph = allograft.Graph()
    with graph.capture():
        result = body()
    return graph, result


def warm_up(body):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(side)


def inference():
    """Replays of a GPT-2-like net: equal logits. The medians in ms."""
    torch.manual_seed(0)
    net = Gpt().cuda().eval()
    text = torch.randint(0, net.words, (1, net.length), device="cuda")
    graphs = []
    with torch.no_grad():
        warm_up(lambda: net(text))
        for way in (by_torch, by_allograft):
            graphs.append(way(lambda: net(text)))
        for i in range(10):
            text.copy_(torch.randint(0, net.words, (1, net.length), device="cuda"))
            for graph, _ in graphs:
                graph.replay()
            expect(torch.equal(graphs[0][1], graphs[1][1]) and torch.equal(graphs[0][1], net(text)), f"logits {i}")
    return in_turn(graphs[0][0].replay, graphs[1][0].replay, 100)


class Training:
    """A step of an MLP with dropout, captured."""

    def __init__(self, way):
        torch.manual_seed(0)
        self.x = torch.randn(64, 256, device="cuda")
        self.net = torch.nn.Sequential(
            torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(512, 512),
            torch.nn.GELU(), torch.nn.Linear(512, 10)).cuda()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3, capturable=True)
        warm_up(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph, self.loss = way(self.step)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(self.net(self.x), self.x[:, :10].sin())
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def losses(self, n):
        torch.manual_seed(5)
        data, losses = torch.randn(n, 64, 256).cuda(), []
        torch.manual_seed(6) # of the dropout
        for x in data:
            self.x.copy_(x)
            self.graph.replay()
            losses.append(self.loss.item())
        return losses


def training():
    theirs, ours = Training(by_torch), Training(by_allograft)
    expect(theirs.losses(40) == ours.losses(40), "losses of an MLP")
    return in_turn(theirs.graph.replay, ours.graph.replay, 200)


def random_numbers():
    graph, x = by_allograft(lambda: torch.rand(1000, device="cuda"))
    graph.replay()
    first = x.clone()
    graph.replay()
    expect(not torch.equal(first, x), "random numbers go on")
    torch.manual_seed(9)
    graph.replay()
    torch.cuda.synchronize()
    drawn = x.clone()
    torch.manual_seed(9)
    expect(torch.equal(drawn, torch.rand(1000, device="cuda")), "random numbers are those of eager work")


def rules():
    x = torch.zeros(1 << 20, device="cuda")
    graph = allograft.Graph()
    refused(RuntimeError, graph.replay)
    refused(RuntimeError, graph.capture_begin)  # the default stream
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(pool=allograft.graph_pool_handle())
        y = x + 1
        graph.capture_end()
    other = allograft.Graph()
    with other.capture(pool=graph):
        z = y * 2
    expect(other.pool() == graph.pool(), "one pool")
    graph.replay()
    other.replay()
    expect(bool((z == 2).all()), "two graphs of one pool")
    refused(allograft.WrongState, lambda: graph.capture_begin())
    for i in range(3):
        graph.reset()
        with graph.capture(pool=allograft.shared_graph_pool()):
            y = x + i
        graph.replay()
        expect(bool((y == i).all()), "captured again")
    try:
        with allograft.graph(allograft.Graph()):
            x.sum().item()
        expect(False, "item() in a capture")
    except RuntimeError:
        torch.cuda.synchronize()
    expect(bool((x + 1 == 1).all()) and bool((torch.rand(9, device="cuda") < 1).all()), "PyTorch works on")
    torch.cuda.empty_cache()
    debugged = allograft.Graph()
    debugged.enable_debug_mode()
    with debugged.capture():
        y = x + 1
    path = os.path.join(tempfile.mkdtemp(), "graph.dot")
    debugged.debug_dump(path)
    expect(os.path.getsize(path) > 0, "a DOT file")


def native():
    """The library captures: tensors that are there before, raw handles, memory from the driver in the capture."""
    x, y = torch.ones(1024, device="cuda"), torch.zeros(1024, device="cuda")
    graph, stream = allograft.Graph(keep_graph=True, native=True), torch.cuda.Stream()
    cuda, block, launched = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), allograft.is_preloaded()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), graph.capture(stream=stream):
        torch.mul(x, 3, out=y)
        if launched:
            expect(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(4096)) == 0, "memory in a capture")
            for target, source in ((block.value, y.data_ptr()), (x.data_ptr(), block.value)):
                expect(cuda.cuMemcpyDtoDAsync_v2(ctypes.c_uint64(target), ctypes.c_uint64(source),
                                                 ctypes.c_size_t(4096), ctypes.c_void_p(stream.cuda_stream)) == 0,
                       "a copy in a capture")
            expect(cuda.cuMemFree_v2(block) == 0, "a free in a capture")
    expect(graph.raw_cuda_graph() != 0, "a raw graph")
    graph.instantiate()
    for i in range(1, 4):
        graph.replay()
        torch.cuda.synchronize()
        expect(bool((y == (3**i if launched else 3)).all()), f"native replay {i}: {y[0].item()}")
    graph.reset()


def main():
    prepare()
    rules()
    random_numbers()
    native()
    figures = []
    for name, (theirs, ours) in (("gpt2 inference", inference()), ("mlp step", training())):
        figures.append(f"{name} {1000 * ours:.1f} us, torch {1000 * theirs:.1f}")
        expect(ours <= NEAR * theirs, figures[-1])
    print("; ".join(figures))


main()
