"""Managed memory: memory that lies on the host or on a device and moves, at addresses that never change.

So that moving it does no harm to graphs that were recorded with it. All functions here are refused while the
current stream is being captured (Capturing).
"""
from __future__ import annotations

import importlib
import os
import threading
from ctypes import byref, c_size_t, c_void_p
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _library
from ._interop import Extent, device_number, extent_of, refuse_in_capture, stream_handle
from ._library import INVALID, OK, UNSUPPORTED, Range, Unsupported, error, library


class Support(NamedTuple):
    """Whether something works here; when not, `reason` says why. True or False as a condition is `supported`."""

    supported: bool
    reason: str

    def __bool__(self) -> bool:
        return self.supported


def managed_support(device: Any = None) -> Support:
    """Can the device have managed memory that host and device use at once? Never raises."""
    found = _library.find()
    if found is None:
        return Support(False, _library._why_not)
    status = found.status("managed_support", device_number(device))
    return Support(status == OK, "" if status == OK else found.last_error())


def managed_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """The address of `size` bytes of managed memory that prefers to lie on the device. Blocks of 2 MiB and more are
    brought there in the order of `stream`. The caller's, who gives it back by managed_free() or cudaFree."""
    if size < 0:  # as a size_t it would be more than there is of memory
        raise error(INVALID, "managed_alloc: size %d: 0 or more" % size)
    refuse_in_capture("managed_alloc")
    number, address = device_number(device), c_void_p()
    _library.call("managed_alloc", byref(address), size, number, stream_handle(stream, number))
    return address.value or 0


def managed_free(address: int, size: int, device: Any = None, stream: Any = None) -> None:
    """Gives managed_alloc()'s memory back; arguments as they were given for it. Waits for the device."""
    number = device_number(device)
    _library.call("managed_free", address, size, number, stream_handle(stream, number))


# ---- PyTorch's memory pools ----

_pools: dict[int, Any] = {}
_allocator: Any = None  # outlives every pool
_pools_lock = threading.Lock()


def _expandable_segments() -> bool:
    settings = ",".join(os.environ.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    return "expandable_segments:true" in settings.lower().replace(" ", "")


def _pool_class(torch: Any) -> Any:
    """torch.cuda.MemPool, wherever the version has it; None where it has none."""
    memory = getattr(torch.cuda, "memory", None)
    return getattr(torch.cuda, "MemPool", None) or getattr(memory, "MemPool", None)


def torch_allocator() -> Any:
    """The allocator of managed memory as torch.cuda.MemPool takes it: one for the process."""
    global _allocator
    torch: Any = importlib.import_module("torch")
    kind = getattr(getattr(torch.cuda, "memory", None), "CUDAPluggableAllocator", None)
    if kind is None or _pool_class(torch) is None:
        raise Unsupported(UNSUPPORTED, "PyTorch %s has no torch.cuda.MemPool: 2.6 or newer is needed"
                          % getattr(torch, "__version__", "of this version"))
    with _pools_lock:
        if _allocator is None:
            _allocator = kind(library().path, "allograft_torch_alloc", "allograft_torch_free")
        return _allocator.allocator()


def _new_pool(number: int) -> Any:
    torch: Any = importlib.import_module("torch")
    allocator = torch_allocator()
    with torch.cuda.device(number):
        return _pool_class(torch)(allocator)


def unified_mempool(device: Any = None, *, new: bool = False) -> Any:
    """A torch.cuda.MemPool whose memory is managed: one for each device, the same at every call.

        with torch.cuda.use_mem_pool(allograft.unified_mempool()):
            model = Model().cuda()

    `new`: another one at every call, the caller's: PyTorch gives its memory back when the pool has been dropped and
    the tensors in it are gone.

    Imports torch (2.6 or newer). Unsupported, with the reason, where the device cannot have managed memory, where
    PyTorch has no MemPool, or where its allocator works with expandable segments, which go with none."""
    importlib.import_module("torch")
    refuse_in_capture("unified_mempool")
    if _expandable_segments():
        raise Unsupported(UNSUPPORTED, "expandable_segments:True goes with no torch.cuda.MemPool")
    number = device_number(device)
    support = managed_support(number)
    if not support:
        raise Unsupported(UNSUPPORTED, support.reason)
    pool = None if new else _pools.get(number)
    if pool is None:
        pool = _new_pool(number)
    if new:
        return pool
    with _pools_lock:
        return _pools.setdefault(number, pool)


# ---- tensors ----

def _ranges(extents: Iterable[Extent]) -> list[tuple[int, int]]:
    """(address, bytes) of the memory that the extents cover, each byte once. What touches within one storage is
    one range; what touches between two is not, since they may be two allocations."""
    ranges: list[tuple[int, int, int]] = []
    for address, n, storage, _ in sorted(e for e in extents if e.bytes > 0):
        if ranges:
            first, last_n, last_storage = ranges[-1]
            end = first + last_n
            if address < end or (address == end and storage and storage == last_storage):
                ranges[-1] = (first, max(end, address + n) - first, last_storage)
                continue
        ranges.append((address, n, storage))
    return [(address, n) for address, n, _ in ranges]


def _deal(function: str, ranges: list[tuple[int, int]], *arguments: Any) -> int:
    """Calls a function of the library for the ranges; the bytes of those that are managed memory."""
    table = (Range * len(ranges))(*[Range(address, n) for address, n in ranges])
    covered = c_size_t()
    _library.call(function, table, len(ranges), *arguments, byref(covered))
    return covered.value


def _of_one(function: str, tensor: Any, *arguments: Any) -> int:
    if tensor is None:
        return 0
    extent = extent_of(tensor)
    if extent.bytes == 0:
        return 0
    if extent.on_device is False:
        raise error(INVALID, "%s: memory of a device is meant, this is the host's" % function)
    covered = _deal(function, [(extent.address, extent.bytes)], *arguments)
    if covered < extent.bytes:
        raise error(INVALID, "%s: no managed memory; was it allocated in unified_mempool()?" % function)
    return covered


def prefetch_tensor(tensor: Any, device: Any, stream: Any = None) -> int:
    """Moves the tensor's memory to the device ("cpu" or -1: to the host) in the order of `stream` (None: PyTorch's
    current one). Its address stays. Returns the tensor's bytes; the driver moves whole pages.

    `tensor`: a tensor or storage of PyTorch, or whatever has `__cuda_array_interface__`, in managed memory
    (InvalidArgument if not). None and empty tensors: 0."""
    refuse_in_capture("prefetch_tensor")
    return _of_one("prefetch", tensor, device_number(device), stream_handle(stream))


def advise_preferred_location(tensor: Any, device: Any) -> int:
    """From now on the tensor's memory best lies on the device, or on the host: it is moved there when it is touched
    from there, and stays. Nothing moves now. Returns the tensor's bytes.

    Unsupported for a block that ALLOGRAFT_POLICY=managed took from the driver's managed pool, unless `device` is the
    one it is on, which it prefers anyhow: see ALLOGRAFT_MANAGED_BACKEND."""
    refuse_in_capture("advise_preferred_location")
    return _of_one("advise_preferred_location", tensor, device_number(device))


def advise_accessed_by(tensor: Any, device: Any) -> int:
    """From now on the tensor's memory is kept mapped for the device, or for the host, wherever it lies. Returns the
    tensor's bytes. Unsupported as advise_preferred_location()."""
    refuse_in_capture("advise_accessed_by")
    return _of_one("advise_accessed_by", tensor, device_number(device))


_PLACES = ("auto", "device", "host")


def memory_place(tensor: Any, place: str) -> int:
    """From now on the tensor's memory lies on its "device", on the "host", where the device reads and writes it over the
    bus, or where its use suggests ("auto"), until its block is freed. For memory that can move: of cudaMalloc, 1 MiB or
    more, under ALLOGRAFT_OOM=page; pieces of ALLOGRAFT_PAGE_PIECE move as a whole, and addresses stay. Returns the
    tensor's bytes.

    It is moved at once if the device becomes idle, else before a later launch. Unsupported for other
    memory, and for what a graph's copy, SYNC_MEMOPS or a handle holds where it is."""
    if place not in _PLACES:
        raise error(INVALID, "memory_place: place %r: one of %s" % (place, ", ".join(_PLACES)))
    extent = extent_of(tensor)
    if tensor is None or extent.bytes == 0:
        return 0
    _library.call("memory_place", extent.address, extent.bytes, _PLACES.index(place))
    return extent.bytes


# ---- modules ----

def _tensors_of(module: Any, include_buffers: bool) -> Iterable[Any]:
    yield from module.parameters()
    if include_buffers:
        yield from module.buffers()


def _ranges_of(module: Any, include_buffers: bool) -> list[tuple[int, int]]:
    if module is None:
        return []
    extents = [extent_of(t) for t in _tensors_of(module, include_buffers) if t is not None]
    return _ranges(e for e in extents if e.on_device is not False)


def prefetch_module(module: Any, device: Any, *, include_buffers: bool = False, stream: Any = None) -> int:
    """Moves a module's parameters, and its buffers if asked for, to the device ("cpu" or -1: to the host) in the
    order of `stream`. Returns the bytes that are on their way: each parameter's numel() * element_size(), those
    that share memory (tied weights) once. Parameters that are not in managed memory are passed over.

        allograft.prefetch_module(model, "cpu")      # offload: the device's memory is free for others
        allograft.prefetch_module(model, "cuda")     # and back, before it is used
    """
    refuse_in_capture("prefetch_module")
    return _deal("prefetch", _ranges_of(module, include_buffers), device_number(device), stream_handle(stream))


def advise_module(module: Any, device: Any, *, include_buffers: bool = False, accessed_by: Any = None) -> int:
    """Sets the preferred location of a module's parameters, and of its buffers if asked for; and keeps them mapped
    for the device `accessed_by`, if one is given. Either may be None. Returns bytes as prefetch_module()."""
    refuse_in_capture("advise_module")
    ranges = _ranges_of(module, include_buffers)
    covered = 0
    if device is not None:
        covered = _deal("advise_preferred_location", ranges, device_number(device))
    if accessed_by is not None:
        covered = _deal("advise_accessed_by", ranges, device_number(accessed_by))
    return covered


def bytes_of_module(module: Any, *, include_buffers: bool = False) -> int:
    """What prefetch_module() would return, were all of it managed memory. Needs no library."""
    return sum(n for _, n in _ranges_of(module, include_buffers))


__all__ = ["Support", "advise_accessed_by", "advise_module", "advise_preferred_location", "bytes_of_module",
           "managed_alloc", "managed_free", "managed_support", "memory_place", "prefetch_module", "prefetch_tensor",
           "unified_mempool"]
