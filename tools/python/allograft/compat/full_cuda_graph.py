"""Stands in for megatron.core.full_cuda_graph: whole iterations, recorded once for each stage and replayed.

    from allograft.compat.full_cuda_graph import FullCudaGraphWrapper

Stages are "training" and "validation". What belongs to a stage is kept by the classes, so that a wrapper made anew
for each evaluation goes on where the last one stopped. On purpose otherwise:

- Until a stage is recorded, and after a recording failed, micro-batches may have other shapes, types and keys than
  before; a buffer is made anew where it has to be. Once it is recorded, a tensor of another shape, a tensor that is
  missing, and another number of micro-batches are refused (InvalidArgument), where stale data would be computed with.
- Nothing is copied before all micro-batches of a call have been read and accepted. What was read for a call that is
  refused is given first to the next one with the same data iterator.
- When a recording fails its error is raised, the attempt counts as an iteration, and later ones run as they are.
- Iterations that are not replayed run on the capture stream, where autograd finds the same stream again.
- Every chunk of an interleaved model has static buffers of its own. Tuples within micro-batches, and dataclasses, are
  followed as lists are.
- Generators of Transformer Engine's tracker are registered too; states that are no torch.Generator are not.
- The barrier around a recording is left out where torch.distributed is not initialized.
"""
from __future__ import annotations

import gc
import importlib
import logging
from collections.abc import Iterator, MutableMapping
from typing import Any, Callable, Optional

from .._interop import is_torch_tensor, refuse_in_capture, torch_module
from .._library import INVALID, error
from .._nested import children_of, leaves, remade
from ..graphs import graph_pool_handle, shared_capture_stream, shared_graph_pool
from ..iterations import MicroBatches, copy_to_buffers, record_on, run_on
from .cuda_graph import CUDAGraph

logger = logging.getLogger(__name__)

_STAGES = ("training", "validation")
_ARGUMENTS = ("model", "data_iterator", "num_microbatches", "seq_length", "forward_only")

_shared_graph_pool: Any = None
_shared_capture_stream: Any = None


def _torch() -> Any:
    return torch_module() or importlib.import_module("torch")


def _must(condition: bool, text: str, *values: Any) -> None:
    if not condition:
        raise AssertionError(text % values)


# ---- what captures share ----

def get_shared_capture_stream() -> Any:
    """The one torch.cuda.Stream for captures of iterations and of the optimizer. The device is the current one at the
    first call."""
    global _shared_capture_stream
    if _shared_capture_stream is None:
        _shared_capture_stream = shared_capture_stream()
    return _shared_capture_stream


def get_shared_graph_pool() -> Any:
    """The one memory pool of the process for all graphs that share one."""
    global _shared_graph_pool
    if _shared_graph_pool is None:
        _shared_graph_pool = shared_graph_pool()
    return _shared_graph_pool


def get_graph_pool(use_single_mempool: bool) -> Any:
    """The memory pool for a capture: the shared one, or else a new one at each call."""
    return get_shared_graph_pool() if use_single_mempool else graph_pool_handle()


# ---- structures of tensors ----

def copy_tensors_in_struct(src: Any) -> Any:
    """The structure of tuples, lists and dicts with new tensors on the current device that have the contents of its
    own. All that is no tensor is taken as it is."""
    if isinstance(src, tuple):
        return tuple(copy_tensors_in_struct(item) for item in src)
    if isinstance(src, list):
        return [copy_tensors_in_struct(item) for item in src]
    if isinstance(src, dict):
        return {key: copy_tensors_in_struct(item) for key, item in src.items()}
    return src.clone().detach().cuda() if is_torch_tensor(src) else src


def clone_tensors_in_struct(tgt: Any, src: Any) -> None:
    """Copies the tensors of `src` into those that `tgt` has in their place; puts into its lists and dicts what is no
    tensor. Tuples are refused."""
    if is_torch_tensor(src):
        tgt.copy_(src, non_blocking=True)
        return
    if not isinstance(src, (list, dict)):
        raise error(INVALID, "clone_tensors_in_struct: a %s, which is no tensor, list or dict" % type(src).__name__)
    for key in src if isinstance(src, dict) else range(len(src)):
        if isinstance(src[key], (tuple, list, dict)) or is_torch_tensor(src[key]):
            clone_tensors_in_struct(tgt[key], src[key])
        else:
            tgt[key] = src[key]


# ---- static buffers ----

_PLAIN = (int, float, str, bool, bytes, type(None))
_Path = tuple[Any, ...]  # keys of dicts; of other containers, lists of one name


class _Load:
    """A micro-batch that was accepted: what is handed out, and (buffer, tensor) to be copied."""

    def __init__(self, where: str, recorded: bool, inputs: Any, old: Any) -> None:
        self._where, self._recorded = where, recorded
        self._torch = _torch()
        self._tensor = self._torch.Tensor
        self.pairs: list[tuple[Any, Any]] = []
        self.nested = False
        self.given = {key: self._static(item, old.get(key), (key,)) for key, item in inputs.items()}

    def _name(self, path: _Path) -> str:
        names = [key[0] if isinstance(key, list) else "[%r]" % (key,) for key in path]
        return "%s: input%s" % (self._where, "".join(names))

    def _static(self, source: Any, old: Any, path: _Path) -> Any:
        """`source` with static buffers in the tensors' place: those of `old`, what was there before, where they
        fit. All its containers are new ones."""
        if isinstance(source, self._tensor):
            buffer = self._buffer_for(source, old, path)
            self.pairs.append((buffer, source))
            return buffer
        if type(source) in _PLAIN:
            return source
        if type(source) is dict:
            self.nested = True
            before = old if type(old) is dict else {}
            return {key: self._static(item, before.get(key), (*path, key)) for key, item in source.items()}
        children = children_of(source)
        if children is None:
            return source
        self.nested = True
        before = dict(children_of(old) or ())
        built = [self._static(child, before.get(name), (*path, [name])) for name, child in children]
        return remade(source, children, built)

    def _buffer_for(self, source: Any, old: Any, path: _Path) -> Any:
        if isinstance(old, self._tensor):
            if old.shape == source.shape and (self._recorded or old.dtype == source.dtype):
                return old
            if self._recorded:
                raise error(INVALID, "%s has shape %s, was recorded with %s: reset_cuda_graph() to record anew"
                            % (self._name(path), tuple(source.shape), tuple(old.shape)))
        with self._torch.no_grad():
            return self._torch.empty_like(source, device="cuda")


def _containers_copied(static: Any) -> Any:
    children = children_of(static)
    if children is None:
        return static
    return remade(static, children, [_containers_copied(child) for _, child in children])


class StaticBufferLoader:
    """Copies micro-batches into static buffers, on a side stream: `static_buffers` has them by stage, and by the number
    of the micro-batch."""

    static_buffers: dict[str, list[Any]] = {"training": [], "validation": []}

    def __init__(self) -> None:
        self.stream = _torch().cuda.Stream()

    def __call__(self, inputs: Any, stage: str, microbatch: int) -> Any:
        """Copies `inputs`, a dict or a tuple that begins with one, in. Returns the dict of static buffers."""
        refuse_in_capture("StaticBufferLoader")
        self._copy(stage, microbatch, [self._prepare(inputs, stage, microbatch)])
        return StaticBufferLoader.static_buffers[stage][microbatch]

    def _prepare(self, inputs: Any, stage: str, microbatch: int, known: int = 0) -> _Load:
        """Checks a micro-batch and makes the buffers that it lacks; `known`: how many were prepared before it."""
        if stage not in _STAGES:
            raise AssertionError("stage %r: one of %s" % (stage, ", ".join(_STAGES)))
        held = StaticBufferLoader.static_buffers[stage]
        if not 0 <= microbatch <= max(len(held), known):
            raise AssertionError("%s has %d micro-batches: number %r is none of them, nor the next"
                                 % (stage, len(held), microbatch))
        if isinstance(inputs, tuple) and inputs and isinstance(inputs[0], MutableMapping):
            inputs = inputs[0]
        if not isinstance(inputs, MutableMapping):
            raise AssertionError("a micro-batch is a dict, or a tuple that begins with one, no %s"
                                 % type(inputs).__name__)
        return _Load("%s, micro-batch %d" % (stage, microbatch), FullCudaGraphWrapper.cuda_graph[stage] is not None,
                     inputs, held[microbatch] if microbatch < len(held) else {})

    def _copy(self, stage: str, first: int, loads: list[_Load]) -> None:
        """Copies micro-batches in, from number `first`. Who gets them may change containers, but not the buffers."""
        copy_to_buffers(_torch(), self.stream, None, [pair for load in loads for pair in load.pairs])
        held = StaticBufferLoader.static_buffers[stage]
        for number, load in enumerate(loads, first):
            if number == len(held):
                held.append({})
            held[number].clear()
            held[number].update(_containers_copied(load.given) if load.nested else load.given)


# ---- whole iterations ----

class _Recording(CUDAGraph):
    """A recorded iteration, and what it reads: so many micro-batches of each data iterator, and these buffers."""

    def __init__(self, stage: str, counts: list[Optional[int]]) -> None:
        super().__init__()
        self._counts = counts
        held = StaticBufferLoader.static_buffers[stage][:sum(count or 0 for count in counts)]
        self._buffers = {id(leaf): ("%s, micro-batch %d: input%s" % (stage, number, path), leaf)
                         for number, static in enumerate(held) for path, leaf in leaves(static)
                         if is_torch_tensor(leaf)}

    def check_counts(self, stage: str, counts: list[Optional[int]]) -> None:
        if counts != self._counts:
            raise error(INVALID, "%s: micro-batches %s, was recorded with %s: reset_cuda_graph() to record anew"
                        % (stage, counts, self._counts))

    def check_buffers(self, loads: list[_Load]) -> None:
        """None is left as it is, which would be computed with."""
        missing = self._buffers.keys() - {id(buffer) for load in loads for buffer, _ in load.pairs}
        if missing:
            raise error(INVALID, "%s was recorded with a tensor, which is missing: reset_cuda_graph() to record anew"
                        % min(self._buffers[key][0] for key in missing))


class FullCudaGraphWrapper:
    """Calls `forward_backward_func` for the first `cuda_graph_warmup_steps` iterations of each stage, records the next
    one, and replays it from then on. `use_single_mempool`: all stages, and the optimizer, share one memory pool."""

    curr_iteration: dict[str, int] = {"training": 0, "validation": 0}
    cuda_graph: dict[str, Any] = {"training": None, "validation": None}
    result: dict[str, Any] = {"training": None, "validation": None}

    _data = MicroBatches()

    def __init__(self, forward_backward_func: Callable[..., Any], cuda_graph_warmup_steps: int = 1,
                 use_single_mempool: bool = False) -> None:
        self.forward_backward_func = forward_backward_func
        self.static_loader = StaticBufferLoader()
        self.cuda_graph_warmup_steps = cuda_graph_warmup_steps
        self.use_single_mempool = use_single_mempool

    def data_read(self, data_iterator: Any, model: Any, training: bool,
                  num_microbatches: int) -> list[Optional[Iterator[Any]]]:
        """Reads the micro-batches of one iteration and copies them to static buffers. An iterator over these for each
        chunk of the model; None where there is no data iterator."""
        stage = _STAGES[0 if training else 1]
        iterators = _iterators(data_iterator, model)
        recorded = FullCudaGraphWrapper.cuda_graph[stage]
        if isinstance(recorded, _Recording):
            recorded.check_counts(stage, _counts(iterators, num_microbatches))
        batches = FullCudaGraphWrapper._data.read(stage, iterators, num_microbatches)
        try:
            items = [item for batch in batches for item in batch or ()]
            loads = [self.static_loader._prepare(item, stage, i, i) for i, item in enumerate(items)]
            if isinstance(recorded, _Recording):
                recorded.check_buffers(loads)
        except BaseException:
            FullCudaGraphWrapper._data.give_back(stage, iterators, batches)
            raise
        self.static_loader._copy(stage, 0, loads)
        given = iter([load.given for load in loads])
        return [None if batch is None else iter([next(given) for _ in batch]) for batch in batches]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One iteration. Returns what the function returned: when it is replayed, the same objects with new
        contents."""
        _must(not args, "forward_backward_func takes no positional arguments, %d were given", len(args))
        missing = [name for name in _ARGUMENTS if name not in kwargs]
        _must(not missing, "forward_backward_func needs the arguments %s", ", ".join(missing))
        refuse_in_capture("FullCudaGraphWrapper")
        stage = _STAGES[bool(kwargs["forward_only"])]
        kwargs["data_iterator"] = self.data_read(kwargs["data_iterator"], kwargs["model"], not kwargs["forward_only"],
                                                 kwargs["num_microbatches"])
        graphs, results = FullCudaGraphWrapper.cuda_graph, FullCudaGraphWrapper.result
        if graphs[stage] is None and self.curr_iter(stage) == self.cuda_graph_warmup_steps:
            self._record(stage, kwargs)
        if graphs[stage] is None:
            results[stage] = run_on(get_shared_capture_stream(), None, self.forward_backward_func, (), kwargs)
        else:
            graphs[stage].replay()
        self.next_iter(stage)
        return results[stage]

    def _record(self, stage: str, kwargs: dict[str, Any]) -> None:
        logger.info("%s: recording a CUDA graph", stage)
        torch = _torch()
        graph = _Recording(stage, _counts(kwargs["data_iterator"], kwargs["num_microbatches"]))
        _let_autograd_follow(torch)
        _meet_others(torch)
        FullCudaGraphWrapper.result[stage] = None
        try:
            FullCudaGraphWrapper.result[stage] = record_on(
                graph._graph, get_shared_capture_stream(), get_graph_pool(self.use_single_mempool), "thread_local",
                self.forward_backward_func, (), kwargs)
        except BaseException:
            self.next_iter(stage)  # past the one that is recorded
            raise
        FullCudaGraphWrapper.cuda_graph[stage] = graph
        torch.cuda.synchronize()
        _meet_others(torch)
        logger.info("%s: the CUDA graph is recorded", stage)

    def curr_iter(self, stage: str) -> int:
        """The number of the stage's next iteration, from 0."""
        return FullCudaGraphWrapper.curr_iteration[stage]

    def next_iter(self, stage: str) -> None:
        """Counts an iteration of the stage."""
        FullCudaGraphWrapper.curr_iteration[stage] += 1

    def reset_cuda_graph(self, stage: Optional[str] = None) -> None:
        """Forgets the recording, result and count of a stage, or of both: the warm-up begins again."""
        _must(stage is None or stage in _STAGES, "stage %r: None, or one of %s", stage, ", ".join(_STAGES))
        refuse_in_capture("reset_cuda_graph")
        for name in _STAGES if stage is None else (stage,):
            FullCudaGraphWrapper.cuda_graph[name] = None
            FullCudaGraphWrapper.result[name] = None
            FullCudaGraphWrapper.curr_iteration[name] = 0
        gc.collect()


def _iterators(data_iterator: Any, model: Any) -> list[Any]:
    """One for each chunk of the model."""
    chunks = len(model) if isinstance(model, list) else 1
    iterators = data_iterator if isinstance(data_iterator, list) else [data_iterator]
    _must(len(iterators) == chunks, "%d data iterators for a model of %d chunks", len(iterators), chunks)
    return list(iterators)


def _counts(iterators: list[Any], num_microbatches: int) -> list[Optional[int]]:
    return [None if iterator is None else num_microbatches for iterator in iterators]


def _let_autograd_follow(torch: Any) -> None:
    """Nodes of autograd that were made on another stream are captured with the others, where PyTorch can do that."""
    override = getattr(getattr(torch.autograd, "graph", None), "set_override_stale_capture_stream", None)
    if override is not None:
        override(True)


def _meet_others(torch: Any) -> None:
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.barrier()


__all__ = ["FullCudaGraphWrapper", "StaticBufferLoader", "clone_tensors_in_struct", "copy_tensors_in_struct",
           "get_graph_pool", "get_shared_capture_stream", "get_shared_graph_pool", "logger"]
