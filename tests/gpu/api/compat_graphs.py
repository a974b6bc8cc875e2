"""allograft.compat.cuda_graph with PyTorch: a node that is added to the raw graph runs after the next instantiate(),
natively too; a capture that fails leaves everything where it was; the same time of a replay as torch.cuda.CUDAGraph."""
import ctypes

from api_common import allograft, expect, in_turn, prepare, refused, torch

from allograft.compat.cuda_graph import CUDAGraph, graph

NEAR = 1.03
cuda = ctypes.CDLL("libcuda.so.1")


class MemsetNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS"""

    _fields_ = [("dst", ctypes.c_uint64), ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint),
                ("elementSize", ctypes.c_uint), ("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]


def add_fill(raw, tensor, value):
    """A node that sets the bytes of a tensor, after nothing."""
    node, context = ctypes.c_void_p(), ctypes.c_void_p()
    expect(cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0, "a context")
    fill = MemsetNode(tensor.data_ptr(), 0, value, 1, tensor.numel(), 1)
    code = cuda.cuGraphAddMemsetNode(ctypes.byref(node), ctypes.c_void_p(raw), None, ctypes.c_size_t(0),
                                     ctypes.byref(fill), context)
    expect(code == 0, f"a node is added: {code}")


def added(make, begin):
    """Of a graph that keeps what it captured."""
    x, beside = torch.zeros(64, device="cuda"), torch.zeros(64, dtype=torch.uint8, device="cuda")
    made, stream = make(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        begin(made)
        x.add_(1)
        made.capture_end()
    made.instantiate()
    add_fill(made.raw_cuda_graph(), beside, 7)
    for i in range(1, 5):
        if i == 3:
            made.instantiate()
        made.replay()
        torch.cuda.synchronize()
        expect(bool((x == i).all()) and bool((beside == (7 if i >= 3 else 0)).all()), f"replay {i}")
    made.reset()
    refused(RuntimeError, made.replay)


def failures():
    before, x = torch.cuda.current_stream(), torch.ones(16, device="cuda")
    made = CUDAGraph()
    for _ in range(3):
        try:
            with graph(made):
                x.sum().item()
            expect(False, "item() in a capture")
        except RuntimeError:
            torch.cuda.synchronize()
        expect(torch.cuda.current_stream() == before, "the stream is the one before")
    with graph(made):
        y = x + 1
    made.replay()
    expect(bool((y == 2).all()) and bool((torch.rand(9, device="cuda") < 1).all()), "PyTorch works on")
    refused(RuntimeError, lambda: allograft.Graph(native=True).capture_begin())  # the default stream


def replays():
    x, graphs = torch.zeros(1024, device="cuda"), []
    for make, context in ((torch.cuda.CUDAGraph, torch.cuda.graph), (CUDAGraph, graph)):
        made = make()
        with context(made):
            for _ in range(50):
                x.add_(1)
        graphs.append(made)
    return in_turn(graphs[0].replay, graphs[1].replay, 500)


def main():
    prepare()
    added(lambda: CUDAGraph(keep_graph=True), lambda made: made.capture_begin())
    added(lambda: allograft.Graph(keep_graph=True, native=True), lambda made: made.capture_begin())
    failures()
    theirs, ours = replays()
    text = f"50 kernels {1000 * ours:.1f} us, torch {1000 * theirs:.1f}"
    expect(ours <= NEAR * theirs, text)
    print(text)


main()
