"""Whole iterations: run a few times, recorded once, replayed from then on.

Stage is the library's own: the caller runs the body. FullIterationGraph calls a function, feeds it from static
inputs and keeps its results. StaticBufferLoader holds such inputs.
"""
from __future__ import annotations

import array
import contextlib
import ctypes
import enum
import gc
import itertools
import sys
from ctypes import byref, c_int, c_uint64, c_void_p, sizeof
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

from . import _library
from ._interop import (DeviceArray, contiguous_extent_of, device_number, is_torch_tensor, refuse_in_capture,
                       stream_handle, torch_with_cuda)
from ._library import INVALID, STATE, StageOptions, WrongState, error
from ._nested import leaves, rebuild, shape_of
from .graphs import Graph, capture_mode, shared_capture_stream, shared_graph_pool


# ---- stages ----

class Action(enum.IntEnum):
    """What to do with the body of an iteration."""

    RUN = 0
    """Run it."""
    RECORD = 1
    """Run it: it is recorded, and its work is done at the iteration's end."""
    SKIP = 2
    """Do not run it: its work is done at the iteration's end."""


_TRANSPARENT, _SINGLE_POOL = 1, 2


class Stage:
    """A kind of iteration: the first `warmup_steps` run, the next one is recorded, all others are replayed.

        training = allograft.Stage("training", warmup_steps=3)
        with training.iteration(stream) as action:
            if action != allograft.Action.SKIP:
                body(stream)

    `name`: at most 63 bytes; stages of the same name are the same one, and the first one's options count.
    `transparent`: the body runs in every iteration, and only where iterations begin is told; where the library
    replays streams by itself (ALLOGRAFT_GRAPH) that is where their segments begin. `single_pool`: one pool for all
    stages of the device that say so. For tensors made in the body see FullIterationGraph.
    """

    def __init__(self, name: str, warmup_steps: int = 1, *, transparent: bool = False, single_pool: bool = False,
                 capture_error_mode: str = "global") -> None:
        options = StageOptions(
            bytes=sizeof(StageOptions), name=name.encode("utf-8"), warmup=warmup_steps,
            flags=_TRANSPARENT * transparent | _SINGLE_POOL * single_pool, mode=capture_mode(capture_error_mode))
        self.name = name
        self._handle = c_void_p()
        _library.call("stage_open", byref(options), byref(self._handle))

    def begin(self, stream: Any = None) -> Action:
        """Begins an iteration on a stream, which is none of the default ones unless the stage is transparent."""
        action = c_int()
        _library.call("stage_begin", self._handle, stream_handle(stream), byref(action))
        return Action(action.value)

    def end(self) -> None:
        """Ends it; its work is then submitted, whatever the action was. DriverError when what was recorded cannot be
        a graph: the work was not done, the iteration does not count, and all later ones run."""
        _library.call("stage_end", self._handle)

    @contextlib.contextmanager
    def iteration(self, stream: Any = None) -> Iterator[Action]:
        """An iteration around the body of a `with`. When the body fails the stage is reset."""
        action = self.begin(stream)
        try:
            yield action
        except BaseException:
            self.reset()
            raise
        self.end()

    def _numbers(self) -> tuple[int, int]:
        current, following = c_uint64(), c_uint64()
        _library.call("stage_iteration", self._handle, byref(current), byref(following))
        return (-1 if current.value == 2**64 - 1 else current.value), following.value

    @property
    def current_iteration(self) -> int:
        """The number, from 0, of the iteration under way, or else of the last that ended; -1: none yet."""
        return self._numbers()[0]

    @property
    def next_iteration(self) -> int:
        """The number of the one that begins next."""
        return self._numbers()[1]

    def input(self, micro_batch: int, number: int, size: int) -> int:
        """The device address of an input buffer of `size` bytes: the same in every iteration."""
        address = c_void_p()
        _library.call("stage_input", self._handle, micro_batch, number, size, byref(address))
        return address.value or 0

    def load(self, micro_batch: int, number: int, source: Any, stream: Any = None) -> None:
        """Fills an input buffer from an array on host or device, on a side stream: after what was submitted to
        `stream` so far, and before all that comes after."""
        extent = contiguous_extent_of(source)
        _library.call("stage_load", self._handle, micro_batch, number, extent.address, extent.bytes,
                      stream_handle(stream))

    def reset(self) -> None:
        """Forgets the recording and the count. Input buffers stay."""
        _library.call("stage_reset", self._handle)

    def close(self) -> None:
        """Resets, waits for work in progress, and frees the input buffers."""
        handle, self._handle = self._handle, c_void_p()
        _library.call("stage_close", handle)


# ---- static inputs ----

_HOST_ARRAYS = (bytearray, memoryview, array.array, ctypes.Array)
_FORMATS = {**dict.fromkeys("fde", "f"), **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQNc", "u"), "?": "b"}


def _is_array(leaf: Any) -> bool:
    if is_torch_tensor(leaf):
        return True
    if callable(getattr(leaf, "data_ptr", None)) and callable(getattr(leaf, "numel", None)):
        return True
    kind = type(leaf)
    return (hasattr(leaf, "__cuda_array_interface__") or isinstance(leaf, _HOST_ARRAYS) or
            (kind.__module__ == "numpy" and kind.__name__ == "ndarray"))


def _layout(leaf: Any) -> tuple[tuple[int, ...], str]:
    """Shape and element type of an array, for comparing and for DeviceArray."""
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(leaf, name, None) if not is_torch_tensor(leaf) else None
        if isinstance(interface, dict):
            return tuple(interface["shape"]), str(interface["typestr"])
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return tuple(leaf.shape), str(leaf.dtype)
    if callable(getattr(leaf, "data_ptr", None)):
        return (int(leaf.numel()),), "u%d" % int(leaf.element_size())
    view = memoryview(leaf)
    kind = _FORMATS.get(view.format[-1:], "u")
    return tuple(view.shape or (view.nbytes,)), "%s%d" % (kind, view.itemsize)


class _Leaf:
    """One leaf of a static structure: a buffer, or a value that must stay what it is."""

    def __init__(self, path: str, layout: Optional[tuple[tuple[int, ...], str]], value: Any) -> None:
        self.path, self.layout, self.value = path, layout, value


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:  # whatever an object's own comparison may raise: they cannot be compared
        return False


class _Batch:
    """The static form of one structure."""

    def __init__(self, name: str, inputs: Any) -> None:
        self.name = name
        self.containers = shape_of(inputs)
        self.leaves: list[_Leaf] = []

    def _changed(self, path: str, what: str) -> Exception:
        return error(INVALID, "%s: input%s %s; what is recorded cannot follow: reset it, inputs too, to record anew"
                     % (self.name, path, what))

    def check(self, inputs: Any) -> list[tuple[_Leaf, Any]]:
        """(leaf, source) of all arrays. InvalidArgument when something else has changed."""
        if shape_of(inputs) != self.containers:
            raise self._changed("", "has other parts than the first time")
        pairs = []
        for leaf, (path, source) in zip(self.leaves, leaves(inputs)):
            is_buffer = _moves(source)
            if is_buffer != (leaf.layout is not None):
                raise self._changed(path, "was %s an array" % ("not" if is_buffer else "once"))
            if leaf.layout is None:
                if not _same(leaf.value, source):
                    raise self._changed(path, "changed from %.80r to %.80r" % (leaf.value, source))
                continue
            if leaf.layout != _layout(source):
                raise self._changed(path, "changed from %s %s to %s %s" % (leaf.layout[::-1] + _layout(source)[::-1]))
            pairs.append((leaf, source))
        return pairs

    def static(self, inputs: Any) -> Any:
        """The structure with the buffers in the arrays' place."""
        sources = (source for _, source in leaves(inputs))
        return rebuild(inputs, iter([source if leaf.layout is None else leaf.value
                                     for leaf, source in zip(self.leaves, sources)]))


def _moves(leaf: Any) -> bool:
    """Is it copied into a buffer? Parameters are not: they are used where they are."""
    if not _is_array(leaf):
        return False
    torch = torch_with_cuda()
    if torch is None or not isinstance(leaf, torch.Tensor):
        return True
    if isinstance(leaf, torch.nn.Parameter):
        return False
    if leaf.requires_grad:
        raise error(INVALID, "an input tensor requires grad, which would not flow through the copy: detach() it")
    return True


class StaticBufferLoader:
    """Static inputs: nested dicts, lists, tuples and dataclasses, whose arrays are copied into device buffers that
    are the same at every call, one set for each stage and micro-batch.

        loader = allograft.StaticBufferLoader()
        static = loader(batch, stage="training", microbatch=0)    # the same tensors each time

    Copies go by a side stream: after all that was submitted to the current stream, which may read the old contents,
    and before all that comes after. Arrays keep shape and element type; whatever is no array is kept and must stay
    equal, Parameters must stay the same objects; else InvalidArgument. With PyTorch the buffers are tensors of
    `device`, wherever the source was; else DeviceArray, and `stream` says where the buffers are used.
    """

    _numbers = itertools.count()

    def __init__(self, device: Any = None, stream: Any = None) -> None:
        self._device = device_number(device)
        self._consumer = stream
        self._side: Any = None
        self._batches: dict[tuple[str, int], _Batch] = {}
        self._stages: dict[str, Stage] = {}
        self._name = "loader %d" % next(StaticBufferLoader._numbers)

    def __call__(self, inputs: Any, stage: str = "training", microbatch: int = 0) -> Any:
        """Copies `inputs` in. Returns the structure with the buffers in it."""
        refuse_in_capture("StaticBufferLoader")
        torch = torch_with_cuda()
        batch = self._batches.get((stage, microbatch))
        if batch is None:
            batch = _Batch(stage if microbatch < 0 else "%s, micro-batch %d" % (stage, microbatch), inputs)
            for number, (path, source) in enumerate(leaves(inputs)):
                layout = _layout(source) if _moves(source) else None
                value = source if layout is None else self._buffer(torch, stage, microbatch, number, source, layout)
                batch.leaves.append(_Leaf(path, layout, value))
            pairs = [(leaf, source) for leaf, (_, source) in zip(batch.leaves, leaves(inputs)) if leaf.layout]
        else:
            pairs = batch.check(inputs)
        if torch is not None:
            self._copy_by_torch(torch, pairs)
        else:
            self._copy_by_library(stage, microbatch, batch, pairs)
        self._batches[(stage, microbatch)] = batch
        return batch.static(inputs)

    def _buffer(self, torch: Any, stage: str, microbatch: int, number: int, source: Any,
                layout: tuple[tuple[int, ...], str]) -> Any:
        if torch is not None:
            with torch.no_grad():
                return torch.empty_like(torch.as_tensor(source), device="cuda:%d" % self._device)
        if stage not in self._stages:
            self._stages[stage] = Stage(("%s/%s" % (self._name, stage))[:63])
        size = contiguous_extent_of(source).bytes
        return DeviceArray(self._stages[stage].input(microbatch, number, size) if size else 0, *layout, owner=self)

    def _copy_by_torch(self, torch: Any, pairs: list[tuple[_Leaf, Any]]) -> None:
        if self._side is None:
            self._side = torch.cuda.Stream(device=self._device)
        current = torch.cuda.current_stream(self._device)
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side), torch.no_grad():
            for leaf, source in pairs:
                tensor = torch.as_tensor(source)
                leaf.value.copy_(tensor, non_blocking=True)
                if tensor.is_cuda:
                    tensor.record_stream(self._side)
        current.wait_stream(self._side)

    def _copy_by_library(self, stage: str, microbatch: int, batch: _Batch, pairs: list[tuple[_Leaf, Any]]) -> None:
        numbers = {id(leaf): number for number, leaf in enumerate(batch.leaves)}
        for leaf, source in pairs:
            if leaf.value.nbytes:
                self._stages[stage].load(microbatch, numbers[id(leaf)], source, self._consumer)

    def reset(self, stage: Optional[str] = None) -> None:
        """Forgets a stage's buffers, or all. What was recorded with them must not be replayed any more."""
        for key in [key for key in self._batches if stage in (None, key[0])]:
            del self._batches[key]
        for name in [name for name in self._stages if stage in (None, name)]:
            self._stages.pop(name).close()

    def __del__(self) -> None:
        if not sys.is_finalizing() and self.__dict__.get("_stages"):
            with contextlib.suppress(Exception):
                self.reset()


# ---- whole iterations ----

class _State:
    """Of one stage."""

    def __init__(self) -> None:
        self.done = 0
        self.running = False
        self.eager = False
        self.graph: Optional[Graph] = None
        self.result: Any = None


class FullIterationGraph:
    """A function that is a whole iteration: called `warmup_steps` times, then recorded, then replayed.

        step = allograft.FullIterationGraph(train_step, warmup_steps=3)
        for batch in data:
            loss = step(batch)                          # the same tensor each time it is replayed
        step(batch, stage="validation")                 # counted and recorded apart

    `fn(*args, **kwargs)`: all it does to the device must be capturable (no .item(), no printing of tensors), and
    what it does on the host is not repeated. Arrays among the arguments, nested ones too, are copied into static
    buffers (StaticBufferLoader); all other arguments must stay equal from call to call. Its result is kept, and
    every replay overwrites the tensors in it: copy what is to last.

    `single_pool`: stages, and all others that use shared_graph_pool(), share one pool of memory: less is taken, and
    what one stage's result holds is safe, but nothing else may be carried from one stage to the next.
    `generators`: torch.Generators beside the default one that fn draws from. `stream`: where fn runs and is
    recorded; None is shared_capture_stream(). Warm-up runs there too, so that autograd finds the same stream again.
    Without PyTorch, fn submits its work to the attribute `stream`, and `native` graphs are made.

    A `data_iterator` argument, with `num_microbatches`, is read as Megatron's schedules do: that many items, each
    into buffers of its own, and fn gets an iterator over these; lists of iterators too. `forward_only=True` makes
    the stage "validation" where none is given.

    When fn cannot be recorded the error is raised, the iteration does not count, and later ones run as they are.
    """

    def __init__(self, fn: Callable[..., Any], warmup_steps: int = 1, single_pool: bool = False, *,
                 loader: Optional[StaticBufferLoader] = None, stream: Any = None, device: Any = None,
                 capture_error_mode: str = "thread_local", generators: Sequence[Any] = ()) -> None:
        if warmup_steps < 0:
            raise error(INVALID, "warmup_steps %d: 0 or more" % warmup_steps)
        capture_mode(capture_error_mode)
        self.fn = fn
        self.warmup_steps = warmup_steps
        self.single_pool = single_pool
        self.generators = tuple(generators)
        self.device = device_number(device)
        torch = torch_with_cuda()
        if torch is not None and isinstance(stream, int):
            stream = torch.cuda.ExternalStream(stream, device=self.device)
        self.stream = shared_capture_stream(self.device) if stream is None else stream
        self.loader = StaticBufferLoader(self.device, self.stream) if loader is None else loader
        self._mode = capture_error_mode
        self._states: dict[str, _State] = {}

    def __call__(self, *args: Any, stage: Optional[str] = None, **kwargs: Any) -> Any:
        """One iteration. Returns what fn returned, or the same objects again with new contents."""
        refuse_in_capture("FullIterationGraph")
        name = stage if stage is not None else "validation" if kwargs.get("forward_only") else "training"
        state = self._states.setdefault(name, _State())
        if state.running:
            raise WrongState(STATE, "%s: an iteration is under way already" % name)
        state.running = True
        try:
            args, kwargs = self._load(name, args, kwargs)
            if state.eager or state.done < self.warmup_steps:
                state.result = self._run(args, kwargs)
            else:
                if state.graph is None:
                    self._record(state, args, kwargs)
                self._replay(state)
            state.done += 1
        finally:
            state.running = False
        return state.result

    def _load(self, stage: str, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        count = kwargs.get("num_microbatches")
        others = dict(kwargs)
        iterators = others.pop("data_iterator", None) if isinstance(count, int) else None
        args, others = self.loader((args, others), stage, -1)
        if iterators is not None:
            several = isinstance(iterators, (list, tuple))
            read = [self._read(stage, i, it, count) for i, it in enumerate(iterators if several else [iterators])]
            others["data_iterator"] = read if several else read[0]
        elif "data_iterator" in kwargs:
            others["data_iterator"] = kwargs["data_iterator"]
        return args, others

    def _read(self, stage: str, chunk: int, iterator: Any, n: Any) -> Any:
        """The next micro-batches of an iterator, as an iterator over static ones. A chunk is a part of the model."""
        if iterator is None:
            return None
        return iter([self.loader(next(iterator), stage, chunk * n + i) for i in range(n)])

    def _run(self, args: Any, kwargs: dict[str, Any]) -> Any:
        torch = torch_with_cuda()
        if torch is None:
            return self.fn(*args, **kwargs)
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            result = self.fn(*args, **kwargs)
        current.wait_stream(self.stream)
        return result

    def _record(self, state: _State, args: Any, kwargs: dict[str, Any]) -> None:
        graph = Graph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        pool = shared_graph_pool(self.device, native=graph.native) if self.single_pool else None
        state.result = None
        gc.collect()  # what dies during a capture may call the driver
        try:
            with graph.capture(pool=pool, stream=self.stream, capture_error_mode=self._mode):
                state.result = self.fn(*args, **kwargs)
        except BaseException:
            state.eager, state.result = True, None
            raise
        state.graph = graph

    def _replay(self, state: _State) -> None:
        assert state.graph is not None
        state.graph.replay(self.stream if state.graph.native else None)

    def result(self, stage: str = "training") -> Any:
        """What the stage's last iteration returned; None before the first."""
        state = self._states.get(stage)
        return None if state is None else state.result

    def is_recorded(self, stage: str = "training") -> bool:
        """Are the stage's iterations replayed?"""
        state = self._states.get(stage)
        return state is not None and state.graph is not None

    def current_iteration(self, stage: str = "training") -> int:
        """The number, from 0, of the stage's iteration under way, or else of the last that ended; -1: none yet."""
        state = self._states.get(stage)
        return -1 if state is None else state.done - (not state.running)

    def next_iteration(self, stage: str = "training") -> int:
        """The number of the stage's iteration that begins next."""
        return self.current_iteration(stage) + 1

    def reset(self, stage: Optional[str] = None, *, inputs: bool = False) -> None:
        """Forgets the recording, result and count of a stage, or of all: the warm-up begins again. `inputs`: the
        static buffers too, so that shapes and other arguments may be new ones."""
        refuse_in_capture("reset")
        for name in [name for name in self._states if stage in (None, name)]:
            state = self._states[name]
            if state.running:
                raise WrongState(STATE, "%s: an iteration is under way" % name)
            del self._states[name]
            state.result = None
            if state.graph is not None:
                state.graph.reset()
        if inputs:
            self.loader.reset(stage)
        gc.collect()
        torch = torch_with_cuda()
        if torch is not None:
            torch.cuda.empty_cache()  # gives back the pool, where nobody else uses it


__all__ = ["Action", "FullIterationGraph", "Stage", "StaticBufferLoader"]
