"""Stands in for megatron.core.inference.unified_memory: a pool of managed memory for PyTorch, and moving it.

    -from megatron.core.inference.unified_memory import create_unified_mempool
    +from allograft.compat.unified_memory import create_unified_mempool

Different on purpose:
- Nothing is compiled: the allocator is in the library. So compile_allocator() takes no time, needs no compiler, enters
  no _compile_timeout() and never raises UnifiedMemoryCompileTimeoutError. It needs no torch.distributed either: there
  is no compiler to fail on one rank alone.
- Blocks of 2 MiB and more are brought to the device when they are allocated, if there is room.
- During a capture, prefetch and advice raise Capturing, and the capture lives on.
- Memory that is not managed is refused with its address and the reason instead of a CUDA error code.
"""
from __future__ import annotations

import contextlib
import ctypes
import enum
import importlib
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Optional

from .. import memory
from .._interop import device_number, torch_module
from .._library import HOST, INVALID, UNSUPPORTED, AllograftError, NotLoaded, Unsupported, error, library


class CompilationState(enum.Enum):
    """Was the allocator of managed memory asked for, and is it there?"""

    UNATTEMPTED = enum.auto()
    FAILURE = enum.auto()
    SUCCESS = enum.auto()


class UnifiedMemoryUnsupportedError(Exception):
    """There is no unified memory here; the text says why."""


class UnifiedMemoryCompileTimeoutError(UnifiedMemoryUnsupportedError):
    """What ran under _compile_timeout() took too long. Nothing in this module does."""


_compilation_state = CompilationState.UNATTEMPTED
_alloc: Any = None  # the allocator as torch.cuda.MemPool takes it
_mod: Any = None  # the library
_so_path: Optional[str] = None  # its file
_ctypes_lib: Optional[ctypes.CDLL] = None
_ctypes_lock = threading.Lock()
_compilation_error: Optional[str] = None  # why the state is FAILURE
_has_mem_pool: Optional[bool] = None  # None: PyTorch is asked


def _too_late(signum: int, frame: Any) -> NoReturn:
    raise UnifiedMemoryCompileTimeoutError("the compilation of the unified memory allocator timed out")


@contextlib.contextmanager
def _compile_timeout(timeout_s: int) -> Iterator[None]:
    """The body raises UnifiedMemoryCompileTimeoutError after `timeout_s` seconds, in the main thread; in others it
    runs as long as it takes. By SIGALRM, whose handler is put back. Nothing here compiles, or enters it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _too_late)
    try:
        signal.alarm(timeout_s)
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _find_allocator() -> None:
    global _alloc, _mod, _so_path
    importlib.import_module("torch")
    if _has_mem_pool is False:
        raise Unsupported(UNSUPPORTED, "PyTorch has no torch.cuda.MemPool")
    _alloc, _mod, _so_path = memory.torch_allocator(), library(), library().path


def compile_allocator() -> None:
    """Makes the allocator ready, once. When that fails there is a warning, and create_unified_mempool() says why."""
    global _compilation_state, _compilation_error, _ctypes_lib, _so_path
    if _compilation_state != CompilationState.UNATTEMPTED:
        return
    try:
        _find_allocator()
    except (RuntimeError, ImportError, OSError) as reason:
        _compilation_state, _compilation_error = CompilationState.FAILURE, str(reason)
        _ctypes_lib = _so_path = None
        warnings.warn("no unified memory pool: %s" % reason, stacklevel=2)
        return
    _compilation_state, _compilation_error = CompilationState.SUCCESS, None


def _need_allocator() -> None:
    compile_allocator()
    if _compilation_state != CompilationState.SUCCESS:
        raise UnifiedMemoryUnsupportedError("Unified memory is not supported here: "
                                            + (_compilation_error or "Unknown reason"))


def create_unified_mempool() -> Any:
    """A new torch.cuda.MemPool of the current device, whose memory is managed.

        with torch.cuda.use_mem_pool(create_unified_mempool()):
            model = Model().cuda()

    UnifiedMemoryUnsupportedError where there can be none: then the text says why."""
    _need_allocator()
    try:
        return memory.unified_mempool(new=True)
    except (NotLoaded, Unsupported) as reason:
        raise UnifiedMemoryUnsupportedError("Unified memory is not supported here: %s" % reason) from reason


def _get_ctypes_lib() -> ctypes.CDLL:
    """The library by ctypes. It exports `allograft_torch_alloc` and `allograft_torch_free`, which PyTorch calls; moving
    and advising are in its control API."""
    global _ctypes_lib
    _need_allocator()
    with _ctypes_lock:
        if _ctypes_lib is None:
            _ctypes_lib = ctypes.CDLL(_so_path)
        return _ctypes_lib


# ---- tensors ----

def _is_meant(tensor: Any, what: str) -> bool:
    """Is there anything to do? Refuses what is no tensor of a GPU."""
    if tensor is None:
        return False
    torch = torch_module() or importlib.import_module("torch")
    if not isinstance(tensor, torch.Tensor):
        raise TypeError("%s expects a torch.Tensor, not %s" % (what, type(tensor).__name__))
    if tensor.numel() == 0:
        return False
    if not tensor.is_cuda:
        raise ValueError("%s expects a CUDA tensor, this one is on %s" % (what, tensor.device))
    _need_allocator()
    return True


def prefetch_managed_tensor(tensor: Any, *, device: int, stream: Any = None) -> None:
    """Moves the tensor's memory to the device, -1: to the host, in the order of `stream` (None: the current one). Its
    address stays. RuntimeError if it is not in managed memory. None and empty tensors: nothing."""
    if _is_meant(tensor, "prefetch_managed_tensor"):
        memory.prefetch_tensor(tensor, device, stream)


def advise_managed_tensor_preferred_location(tensor: Any, *, device: int) -> None:
    """From now on the tensor's memory best lies on the device, -1: on the host. A hint: nothing moves now. RuntimeError
    if it is not in managed memory."""
    if _is_meant(tensor, "advise_managed_tensor_preferred_location"):
        memory.advise_preferred_location(tensor, device)


def advise_managed_tensor_accessed_by(tensor: Any, *, device: int) -> None:
    """From now on the tensor's memory is kept mapped for that GPU, wherever it lies. RuntimeError if it is not in
    managed memory, or `device` is the host."""
    if not _is_meant(tensor, "advise_managed_tensor_accessed_by"):
        return
    if device_number(device) == HOST:
        raise error(INVALID, "advise_managed_tensor_accessed_by: device %r: a GPU is meant, not the host" % (device,))
    memory.advise_accessed_by(tensor, device)


# ---- modules ----

def _tensors_of(module: Any, include_buffers: bool) -> Iterator[tuple[str, Any]]:
    """The module's tensors on GPUs that are not empty, each storage address once, with what to call them."""
    seen = set()
    for kind, named in (("parameter", module.named_parameters),
                        ("buffer", module.named_buffers if include_buffers else None)):
        for name, tensor in named(recurse=True) if named else ():
            tensor = getattr(tensor, "data", tensor) if kind == "parameter" else tensor
            if tensor is None or not tensor.is_cuda or tensor.numel() == 0 or tensor.data_ptr() in seen:
                continue
            seen.add(tensor.data_ptr())
            yield "%s '%s'" % (kind, name), tensor


def _fail(call: str, what: str, tensor: Any, reason: Any) -> NoReturn:
    text = "%s failed for %s of shape %s at 0x%x: %s" % (call, what, tuple(tensor.shape), tensor.data_ptr(), reason)
    if isinstance(reason, AllograftError):
        raise error(reason.status, text) from reason
    raise RuntimeError(text)


def _do_all(module: Any, include_buffers: bool, call: str, deed: Callable[[Any], Any]) -> int:
    """Does it to each; the sum of their bytes. An error says of which."""
    total = 0
    for what, tensor in _tensors_of(module, include_buffers):
        try:
            reason = deed(tensor)
        except AllograftError as failed:
            reason = failed
        if reason:
            _fail(call, what, tensor, reason)
        total += int(tensor.nbytes)
    return total


def prefetch_managed_module_parameters(module: Any, *, device: int, include_buffers: bool = False) -> int:
    """Moves the module's parameters, and its buffers if asked for, to the device (-1: the host) in the order of the
    current stream. Returns their bytes, shared ones once. RuntimeError, with the name, at the first that is not in
    managed memory. None: 0."""
    if module is None:
        return 0
    torch = torch_module() or importlib.import_module("torch")
    stream = torch.cuda.current_stream()
    return _do_all(module, include_buffers, "cudaMemPrefetchAsync",
                   lambda tensor: prefetch_managed_tensor(tensor, device=device, stream=stream))


def advise_managed_module_parameters_preferred_location(module: Any, *, device: int,
                                                        include_buffers: bool = False) -> None:
    """From now on the module's parameters, and its buffers if asked for, best lie on the device (-1: the host). Errors
    as prefetch_managed_module_parameters()."""
    if module is not None:
        _do_all(module, include_buffers, "cudaMemAdviseSetPreferredLocation",
                lambda tensor: advise_managed_tensor_preferred_location(tensor, device=device))


__all__ = ["CompilationState", "UnifiedMemoryCompileTimeoutError", "UnifiedMemoryUnsupportedError",
           "advise_managed_module_parameters_preferred_location", "advise_managed_tensor_accessed_by",
           "advise_managed_tensor_preferred_location", "compile_allocator", "create_unified_mempool",
           "prefetch_managed_module_parameters", "prefetch_managed_tensor"]
