# As much of PyTorch as the Python package asks for, on the host: streams are names, each operation is written down in
# LOG, and a capture keeps the operations for replays instead of doing them.

import contextlib
import sys
import types

LOG = []


class dtype:
    def __init__(self, name, size):
        self.name, self.size = name, size

    def __str__(self):
        return 'torch.' + self.name

    __repr__ = __str__


class Tensor:
    def __init__(self, values, kind=None, device='cpu', requires_grad=False):
        self.values, self.dtype, self.device, self.requires_grad = list(values), kind or float32, device, requires_grad
        self.streams = []

    shape = property(lambda self: (len(self.values),))
    is_cuda = property(lambda self: self.device != 'cpu')

    def numel(self):
        return len(self.values)

    def element_size(self):
        return self.dtype.size

    def data_ptr(self):
        return id(self)

    def copy_(self, source, non_blocking=False):
        do('copy', lambda: self.values.__setitem__(slice(None), source.values))

    def record_stream(self, stream):
        self.streams.append(stream)


class Parameter(Tensor):
    pass


def as_tensor(thing, device=None):
    return thing if isinstance(thing, Tensor) else Tensor(thing, device=device or 'cpu')


def empty_like(tensor, device=None):
    return Tensor([0] * tensor.numel(), tensor.dtype, device)


def do(name, work):
    """An operation on the current stream."""
    LOG.append((name, State.current.name))
    if State.capture is not None and State.current is State.capture_stream:
        State.capture.work.append(work)
    else:
        work()


class State:
    current = capture = capture_stream = None
    available, invalid, stuck, released = True, False, set(), []
    handles = 0


class Stream:
    cuda_stream = 0

    def __init__(self, name='side', device=None):
        self.name = name

    def wait_stream(self, other):
        LOG.append(('wait', self.name, other.name))


@contextlib.contextmanager
def on_stream(stream):
    before, State.current = State.current, stream
    try:
        yield
    finally:
        State.current = before


class CUDAGraph:
    def __init__(self):
        self.work, self.captured_into, self.generators, self.debug = [], None, [], False

    def capture_begin(self, pool=None, capture_error_mode='global'):
        if State.current is MAIN:
            raise RuntimeError('a default stream')
        LOG.append(('begin', pool, capture_error_mode))
        self.captured_into = pool or graph_pool_handle()
        State.capture, State.capture_stream = self, State.current

    def capture_end(self):
        LOG.append(('end',))
        State.capture = None
        if State.invalid: # as versions do that forget the allocator and the generator then
            State.invalid, State.stuck = False, {'generator', self.captured_into}
            raise RuntimeError('operation failed due to a previous error during capture')
        State.stuck.discard('generator')

    def replay(self):
        LOG.append(('replay', State.current.name))
        for work in self.work:
            work()

    def reset(self):
        LOG.append(('reset',))
        self.work = []

    def pool(self):
        return self.captured_into

    def register_generator_state(self, generator):
        self.generators.append(generator)

    def enable_debug_mode(self):
        self.debug = True

    def debug_dump(self, path):
        if self.debug:
            LOG.append(('dump', path))


class NewerGraph(CUDAGraph):
    def __init__(self, keep_graph=False):
        super().__init__()
        self.keep = keep_graph

    def debug_dump(self, path): # says nothing and writes nothing of what it does not keep
        if self.keep:
            LOG.append(('dump', path))

    def instantiate(self):
        LOG.append(('instantiate',))

    def raw_cuda_graph(self):
        return 1234


@contextlib.contextmanager
def graph(cuda_graph, pool=None, stream=None, capture_error_mode='global'):
    with on_stream(stream):
        cuda_graph.capture_begin(*([] if pool is None else [pool]), capture_error_mode=capture_error_mode)
        try:
            yield
        finally:
            cuda_graph.capture_end()


def end_allocate_to_pool(device, pool):
    if pool not in State.stuck:
        raise RuntimeError('not currently recording to mempool_id')
    State.stuck.remove(pool)


def graph_pool_handle():
    State.handles += 1
    return (0, State.handles)


class CUDAPluggableAllocator:
    def __init__(self, *names):
        self.names = names

    def allocator(self):
        return self.names


class MemPool:
    def __init__(self, allocator):
        self.names, self.id = allocator, (1, 0)


MAIN = State.current = Stream('main')
float32, int64 = dtype('float32', 4), dtype('int64', 8)

cuda = types.SimpleNamespace(
    Stream=Stream, stream=on_stream, current_stream=lambda device=None: State.current,
    default_stream=lambda device=None: MAIN, graph=graph,
    CUDAGraph=CUDAGraph, graph_pool_handle=graph_pool_handle, MemPool=MemPool, current_device=lambda: 0,
    device=lambda number: contextlib.nullcontext(), is_available=lambda: State.available,
    is_current_stream_capturing=lambda: State.capture is not None and State.current is State.capture_stream,
    empty_cache=lambda: LOG.append(('empty_cache',)),
    memory=types.SimpleNamespace(CUDAPluggableAllocator=CUDAPluggableAllocator))


def install():
    torch = sys.modules['torch'] = types.ModuleType('torch')
    for name in ('Tensor', 'dtype', 'as_tensor', 'empty_like', 'float32', 'int64', 'cuda'):
        setattr(torch, name, globals()[name])
    torch.no_grad = contextlib.nullcontext
    torch._C = types.SimpleNamespace(_cuda_endAllocateToPool=end_allocate_to_pool,
                                     _cuda_releasePool=lambda device, pool: State.released.append(pool))
    torch.nn = types.SimpleNamespace(Parameter=Parameter)
    return torch
