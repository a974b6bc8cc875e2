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
import weakref
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

    _open: dict[Optional[int], weakref.WeakSet[Stage]] = {}  # by handle: those of one name close as one

    def __init__(self, name: str, warmup_steps: int = 1, *, transparent: bool = False, single_pool: bool = False,
                 capture_error_mode: str = "global") -> None:
        if warmup_steps < 0:  # as an unsigned number it would never be over
            raise error(INVALID, "warmup_steps %d: 0 or more" % warmup_steps)
        options = StageOptions(
            bytes=sizeof(StageOptions), name=name.encode("utf-8"), warmup=warmup_steps,
            flags=_TRANSPARENT * transparent | _SINGLE_POOL * single_pool, mode=capture_mode(capture_error_mode))
        self.name = name
        self._handle = c_void_p()
        _library.call("stage_open", byref(options), byref(self._handle))
        Stage._open.setdefault(self._handle.value, weakref.WeakSet()).add(self)

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
        if self._handle:  # without one, the library resets all stages
            _library.call("stage_reset", self._handle)

    def close(self) -> None:
        """Resets, waits for work in progress, and frees the input buffers: of all stages of its name. Capturing, and it
        stays open, while this thread captures another graph."""
        _library.call("stage_close", self._handle)
        for stage in list(Stage._open.pop(self._handle.value, ())):
            stage._handle = c_void_p()


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


_Layout = tuple[tuple[int, ...], str]


class _Leaf:
    """One leaf of a static structure: a buffer, or a value."""

    def __init__(self, path: str, layout: Optional[_Layout], value: Any, number: int = -1) -> None:
        self.path, self.layout, self.value = path, layout, value
        self.number = number  # of a buffer that is the library's


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    try:
        return type(a) is type(b) and bool(a == b or (a != a and b != b))  # a NaN, too
    except Exception:  # whatever an object's own comparison may raise: they cannot be compared
        return False


class _Batch:
    """The static form of one structure."""

    def __init__(self, name: str, inputs: Any) -> None:
        self.name = name
        self.containers = shape_of(inputs)
        self.leaves: list[_Leaf] = []

    def _changed(self, path: str, what: str) -> Exception:
        return error(INVALID, "%s: input%s %s; what is recorded cannot follow: reset it to record anew"
                     % (self.name, path, what))

    def check(self, inputs: Any) -> list[tuple[_Leaf, Any]]:
        """(leaf, source) of all arrays. InvalidArgument when something else has changed."""
        if shape_of(inputs) != self.containers:
            raise self._changed("", "has other parts than before")
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


class _Load:
    """What a loader is to copy, once nothing more can be refused."""

    def __init__(self, stage: str, microbatch: int, batch: _Batch, inputs: Any,
                 pairs: list[tuple[_Leaf, Any]]) -> None:
        self.stage, self.microbatch, self.batch, self.inputs, self.pairs = stage, microbatch, batch, inputs, pairs


def copy_to_buffers(torch: Any, side: Any, device: Any, pairs: list[tuple[Any, Any]]) -> None:
    """Copies each (buffer, tensor) on a side stream: after what was submitted to the current stream so far, which
    may read the old contents, and before all that comes after."""
    current = torch.cuda.current_stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side), torch.no_grad():
        for buffer, tensor in pairs:
            buffer.copy_(tensor, non_blocking=True)
            if tensor.is_cuda:
                tensor.record_stream(side)
    current.wait_stream(side)


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
        self._sizes: dict[tuple[str, int], list[int]] = {}  # of the library's buffers, by number
        self._readers: dict[str, weakref.WeakSet[Graph]] = {}  # graphs that read a stage's buffers
        self._name = "loader %d" % next(StaticBufferLoader._numbers)
        self._stage_numbers = itertools.count()

    def __call__(self, inputs: Any, stage: str = "training", microbatch: int = 0) -> Any:
        """Copies `inputs` in. Returns the structure with the buffers in it."""
        refuse_in_capture("StaticBufferLoader")
        return self._copy([self._prepare(inputs, stage, microbatch, True)])[0]

    def _prepare(self, inputs: Any, stage: str, microbatch: int, frozen: bool) -> _Load:
        """Checks `inputs` and makes the buffers that are missing; nothing is copied yet. Unless `frozen`, anything
        may be other than before; an array that has kept its layout gets the same buffer again."""
        old = self._batches.get((stage, microbatch))
        if old is not None and frozen:
            return _Load(stage, microbatch, old, inputs, old.check(inputs))
        batch = _Batch(stage if microbatch < 0 else "%s, micro-batch %d" % (stage, microbatch), inputs)
        sources = list(leaves(inputs))
        layouts = [_layout(source) if _moves(source) else None for _, source in sources]
        known = {leaf.path: leaf for leaf in old.leaves if leaf.layout is not None} if old is not None else {}
        kept: list[Optional[_Leaf]] = []
        for (path, _), layout in zip(sources, layouts):
            leaf = known.pop(path, None)
            kept.append(leaf if leaf is not None and leaf.layout == layout else None)
        taken = {leaf.number for leaf in kept if leaf is not None}
        for found, (path, source), layout in zip(kept, sources, layouts):
            if found is None:
                found = _Leaf(path, layout, source)
                if layout is not None:
                    self._make_buffer(found, stage, microbatch, source, taken)
            batch.leaves.append(found)
        pairs = [(leaf, source) for leaf, (_, source) in zip(batch.leaves, sources) if leaf.layout is not None]
        return _Load(stage, microbatch, batch, inputs, pairs)

    def _make_buffer(self, leaf: _Leaf, stage: str, microbatch: int, source: Any, taken: set[int]) -> None:
        torch = torch_with_cuda()
        if torch is not None:
            with torch.no_grad():
                leaf.value = torch.empty_like(torch.as_tensor(source), device="cuda:%d" % self._device)
            return
        address, size = 0, contiguous_extent_of(source).bytes
        if size:
            if stage not in self._stages:
                name = "%s/%d/%s" % (self._name, next(self._stage_numbers), stage)  # no other's, even if it is cut
                self._stages[stage] = Stage(name.encode("utf-8")[:63].decode("utf-8", "ignore"))
            leaf.number, room = self._number_for(stage, microbatch, size, taken)
            address = self._stages[stage].input(microbatch, leaf.number, room)
            taken.add(leaf.number)
            self._sizes[(stage, microbatch)][leaf.number:leaf.number + 1] = [room]
        assert leaf.layout is not None
        leaf.value = DeviceArray(address, *leaf.layout, owner=self)

    def _number_for(self, stage: str, microbatch: int, size: int, taken: set[int]) -> tuple[int, int]:
        """The library's buffers stay until the stage is closed: the least one that is free and large enough, or else
        a new one, which is some larger when arrays grow."""
        sizes = self._sizes.setdefault((stage, microbatch), [])
        free = [(room, number) for number, room in enumerate(sizes) if number not in taken and room >= size]
        if free:
            room, number = min(free)
            return number, room
        grows = any(number not in taken for number in range(len(sizes)))
        return len(sizes), 1 << (size - 1).bit_length() if grows else size

    def _copy(self, loads: list[_Load]) -> list[Any]:
        """Copies what was prepared. The structures with the buffers in them."""
        torch = torch_with_cuda()
        if torch is not None:
            if self._side is None:
                self._side = torch.cuda.Stream(device=self._device)
            pairs = [(leaf.value, torch.as_tensor(source)) for load in loads for leaf, source in load.pairs]
            copy_to_buffers(torch, self._side, self._device, pairs)
        for load in loads:
            if torch is None:
                self._copy_by_library(load)
            self._batches[(load.stage, load.microbatch)] = load.batch
        return [load.batch.static(load.inputs) for load in loads]

    def _copy_by_library(self, load: _Load) -> None:
        for leaf, source in load.pairs:
            if leaf.value.nbytes:
                self._stages[load.stage].load(load.microbatch, leaf.number, source, self._consumer)

    def _read_by(self, stage: str, graph: Graph) -> None:
        """From now on, and while the graph exists, the stage's buffers stay what they are."""
        self._readers.setdefault(stage, weakref.WeakSet()).add(graph)

    def _not_read_by(self, stage: str, graph: Graph) -> None:
        self._readers.get(stage, weakref.WeakSet()).discard(graph)

    def _is_read(self, stage: str) -> bool:
        return bool(self._readers.get(stage))

    def reset(self, stage: Optional[str] = None) -> None:
        """Forgets a stage's buffers, or all. What was recorded with them must not be replayed any more."""
        for key in [key for key in self._batches if stage in (None, key[0])]:
            del self._batches[key]
            self._sizes.pop(key, None)
        for name in [name for name in self._readers if stage in (None, name)]:
            del self._readers[name]
        for name in [name for name in self._stages if stage in (None, name)]:
            self._stages.pop(name).close()

    def __del__(self) -> None:
        if not sys.is_finalizing() and self.__dict__.get("_stages"):
            with contextlib.suppress(Exception):
                self.reset()


class MicroBatches:
    """Reads data iterators. What they gave for a load that was refused is given first when they are read again."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], tuple[Any, list[Any]]] = {}

    def read(self, stage: str, iterators: Sequence[Any], n: int) -> list[Optional[list[Any]]]:
        """The next `n` micro-batches of each iterator; None for an iterator that is None."""
        batches: list[Optional[list[Any]]] = [None if it is None else [] for it in iterators]
        try:
            for chunk, (iterator, batch) in enumerate(zip(iterators, batches)):
                if batch is not None:
                    batch += self._take(stage, chunk, iterator, n)
                    while len(batch) < n:
                        batch.append(next(iterator))
        except BaseException:  # its end, too
            self.give_back(stage, iterators, batches)
            raise
        return batches

    def _take(self, stage: str, chunk: int, iterator: Any, n: int) -> list[Any]:
        of, items = self._kept.pop((stage, chunk), (None, []))
        if of is not iterator:
            return []
        if len(items) > n:
            self._kept[(stage, chunk)] = iterator, items[n:]
        return items[:n]

    def give_back(self, stage: str, iterators: Sequence[Any], batches: list[Optional[list[Any]]]) -> None:
        """They were not used."""
        for chunk, (iterator, batch) in enumerate(zip(iterators, batches)):
            if batch:
                of, items = self._kept.get((stage, chunk), (None, []))
                self._kept[(stage, chunk)] = iterator, batch + (items if of is iterator else [])


# ---- whole iterations ----

_TRACKERS = ("megatron.core.tensor_parallel.random", "transformer_engine.pytorch.distributed")


def _states_of(module: Any) -> dict[Any, Any]:
    """What a module's tracker of random numbers tracks, by name."""
    if hasattr(module, "get_all_rng_states"):
        try:
            return dict(module.get_all_rng_states() or {})
        except AssertionError:  # it tracks nothing yet
            return {}
    if hasattr(module, "get_cuda_rng_tracker"):
        return dict(module.get_cuda_rng_tracker().get_states())
    return {}


def tracked_generators(torch: Any) -> list[Any]:
    """The torch.Generators that the trackers of Megatron-LM and Transformer Engine hand to their models, as far as the
    program uses these packages. States that are no generators cannot be set during a capture."""
    found: list[Any] = []
    for name in _TRACKERS:
        for state in _states_of(sys.modules.get(name)).values():
            if isinstance(state, getattr(torch, "Generator", ())) and not any(state is other for other in found):
                found.append(state)
    return found


def run_on(stream: Any, device: Any, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Calls `fn` on a stream, between what the current stream has got and what it gets."""
    torch = torch_with_cuda()
    if torch is None:
        return fn(*args, **kwargs)
    current = torch.cuda.current_stream(device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        result = fn(*args, **kwargs)
    current.wait_stream(stream)
    return result


def record_on(graph: Graph, stream: Any, pool: Any, mode: str, fn: Callable[..., Any], args: Any,
              kwargs: dict[str, Any], generators: Sequence[Any] = ()) -> Any:
    """Captures a call of `fn`; its result. Random numbers of the generators given, and of those that are tracked, go
    on from replay to replay."""
    if not graph.native:
        generators = [*generators, *tracked_generators(torch_with_cuda())]
    for generator in generators:
        graph.register_generator_state(generator)
    gc.collect()  # what dies during a capture may call the driver
    with graph.capture(pool=pool, stream=stream, capture_error_mode=mode):
        return fn(*args, **kwargs)


class _State:
    """Of one stage."""

    def __init__(self) -> None:
        self.done = 0
        self.running = False
        self.eager = False
        self.graph: Optional[Graph] = None
        self.read: list[bool] = []  # which iterators were, when it was recorded
        self.result: Any = None


class FullIterationGraph:
    """A function that is a whole iteration: called `warmup_steps` times, then recorded, then replayed.

        step = allograft.FullIterationGraph(train_step, warmup_steps=3)
        for batch in data:
            loss = step(batch)                          # the same tensor each time it is replayed
        step(batch, stage="validation")                 # counted and recorded apart

    `fn(*args, **kwargs)`: all it does to the device must be capturable (no .item(), no printing of tensors), and
    what it does on the host is not repeated. Arrays among the arguments, nested ones too, are copied into static
    buffers (StaticBufferLoader). Until it is recorded, and when it cannot be, anything may change from call to call.
    Once it is recorded, arrays keep shape and element type and all other arguments must stay equal; else
    InvalidArgument. Its result is kept, and every replay overwrites the tensors in it: copy what is to last.

    `single_pool`: stages, and all others that use shared_graph_pool(), share one pool of memory: less is taken, and
    what one stage's result holds is safe, but nothing else may be carried from one stage to the next.
    `generators`: torch.Generators that fn draws from, beside the default one and those of the trackers of Megatron-LM
    and Transformer Engine. `stream`: where fn runs and is
    recorded; None is shared_capture_stream(). Warm-up runs there too, so that autograd finds the same stream again.
    Without PyTorch, fn submits its work to the attribute `stream`, and `native` graphs are made.

    A `data_iterator` argument, with `num_microbatches`, is read as Megatron's schedules do: that many items, each
    into buffers of its own, and fn gets an iterator over these; lists of iterators too. What was read for a call that
    is then refused is not lost: the next call with the same iterator gets it first. `forward_only=True` makes the
    stage "validation" where none is given.

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
        self._data = MicroBatches()

    def __call__(self, *args: Any, stage: Optional[str] = None, **kwargs: Any) -> Any:
        """One iteration. Returns what fn returned, or the same objects again with new contents."""
        refuse_in_capture("FullIterationGraph")
        name = stage if stage is not None else "validation" if kwargs.get("forward_only") else "training"
        state = self._states.setdefault(name, _State())
        if state.running:
            raise WrongState(STATE, "%s: an iteration is under way already" % name)
        state.running = True
        try:
            args, kwargs = self._load(name, state, args, kwargs)
            if state.eager or state.done < self.warmup_steps:
                state.result = run_on(self.stream, self.device, self.fn, args, kwargs)
            else:
                if state.graph is None:
                    self._record(name, state, args, kwargs)
                self._replay(state)
            state.done += 1
        finally:
            state.running = False
        return state.result

    def _load(self, stage: str, state: _State, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The arguments with static buffers in them. Either all of them are loaded or none is."""
        count, frozen = kwargs.get("num_microbatches"), self.loader._is_read(stage)
        others = dict(kwargs)
        given = others.pop("data_iterator", None) if isinstance(count, int) else None
        load = self.loader._prepare((args, others), stage, -1, frozen)
        if given is None:
            args, others = self.loader._copy([load])[0]
            return args, {**others, **{key: kwargs[key] for key in ("data_iterator",) if key in kwargs}}
        several = isinstance(given, (list, tuple))
        iterators = list(given) if several else [given]
        self._check_iterators(stage, state, iterators)
        batches = self._data.read(stage, iterators, count or 0)
        try:  # a chunk is a part of the model
            loads = [self.loader._prepare(item, stage, chunk * (count or 0) + i, frozen)
                     for chunk, batch in enumerate(batches) for i, item in enumerate(batch or ())]
        except BaseException:
            self._data.give_back(stage, iterators, batches)
            raise
        (args, others), *static = self.loader._copy([load, *loads])
        rest = iter(static)
        read = [None if batch is None else iter([next(rest) for _ in batch]) for batch in batches]
        return args, {**others, "data_iterator": read if several else read[0]}

    def _check_iterators(self, stage: str, state: _State, iterators: list[Any]) -> None:
        read = [iterator is not None for iterator in iterators]
        if state.graph is None:
            state.read = read
        elif read != state.read:
            raise error(INVALID, "%s: the data iterators that are None are others than what was recorded; reset it to "
                        "record anew" % stage)

    def _record(self, name: str, state: _State, args: Any, kwargs: dict[str, Any]) -> None:
        graph = Graph()
        pool = shared_graph_pool(self.device, native=graph.native) if self.single_pool else None
        state.result = None
        try:
            state.result = record_on(graph, self.stream, pool, self._mode, self.fn, args, kwargs, self.generators)
        except BaseException:
            state.eager, state.result = True, None
            raise
        state.graph = graph
        self.loader._read_by(name, graph)

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
        """Forgets the recording, result and count of a stage, or of all: the warm-up begins again, and arguments may
        be new ones. `inputs`: the static buffers too."""
        refuse_in_capture("reset")
        for name in [name for name in self._states if stage in (None, name)]:
            state = self._states[name]
            if state.running:
                raise WrongState(STATE, "%s: an iteration is under way" % name)
            del self._states[name]
            state.result = None
            if state.graph is not None:
                self.loader._not_read_by(name, state.graph)
                state.graph.reset()
        if inputs:
            self.loader.reset(stage)
        gc.collect()
        torch = torch_with_cuda()
        if torch is not None:
            torch.cuda.empty_cache()  # gives back the pool, where nobody else uses it


__all__ = ["Action", "FullIterationGraph", "Stage", "StaticBufferLoader"]
