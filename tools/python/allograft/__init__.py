"""Allograft's control API for Python: managed memory that moves, graphs, whole iterations, transfer rings.

A thin layer over liballograft.so by ctypes. Importing it needs neither CUDA nor PyTorch nor the library; calls that
need the library raise NotLoaded where there is none. PyTorch (2.6 or newer) is used if the program has imported it.
Preload the library (`allograft run python3 ...`) to have the program's own allocations redirected too; where it is
not preloaded it is opened for this interface alone.

Sizes are bytes. A device is an ordinal, "cuda", "cuda:1", a torch.device, or the host: -1 or "cpu". A stream is a
handle, a torch.cuda.Stream, a cupy.cuda.Stream, or None: PyTorch's current one, else the legacy default stream.
Every class may be used by any thread, each object by one at a time, TransferRing by two.
"""
from ._interop import DeviceArray
from ._library import (HOST, AllograftError, Capturing, DriverError, InvalidArgument, NoMemory, NotLoaded, NotReady,
                       Unsupported, WrongState, is_loaded, is_preloaded, library_path)
from .graphs import Graph, graph, graph_pool_handle, shared_capture_stream, shared_graph_pool
from .iterations import Action, FullIterationGraph, Stage, StaticBufferLoader
from .memory import (Support, advise_accessed_by, advise_module, advise_preferred_location, bytes_of_module,
                     managed_alloc, managed_free, managed_support, memory_place, prefetch_module, prefetch_tensor,
                     unified_mempool)
from .statistics import dump, mark, stats
from .transfer import Field, RingProperties, RingRecord, TransferRing

__version__ = "0.1.0"

__all__ = [
    "HOST", "Action", "AllograftError", "Capturing", "DeviceArray", "DriverError", "Field", "FullIterationGraph",
    "Graph", "InvalidArgument", "NoMemory", "NotLoaded", "NotReady", "RingProperties", "RingRecord", "Stage",
    "StaticBufferLoader", "Support", "TransferRing", "Unsupported", "WrongState", "advise_accessed_by",
    "advise_module", "advise_preferred_location", "bytes_of_module", "dump", "graph", "graph_pool_handle",
    "is_loaded", "is_preloaded", "library_path", "managed_alloc", "managed_free", "managed_support", "mark",
    "memory_place", "prefetch_module", "prefetch_tensor", "shared_capture_stream", "shared_graph_pool", "stats", "unified_mempool",
]
