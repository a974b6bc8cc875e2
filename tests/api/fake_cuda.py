# As much of PyTorch as scripts with managed memory and transfers use, over the driver by ctypes: tensors have memory of
# the device or of the host, streams and events are the driver's, and pools allocate by their allocator. Beside
# fake_torch.py, which writes down what is asked of it and has no device.

import contextlib
import ctypes
import mmap
import sys
import threading
import types
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p

import python_device as driver

thread = threading.local()


def need(name, *args):
    """A call of the driver, in the device's context."""
    if not getattr(thread, 'entered', False):
        driver.open_device()
        thread.entered = True
    driver.need(name, *args)


class dtype:
    def __init__(self, name, size, code):
        self.name, self.size, self.code = name, size, code

    def __repr__(self):
        return 'torch.' + self.name


float32, int32, uint8 = dtype('float32', 4, 'f'), dtype('int32', 4, 'i'), dtype('uint8', 1, 'B')


class device:
    def __init__(self, name):
        self.type, _, index = str(name).partition(':')
        self.index = int(index) if index else None

    def __repr__(self):
        return self.type if self.index is None else '%s:%d' % (self.type, self.index)

    def __eq__(self, other):
        return repr(self) == repr(other)


# ---- memory ----

SEGMENT = 2 << 20


class Blocks:
    """A caching allocator: blocks out of segments, which go back to where they came from when nothing is in them and
    nobody keeps them."""

    def __init__(self, allocate, free):
        self.allocate, self.free, self.segments, self.is_kept = allocate, free, [], True

    def take(self, n):
        n = -(-max(n, 1) // 512) * 512
        for segment in self.segments:
            if segment['used'] + n <= segment['size']:
                break
        else:
            size = -(-n // SEGMENT) * SEGMENT
            segment = {'size': size, 'used': 0, 'blocks': 0, 'address': self.allocate(size)}
            self.segments.append(segment)
        address = segment['address'] + segment['used']
        segment['used'] += n
        segment['blocks'] += 1
        return address, segment

    def give(self, segment):
        segment['blocks'] -= 1
        self.trim()

    def trim(self):
        if not self.is_kept:
            for segment in [s for s in self.segments if not s['blocks']]:
                self.segments.remove(segment)
                self.free(segment['address'], segment['size'])


def allocate_device(n):
    address = c_uint64()
    need('cuMemAlloc_v2', byref(address), c_size_t(n))
    return address.value


DEVICE = Blocks(allocate_device, lambda address, n: need('cuMemFree_v2', c_uint64(address)))


class CUDAPluggableAllocator:
    def __init__(self, path, allocate, free):
        library = ctypes.CDLL(path)
        self._allocate, self._free = getattr(library, allocate), getattr(library, free)
        self._allocate.restype = c_void_p
        self._allocate.argtypes = [ctypes.c_ssize_t, c_int, c_void_p]
        self._free.argtypes = [c_void_p, ctypes.c_ssize_t, c_int, c_void_p]
        self._free.restype = None

    def allocator(self):
        return self


class MemPool:
    made = 0

    def __init__(self, allocator=None, use_on_oom=False):
        MemPool.made += 1
        self.id = (0, MemPool.made)

        def allocate(n):
            address = allocator._allocate(n, 0, current_stream().cuda_stream)
            if not address:
                raise MemoryError('CUDA out of memory')
            return address

        self.blocks = Blocks(allocate, lambda address, n: allocator._free(address, n, 0, 0))

    def __del__(self):
        self.blocks.is_kept = False
        self.blocks.trim()


@contextlib.contextmanager
def use_mem_pool(pool, device=None):
    before, thread.blocks = getattr(thread, 'blocks', None), pool.blocks
    try:
        yield
    finally:
        thread.blocks = before


class Storage:
    """Memory that tensors share; gone with the last of them."""

    def __init__(self, n, where):
        self.where = where
        if where.type == 'cuda':
            self.blocks = getattr(thread, 'blocks', None) or DEVICE
            self.address, self.segment = self.blocks.take(n)
        else:
            self.map = mmap.mmap(-1, -(-max(n, 1) // 4096) * 4096)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def __del__(self):
        if self.where.type == 'cuda' and not sys.is_finalizing():
            self.blocks.give(self.segment)


class Tensor:
    requires_grad = False

    def __init__(self, shape, kind=float32, where='cpu', storage=None, offset=0):
        self.shape, self.dtype = (shape,) if isinstance(shape, int) else tuple(shape), kind
        self.device = where if isinstance(where, device) else device(where)
        self.offset = offset
        self.storage = storage or Storage(self.nbytes, self.device)

    is_cuda = property(lambda self: self.device.type == 'cuda')
    nbytes = property(lambda self: self.numel() * self.dtype.size)
    data = property(lambda self: Tensor(self.shape, self.dtype, self.device, self.storage, self.offset))

    def numel(self):
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    def element_size(self):
        return self.dtype.size

    def data_ptr(self):
        return self.storage.address + self.offset if self.numel() else 0

    def is_contiguous(self):
        return True

    def share_memory_(self):
        return self

    def __getitem__(self, row):
        n = self.nbytes // self.shape[0]
        return Tensor(self.shape[1:], self.dtype, self.device, self.storage, self.offset + n * row)

    def copy_(self, source, non_blocking=False):
        if self.shape != source.shape:
            raise RuntimeError('The size of tensor a must match the size of tensor b')
        if self.dtype is not source.dtype:  # which takes another kernel
            source = full(source.shape, source.unique()[0], self.dtype, source.device)
        if self.is_cuda or source.is_cuda:
            stream = current_stream()
            need('cuMemcpyAsync', c_uint64(self.data_ptr()), c_uint64(source.data_ptr()), c_size_t(self.nbytes),
                 c_void_p(stream.cuda_stream))
            if not non_blocking:
                stream.synchronize()
        else:
            ctypes.memmove(self.data_ptr(), source.data_ptr(), self.nbytes)
        return self

    def fill_(self, value):
        kind = {'f': c_float, 'i': c_int, 'B': ctypes.c_ubyte}[self.dtype.code]
        host = bytes(kind(int(value) if kind is not c_float else value)) * self.numel()
        if self.is_cuda:
            need('cuMemcpyHtoDAsync_v2', c_uint64(self.data_ptr()), host, c_size_t(self.nbytes),
                 c_void_p(current_stream().cuda_stream))
            current_stream().synchronize()
        else:
            ctypes.memmove(self.data_ptr(), host, self.nbytes)
        return self

    def cpu(self):
        return self if not self.is_cuda else Tensor(self.shape, self.dtype).copy_(self)

    def unique(self):
        host = self.cpu()
        words = set(memoryview(ctypes.string_at(host.data_ptr(), host.nbytes)).cast(self.dtype.code))
        return sorted(words)


def empty(shape, dtype=float32, device='cpu'):
    return Tensor(shape, dtype, device)


def full(shape, value, dtype=float32, device='cpu'):
    return Tensor(shape, dtype, device).fill_(value)


# ---- modules ----

class Parameter(Tensor):
    def __init__(self, tensor):
        super().__init__(tensor.shape, tensor.dtype, tensor.device, tensor.storage, tensor.offset)


class Module:
    def __init__(self):
        self._parameters, self._buffers, self._modules = {}, {}, {}

    def register_buffer(self, name, tensor):
        self._buffers[name] = tensor
        self.__dict__[name] = tensor

    def __setattr__(self, name, value):
        if isinstance(value, Parameter):
            self._parameters[name] = value
        elif isinstance(value, Module):
            self._modules[name] = value
        super().__setattr__(name, value)

    def _named(self, kind, prefix=''):
        for name, tensor in getattr(self, kind).items():
            yield prefix + name, tensor
        for name, module in self._modules.items():
            yield from module._named(kind, prefix + name + '.')

    def named_parameters(self, recurse=True):
        seen = set()
        for name, tensor in self._named('_parameters'):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def named_buffers(self, recurse=True):
        return self._named('_buffers')

    def parameters(self):
        return (tensor for _, tensor in self.named_parameters())

    def buffers(self):
        return (tensor for _, tensor in self.named_buffers())


# ---- streams ----

class ExternalStream:
    def __init__(self, handle, device=None):
        self.cuda_stream = handle

    def __eq__(self, other):
        return self.cuda_stream == other.cuda_stream

    def synchronize(self):
        need('cuStreamSynchronize', c_void_p(self.cuda_stream))

    def wait_event(self, event):
        need('cuStreamWaitEvent', c_void_p(self.cuda_stream), event.handle, 0)

    def wait_stream(self, other):
        self.wait_event(Event().record(other))


class Stream(ExternalStream):
    def __init__(self, device=None):
        handle = c_void_p()
        need('cuStreamCreate', byref(handle), 1)
        super().__init__(handle.value)


class Event:
    def __init__(self, enable_timing=False):
        self.handle, self.enable_timing = c_void_p(), enable_timing
        need('cuEventCreate', byref(self.handle), 0 if enable_timing else 2)

    def record(self, stream=None):
        need('cuEventRecord', self.handle, c_void_p((stream or current_stream()).cuda_stream))
        return self

    def synchronize(self):
        need('cuEventSynchronize', self.handle)

    def elapsed_time(self, end):
        ms = c_float()
        need('cuEventElapsedTime', byref(ms), self.handle, end.handle)
        return ms.value


DEFAULT = ExternalStream(0)


def current_stream(device=None):
    return getattr(thread, 'stream', DEFAULT)


@contextlib.contextmanager
def on_stream(stream):
    before, thread.stream = current_stream(), stream
    try:
        yield
    finally:
        thread.stream = before


def is_capturing():
    status = c_int()
    need('cuStreamIsCapturing', c_void_p(current_stream().cuda_stream), byref(status))
    return status.value != 0


def install():
    torch = sys.modules['torch'] = types.ModuleType('torch')
    torch.__version__ = '2.11.0'
    for name in ('Tensor', 'dtype', 'device', 'float32', 'int32', 'uint8', 'empty', 'full'):
        setattr(torch, name, globals()[name])
    memory = types.SimpleNamespace(CUDAPluggableAllocator=CUDAPluggableAllocator, MemPool=MemPool)
    torch.cuda = types.SimpleNamespace(
        Stream=Stream, ExternalStream=ExternalStream, Event=Event, MemPool=MemPool, memory=memory, stream=on_stream,
        current_stream=current_stream, default_stream=lambda device=None: DEFAULT, current_device=lambda: 0,
        device=lambda number: contextlib.nullcontext(), is_available=lambda: True, use_mem_pool=use_mem_pool,
        is_current_stream_capturing=is_capturing, synchronize=lambda device=None: need('cuCtxSynchronize'))
    torch.nn = types.SimpleNamespace(Module=Module, Parameter=Parameter)
    torch.version = types.SimpleNamespace(cuda='13.0', hip=None)
    return torch
