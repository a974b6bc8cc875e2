"""Graphs: work on a stream, captured once and replayed.

With PyTorch in the process, torch.cuda.CUDAGraph does the capturing. It has to: only it tells the caching
allocator which of all threads' allocations belong to the capture (autograd's backward runs in threads of its own,
which torch.cuda.use_mem_pool does not reach), and only it makes random numbers go on from replay to replay. What
is added here is the same object for programs without PyTorch, a pool and a stream to share, and captures that are
given up cleanly when the body fails. `native=True`, or no PyTorch: the library captures by itself.
"""
from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from ctypes import byref, c_uint64, c_void_p
from collections.abc import Iterator
from typing import Any

from . import _library
from ._interop import device_number, refuse_in_capture, stream_handle, torch_with_cuda
from ._library import INVALID, STATE, UNSUPPORTED, Unsupported, WrongState, error

MODES = ("global", "thread_local", "relaxed")
"""What `capture_error_mode` may be, as cudaStreamCaptureMode: which unsafe calls of which threads end a capture."""


def capture_mode(name: str) -> int:
    """The number of a capture_error_mode."""
    if name not in MODES:
        raise error(INVALID, "capture_error_mode %r: one of %s" % (name, ", ".join(MODES)))
    return MODES.index(name)


# ---- engines: what captures ----

class _NativeEngine:
    """The library captures."""

    def __init__(self, keep_graph: bool) -> None:
        self._handle = c_void_p()
        _library.call("graph_create", int(keep_graph), byref(self._handle))

    def destroy(self) -> None:
        handle, self._handle = self._handle, c_void_p()
        if handle:
            _library.call("graph_destroy", handle)

    def enable_debug_mode(self) -> None:
        _library.call("graph_enable_debug_mode", self._handle)

    def capture_begin(self, pool: Any, mode: str, stream: Any) -> None:
        number = 0 if pool is None else pool
        if not isinstance(number, int):
            raise error(INVALID, "pool %r: not one of the library's" % (pool,))
        if stream is None and torch_with_cuda() is None:  # else PyTorch's current one
            stream = shared_capture_stream(native=True)
        _library.call("graph_capture_begin", self._handle, stream_handle(stream), number, capture_mode(mode))

    def capture_end(self) -> None:
        _library.call("graph_capture_end", self._handle)

    @contextlib.contextmanager
    def capture(self, pool: Any, mode: str, stream: Any) -> Iterator[None]:
        if stream is None:
            stream = shared_capture_stream(native=True)
        self.capture_begin(pool, mode, stream)
        try:
            yield
        except BaseException:
            self.reset()
            raise
        self.capture_end()

    def instantiate(self) -> None:
        _library.call("graph_instantiate", self._handle)

    def replay(self, stream: Any) -> None:
        _library.call("graph_replay", self._handle, stream_handle(stream))

    def reset(self) -> None:
        _library.call("graph_reset", self._handle)

    def debug_dump(self, path: Any) -> None:
        _library.call("graph_debug_dump", self._handle, os.fsencode(path))

    def raw_cuda_graph(self) -> int:
        raw = c_void_p()
        _library.call("graph_raw", self._handle, byref(raw))
        return raw.value or 0

    def pool(self) -> Any:
        number = c_uint64()
        _library.call("graph_pool", self._handle, byref(number))
        return number.value

    def register_generator_state(self, generator: Any) -> None:
        raise Unsupported(UNSUPPORTED, "random numbers of PyTorch need a graph that PyTorch captures")


def _empty_capture(torch: Any, graph: Any, pool: Any, stream: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the graph is empty
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            pass


def _recover(torch: Any, pool: Any, stream: Any) -> None:
    """After a capture that failed. Up to PyTorch 2.10 or so the allocator and the default generator then go on as if
    it were still open: the pool is ended for the one, and for the other comes a capture that does not fail."""
    device = getattr(stream, "device_index", None)
    device = torch.cuda.current_device() if device is None else device
    with contextlib.suppress(Exception):  # that it has been ended
        end = getattr(torch._C, "_cuda_endAllocateToPool", None)
        (end or torch._C._cuda_endAllocateCurrentStreamToPool)(device, pool)
        torch._C._cuda_releasePool(device, pool)
    with contextlib.suppress(Exception):
        _empty_capture(torch, torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle(), stream)


class _TorchEngine:
    """PyTorch captures. A reset graph is made anew: not every version captures into one again."""

    def __init__(self, torch: Any, keep_graph: bool) -> None:
        self._torch = torch
        self._keep = keep_graph
        self._debug = False
        self._generators: list[Any] = []
        self._stream: Any = None  # entered by capture_begin
        self._captured = False
        self._began: Any = None  # pool and stream of a capture that is open
        self._graph = self._make()

    def _make(self) -> Any:
        graph = None
        # Versions that can keep a graph dump only those that they were told to keep.
        if self._keep or self._debug:
            with contextlib.suppress(TypeError):
                graph = self._torch.cuda.CUDAGraph(keep_graph=True)
        if self._keep and graph is None:
            raise Unsupported(UNSUPPORTED, "keep_graph needs PyTorch 2.8, or native=True")
        if graph is None:
            graph = self._torch.cuda.CUDAGraph()
        if self._debug:
            graph.enable_debug_mode()
        for generator in self._generators:
            graph.register_generator_state(generator)
        return graph

    def destroy(self) -> None:
        self._graph = None

    def _stream_of(self, stream: Any) -> Any:
        return self._torch.cuda.ExternalStream(stream) if isinstance(stream, int) else stream

    def enable_debug_mode(self) -> None:
        self._debug = True
        if self._captured:
            self._graph.enable_debug_mode()
        else:
            self._graph = self._make()

    def _may_begin(self, pool: Any, stream: Any) -> Any:
        """The pool, which is always named: see _recover()."""
        if self._captured:
            raise WrongState(STATE, "the graph holds a capture already: reset it, or use another")
        pool = getattr(pool, "id", pool)  # torch.cuda.MemPool
        if pool is not None and not isinstance(pool, tuple):
            raise error(INVALID, "pool %r: not one of PyTorch's" % (pool,))
        if stream == self._torch.cuda.default_stream(getattr(stream, "device", None)):
            raise error(INVALID, "a default stream cannot be captured (though replayed on)")
        return self._torch.cuda.graph_pool_handle() if pool is None else pool

    def capture_begin(self, pool: Any, mode: str, stream: Any) -> None:
        capture_mode(mode)
        stream = self._stream_of(stream)
        on = self._torch.cuda.current_stream() if stream is None else stream
        pool = self._may_begin(pool, on)
        if stream is not None:
            self._stream = self._torch.cuda.stream(stream)
            self._stream.__enter__()
        try:
            self._graph.capture_begin(pool=pool, capture_error_mode=mode)
        except BaseException:
            self._leave_stream()
            raise
        self._captured, self._began = True, (pool, on)

    def _leave_stream(self) -> None:
        entered, self._stream = self._stream, None
        if entered is not None:
            entered.__exit__(None, None, None)

    def capture_end(self) -> None:
        try:
            self._graph.capture_end()
            self._began = None
        finally:
            self._leave_stream()

    @contextlib.contextmanager
    def capture(self, pool: Any, mode: str, stream: Any) -> Iterator[None]:
        capture_mode(mode)
        stream = shared_capture_stream() if stream is None else self._stream_of(stream)
        pool = self._may_begin(pool, stream)
        self._captured, self._began = True, (pool, stream)
        try:  # waits for the device and tidies up first, as every version does it
            # PyTorch stays on the stream when a capture cannot be ended; this leaves it.
            with self._torch.cuda.stream(stream), \
                    self._torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode=mode):
                yield
            self._began = None
        except BaseException:
            self.reset()
            raise

    def _need_capture(self) -> Any:
        if not self._captured:
            raise WrongState(STATE, "the graph holds no capture")
        return self._graph

    def _since_2_8(self, name: str) -> Any:
        method = getattr(self._need_capture(), name, None)
        if method is None:
            raise Unsupported(UNSUPPORTED, "%s needs PyTorch 2.8, or native=True" % name)
        if not self._keep:
            raise WrongState(STATE, "the graph was not made with keep_graph")
        return method

    def instantiate(self) -> None:
        self._since_2_8("instantiate")()

    def replay(self, stream: Any) -> None:
        if stream is None:
            self._need_capture().replay()
        else:
            with self._torch.cuda.stream(self._stream_of(stream)):
                self._need_capture().replay()

    def reset(self) -> None:
        self._leave_stream()
        graph, self._graph = self._graph, None
        began, self._began = self._began, None
        self._captured = False
        try:
            if graph is not None:
                graph.reset()
        finally:
            del graph
            if began is not None:
                _recover(self._torch, *began)
            self._graph = self._make()

    def debug_dump(self, path: Any) -> None:
        self._need_capture().debug_dump(os.fspath(path))

    def raw_cuda_graph(self) -> int:
        return int(self._since_2_8("raw_cuda_graph")())

    def pool(self) -> Any:
        return self._need_capture().pool()

    def register_generator_state(self, generator: Any) -> None:
        self._graph.register_generator_state(generator)
        self._generators.append(generator)


# ---- the object ----

class Graph:
    """A graph, with the methods of torch.cuda.CUDAGraph.

    `keep_graph`: keep what was captured beside what is launched, for raw_cuda_graph() and instantiate().
    `native`: the library captures although PyTorch is there. Then tensors that are made during the capture do not
    belong to it; allocate them before.

        g = allograft.Graph()
        with g.capture():
            y = model(x)        # x: a tensor that is filled before each replay
        g.replay()              # y holds the result

    One thread at a time uses it, and the thread that began a capture ends it. Memory allocated during a capture
    comes from a private pool, at addresses that stay, and lives as long as the graph and all that share the pool.
    Graphs that share a pool are replayed in the order of their captures, never at the same time.
    """

    def __init__(self, keep_graph: bool = False, *, native: bool = False) -> None:
        torch = None if native else torch_with_cuda()
        self.keep_graph = keep_graph
        self._engine: Any = _NativeEngine(keep_graph) if torch is None else _TorchEngine(torch, keep_graph)

    @property
    def native(self) -> bool:
        """Does the library capture, not PyTorch?"""
        return isinstance(self._engine, _NativeEngine)

    def enable_debug_mode(self) -> None:
        """Keeps what is captured from now on until debug_dump()."""
        self._engine.enable_debug_mode()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", stream: Any = None) -> None:
        """From here on work on `stream` is recorded instead of done. `pool`: whose memory is shared, a
        graph_pool_handle(), another Graph, or a torch.cuda.MemPool; None is a new one. `stream`: never a default
        one; None is PyTorch's current one, natively too, and shared_capture_stream() without PyTorch."""
        self._engine.capture_begin(_pool_of(pool), capture_error_mode, stream)

    def capture_end(self) -> None:
        """Ends the capture and, unless keep_graph, instantiates the graph. After an error the graph is empty."""
        try:
            self._engine.capture_end()
        except BaseException:
            with contextlib.suppress(Exception):
                self._engine.reset()
            raise

    @contextlib.contextmanager
    def capture(self, pool: Any = None, stream: Any = None, capture_error_mode: str = "global") -> Iterator[Graph]:
        """Captures the body of a `with`, as torch.cuda.graph does: waits for the device and returns unused cached
        memory first, and captures on shared_capture_stream() unless a stream is given. When the body fails the
        graph is empty again."""
        refuse_in_capture("capture")
        with self._engine.capture(_pool_of(pool), capture_error_mode, stream):
            yield self

    def instantiate(self) -> None:
        """Instantiates the graph, again if need be. Only with keep_graph."""
        self._engine.instantiate()

    def replay(self, stream: Any = None) -> None:
        """Submits the graph's work to a stream; None: PyTorch's current one, else the legacy default stream."""
        self._engine.replay(stream)

    def reset(self) -> None:
        """Empties the graph, for another capture. Its memory is freed unless others share the pool."""
        self._engine.reset()

    def debug_dump(self, debug_path: Any) -> None:
        """Writes the captured graph to a file as DOT: after enable_debug_mode() once, with keep_graph always."""
        self._engine.debug_dump(debug_path)

    def raw_cuda_graph(self) -> int:
        """The captured cudaGraph_t; it stays the graph's. Only with keep_graph."""
        return int(self._engine.raw_cuda_graph())

    def pool(self) -> Any:
        """The pool of the capture, for others to share."""
        return self._engine.pool()

    def register_generator_state(self, generator: Any) -> None:
        """Random numbers of this torch.Generator go on from replay to replay. Before the capture; the default
        generator needs no such call."""
        self._engine.register_generator_state(generator)

    def __del__(self) -> None:
        engine = self.__dict__.get("_engine")
        if engine is not None and not sys.is_finalizing():
            with contextlib.suppress(Exception):
                engine.destroy()


def graph(graph: Graph, pool: Any = None, stream: Any = None,
          capture_error_mode: str = "global") -> contextlib.AbstractContextManager[Graph]:
    """`with allograft.graph(g): ...` is `with g.capture(): ...`, for those used to torch.cuda.graph."""
    return graph.capture(pool=pool, stream=stream, capture_error_mode=capture_error_mode)


def _pool_of(pool: Any) -> Any:
    return pool.pool() if isinstance(pool, Graph) else pool


# ---- pools and streams to share ----

_lock = threading.Lock()
_torch_pools: dict[int, tuple[Any, Any]] = {}  # device: pool, and the graph that keeps it
_torch_streams: dict[int, Any] = {}


def graph_pool_handle(*, native: bool = False) -> Any:
    """The name of a pool that no graph uses yet, for `pool=` of several captures."""
    torch = None if native else torch_with_cuda()
    if torch is not None:
        return torch.cuda.graph_pool_handle()
    number = c_uint64()
    _library.call("pool_new", byref(number))
    return number.value


def _keep_pool(torch: Any, device: int) -> tuple[Any, Any]:
    """A new pool of PyTorch's, and an empty graph in it: a pool that loses its last graph cannot be used again."""
    pool, keeper = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
    _empty_capture(torch, keeper, pool, _torch_stream(torch, device))
    return pool, keeper


def shared_graph_pool(device: Any = None, *, native: bool = False) -> Any:
    """The pool of the device that all callers share. It exists until the process ends."""
    torch, number = None if native else torch_with_cuda(), device_number(device)
    if torch is not None:
        refuse_in_capture("shared_graph_pool")
        with _lock:
            if number not in _torch_pools:
                with torch.cuda.device(number):
                    _torch_pools[number] = _keep_pool(torch, number)
            return _torch_pools[number][0]
    found = c_uint64()
    _library.call("pool_shared", number, byref(found))
    return found.value


def _torch_stream(torch: Any, device: int) -> Any:
    if device not in _torch_streams:
        _torch_streams[device] = torch.cuda.Stream(device=device)
    return _torch_streams[device]


def shared_capture_stream(device: Any = None, *, native: bool = False) -> Any:
    """The one stream of the device for captures: a torch.cuda.Stream with PyTorch, else a cudaStream_t as a number.
    One stream for all captures, since PyTorch's cached memory belongs to streams."""
    torch, number = None if native else torch_with_cuda(), device_number(device)
    if torch is not None:
        return _torch_stream(torch, number)
    found = c_void_p()
    _library.call("capture_stream", number, byref(found))
    return found.value or 0


__all__ = ["Graph", "MODES", "graph", "graph_pool_handle", "shared_capture_stream", "shared_graph_pool"]
