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
        if self.shape != source.shape:
            raise RuntimeError('The size of tensor a %s must match that of b %s' % (self.shape, source.shape))
        do('copy', lambda: self.values.__setitem__(slice(None), source.values))
        return self

    def record_stream(self, stream):
        self.streams.append(stream)

    # ---- operations: what they give has its contents when they run, at every replay anew ----

    def become(self, name, work, *operands):
        """work() of a value of each operand, at every place."""
        def run():
            lists = [o.values if isinstance(o, Tensor) else [o] for o in operands]
            n = max(len(values) for values in lists)
            self.values[:] = [work(*(v[i % len(v)] for v in lists)) for i in range(n)]
        do(name, run)
        return self

    def _new(self, name, work, *operands):
        sizes = [o.numel() for o in operands if isinstance(o, Tensor)]
        return Tensor([0] * max(sizes), self.dtype, self.device).become(name, work, *operands)

    def __add__(self, other):
        return self._new('add', lambda a, b: a + b, self, other)

    def __sub__(self, other):
        return self._new('sub', lambda a, b: a - b, self, other)

    def __mul__(self, other):
        return self._new('mul', lambda a, b: a * b, self, other)

    def add_(self, other):
        return self.become('add', lambda a, b: a + b, self, other)

    def zero_(self):
        return self.become('zero', lambda a: 0 * a, self)

    def mean(self):
        result = Tensor([0], self.dtype, self.device)
        do('mean', lambda: result.values.__setitem__(0, sum(self.values) / len(self.values)))
        return result

    def clone(self):
        return self._new('clone', lambda a: a, self)

    def detach(self):
        alias = Tensor((), self.dtype, self.device)
        alias.values = self.values
        return alias

    def cuda(self):
        if self.is_cuda:
            return self
        return Tensor([0] * self.numel(), self.dtype, 'cuda').copy_(self)

    def item(self):
        if State.capture is not None and State.current is State.capture_stream:
            State.invalid = True
            raise RuntimeError('operation not permitted when stream is capturing')
        return self.values[0]


class Parameter(Tensor):
    pass


class Generator:
    """Numbers 1, 2, 3; a graph that it is registered with draws on, and one that it is not draws the same again."""

    def __init__(self):
        self.drawn = 0

    def draw(self):
        tensor, registered = Tensor([0], device='cuda'), State.capture is None or self in State.capture.generators
        first = self.drawn + 1

        def work():
            self.drawn = self.drawn + 1 if registered else first
            tensor.values[0] = self.drawn
        do('draw', work)
        return tensor


def as_tensor(thing, device=None):
    return thing if isinstance(thing, Tensor) else Tensor(thing, device=device or 'cpu')


def tensor(values, device='cpu'):
    return Tensor(values, device=device)


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
    available, invalid, stuck, released, distributed = True, False, set(), [], False
    handles = 0


class Stream:
    cuda_stream = 0

    def __init__(self, name='side', device=None):
        self.name = name

    def wait_stream(self, other):
        LOG.append(('wait', self.name, other.name))


class on_stream: # nobody but its own end leaves the stream
    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        self.before, State.current = State.current, self.stream

    def __exit__(self, *error):
        State.current = self.before


class CUDAGraph:
    def __init__(self):
        self.work, self.captured_into, self.generators, self.debug = [], None, [], False
        self.captured = False

    def capture_begin(self, pool=None, capture_error_mode='global'):
        if self.captured:
            raise RuntimeError('This CUDAGraph instance already owns a captured graph')
        if State.current is MAIN:
            raise RuntimeError('CUDA graphs must be captured on a non-default stream')
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
        self.captured = True

    def replay(self):
        if not self.captured:
            raise RuntimeError('Called CUDAGraph::replay without a preceding successful capture')
        LOG.append(('replay', State.current.name))
        for work in self.work:
            work()

    def reset(self):
        LOG.append(('reset',))
        self.work, self.captured = [], False

    def pool(self):
        if not self.captured:
            raise RuntimeError('Called CUDAGraph::pool() without a preceding successful capture')
        return self.captured_into

    def register_generator_state(self, generator):
        self.generators.append(generator)

    def enable_debug_mode(self):
        self.debug = True

    def debug_dump(self, debug_path):
        if self.debug:
            LOG.append(('dump', debug_path))


class NewerGraph(CUDAGraph):
    def __init__(self, keep_graph=False):
        super().__init__()
        self.keep = keep_graph

    def debug_dump(self, debug_path): # says nothing and writes nothing of what it does not keep
        if self.keep:
            LOG.append(('dump', debug_path))
            with open(debug_path, 'w', encoding='utf-8') as file:
                file.write('digraph')

    def instantiate(self):
        if not self.keep:
            raise RuntimeError('instantiate() is intended to be called by the user only when keep_graph=true')
        LOG.append(('instantiate',))

    def raw_cuda_graph(self):
        if not self.keep:
            raise RuntimeError('You cannot access the raw cudaGraph_t instance unless keep_graph=true')
        return 1234


SIDE = [] # the stream for captures where none is given


@contextlib.contextmanager
def graph(cuda_graph, pool=None, stream=None, capture_error_mode='global'):
    if stream is None:
        SIDE[:] = SIDE or [Stream('captures')]
        stream = SIDE[0]
    entered = on_stream(stream)
    entered.__enter__()
    cuda_graph.capture_begin(*([] if pool is None else [pool]), capture_error_mode=capture_error_mode)
    try:
        yield
    finally:
        cuda_graph.capture_end() # when that fails PyTorch stays on the stream
        entered.__exit__(None, None, None)


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
    synchronize=lambda: LOG.append(('synchronize',)), default_generators=[Generator()],
    empty_cache=lambda: LOG.append(('empty_cache',)),
    memory=types.SimpleNamespace(CUDAPluggableAllocator=CUDAPluggableAllocator))


def install():
    torch = sys.modules['torch'] = types.ModuleType('torch')
    for name in ('Tensor', 'Generator', 'dtype', 'as_tensor', 'empty_like', 'tensor', 'float32', 'int64', 'cuda'):
        setattr(torch, name, globals()[name])
    sys.modules['torch.cuda'] = cuda
    torch.no_grad = contextlib.nullcontext
    torch._C = types.SimpleNamespace(_cuda_endAllocateToPool=end_allocate_to_pool,
                                     _cuda_releasePool=lambda device, pool: State.released.append(pool))
    torch.nn = types.SimpleNamespace(Parameter=Parameter)
    torch.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(
        set_override_stale_capture_stream=lambda on: LOG.append(('follow', on))))
    torch.distributed = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: State.distributed, barrier=lambda: LOG.append(('barrier',)))
    return torch
