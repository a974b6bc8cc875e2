"""Stands in for torch.cuda.CUDAGraph, and for what is used with it: torch.cuda.graph and graph_pool_handle.

    from allograft.compat.cuda_graph import CUDAGraph, graph

With PyTorch in the process PyTorch captures, on its current stream, and both `graph` of this module and that of
torch.cuda take a CUDAGraph. On purpose otherwise:

- A graph whose capture failed, or that was reset, can be captured into again, and PyTorch's allocator and random
  numbers go on. In torch.cuda a new object is needed.
- keep_graph is refused where PyTorch is older than 2.8.
- Without PyTorch, or without a GPU for it, the library captures: capture_begin() then takes
  allograft.shared_capture_stream(), since there is no current stream, and replay() the legacy default stream.
- Errors are AllograftError, which is a RuntimeError as PyTorch's are.
"""
from __future__ import annotations

import contextlib
import warnings
from typing import Any

from .. import graphs
from .._library import UNSUPPORTED, Unsupported, WrongState
from ..graphs import Graph


class CUDAGraph:
    """A CUDA graph. `keep_graph`: what was captured is kept for raw_cuda_graph() and instantiated by instantiate(), or
    else by the first replay(); otherwise capture_end() instantiates it and what was captured is gone."""

    _debugging = False  # as in PyTorch, of all graphs at once

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph = Graph(keep_graph)
        self._dumpable = keep_graph

    def _keep_if_debugged(self) -> None:
        if CUDAGraph._debugging and not self._dumpable:
            self._graph.enable_debug_mode()
            self._dumpable = True

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", *,
                      check_input_liveness: bool = False) -> None:
        """Begins to capture what is submitted to the current stream, which must not be the default one. `pool`: whose
        memory is shared, a graph_pool_handle(), another graph's pool(), or a torch.cuda.MemPool.
        `capture_error_mode`: "global", "thread_local" or "relaxed". `check_input_liveness`, which newer versions of
        torch.cuda.graph pass on, must be False."""
        if check_input_liveness:
            raise Unsupported(UNSUPPORTED, "check_input_liveness True: only torch.cuda.CUDAGraph does that")
        self._keep_if_debugged()
        self._graph.capture_begin(_pool_of(pool), capture_error_mode)

    def capture_end(self) -> None:
        """Ends the capture on the current stream. From then on replay() may be called."""
        self._graph.capture_end()

    def instantiate(self) -> None:
        """Makes what is replayed of what was captured, again after raw_cuda_graph() was changed. Only with
        keep_graph."""
        self._graph.instantiate()

    def replay(self) -> None:
        """Submits the captured work to the current stream."""
        self._graph.replay()

    def reset(self) -> None:
        """Deletes what the object holds."""
        self._graph.reset()

    def pool(self) -> Any:
        """The graph's memory pool, for another graph's capture_begin()."""
        return self._graph.pool()

    def raw_cuda_graph(self) -> int:
        """The cudaGraph_t that was captured. Only with keep_graph."""
        return self._graph.raw_cuda_graph()

    def enable_debug_mode(self) -> None:
        """Captures that begin from now on can be dumped."""
        CUDAGraph._debugging = True

    def debug_dump(self, debug_path: Any) -> None:
        """Writes what was captured to a file as DOT, with keep_graph or after enable_debug_mode(); otherwise there is a
        warning and no file."""
        if not self._dumpable:
            warnings.warn("CUDAGraph.debug_dump: nothing is kept; call enable_debug_mode() before the capture",
                          stacklevel=2)
            return
        try:
            self._graph.debug_dump(debug_path)
        except WrongState as nothing:
            warnings.warn("CUDAGraph.debug_dump: %s" % nothing, stacklevel=2)

    def register_generator_state(self, generator: Any) -> None:
        """Random numbers of this torch.Generator go on from replay to replay. Before the capture; the default
        generator needs no such call."""
        self._graph.register_generator_state(generator)


def graph_pool_handle() -> Any:
    """The name of a new memory pool, for captures that share it."""
    return graphs.graph_pool_handle()


def _pool_of(pool: Any) -> Any:
    return pool.pool() if isinstance(pool, CUDAGraph) else pool


class graph(contextlib.AbstractContextManager[None]):
    """`with graph(cuda_graph): ...` captures the body, on a side stream unless one is given. When the body fails, or
    its capture, `cuda_graph` is empty again."""

    def __init__(self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None,
                 capture_error_mode: str = "global") -> None:
        cuda_graph._keep_if_debugged()
        self._capture = cuda_graph._graph.capture(_pool_of(pool), stream, capture_error_mode)

    def __enter__(self) -> None:
        self._capture.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._capture.__exit__(*error)


__all__ = ["CUDAGraph", "graph", "graph_pool_handle"]
