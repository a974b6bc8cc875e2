"""Transfer rings: batches from host slots to device slots on a copy stream of their own."""
from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading
from ctypes import byref, c_int, c_size_t, c_void_p, sizeof
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional

from . import _library
from ._interop import (DeviceArray, Extent, as_torch, contiguous_extent_of, count, device_number, extent_of, item_bytes,
                       stream_handle, torch_dtype, torch_module, torch_with_cuda, type_string)
from ._library import INVALID, STATE, Capturing, RingOptions, RingPropertiesStruct, RingRecordStruct, WrongState, error

BACKENDS = ("auto", "pinned", "bounce", "pageable")
"""pinned: host slots are pinned in place, shared memory too. bounce: submit copies to pinned memory first. pageable:
the driver copies, and submit waits for it. Each slot gets the best that works, no better than the ring's."""

_ALIGNMENT = 256
_MOST_RECORDS = 256


class Field(NamedTuple):
    """A part of each slot."""

    offset: int  # bytes
    shape: tuple[int, ...]
    dtype: Any
    bytes: int


class RingProperties(NamedTuple):
    """How a slot's bytes travel."""

    backend: str
    pinned: bool  # the copy engine reads pinned memory
    async_submit: bool  # submit returns before the bytes are read
    timing: bool  # copies are timed


class RingRecord(NamedTuple):
    """One submit."""

    sequence: int  # from 1
    submit_ns: int  # CLOCK_MONOTONIC
    bytes: int
    copy_ms: Optional[float]  # on the device; None while it runs, or without timing
    slot: int


def _fields(layout: Mapping[str, tuple[Any, Any]]) -> dict[str, Field]:
    fields, offset = {}, 0
    for name, (shape, dtype) in layout.items():
        shape = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
        if any(extent < 0 for extent in shape):  # else the fields behind it would begin before the slot
            raise error(INVALID, "%s: shape %s: no extent may be below 0" % (name, shape))
        size = count(shape) * item_bytes(type_string(dtype))
        fields[name] = Field(offset, shape, dtype, size)
        offset += -(-size // _ALIGNMENT) * _ALIGNMENT
    return fields


class TransferRing:
    """`depth` pairs of a host slot and a device slot. A producer fills a host slot and submits it; a consumer waits
    for it and says which stream reads it; the slot's next submit overwrites it only after that.

        with allograft.TransferRing(2, {"obs": ((64, 17), "float32"), "reward": ((64,), "float32")}) as ring:
            for slot in range(2):
                ring.register(slot)
            for i, batch in enumerate(batches):
                slot = i % 2
                if i >= 2:
                    ring.wait_host(slot)             # the host slot has been read
                ring.host(slot)["obs"][:] = batch.obs
                ring.submit(slot)
                with ring.reading(slot) as device:   # on the current stream
                    train(device["obs"], device["reward"])

    `layout`: name -> (shape, dtype) of what a slot holds, each at a multiple of 256 bytes; or `slot_bytes`. With
    neither, a ring has no slots of its own, but copy() between the caller's memory.
    `timing`: copies are timed, see trace(). `backend`: the best that is allowed, of BACKENDS.

    A producing and a consuming thread may use one ring at once.
    """

    def __init__(self, depth: int = 2, layout: Optional[Mapping[str, tuple[Any, Any]]] = None, *,
                 slot_bytes: Optional[int] = None, device: Any = None, timing: bool = False,
                 backend: str = "auto") -> None:
        if layout is not None and slot_bytes is not None:
            raise error(INVALID, "a ring has either a layout or slot_bytes")
        if slot_bytes is not None and slot_bytes < 1:
            raise error(INVALID, "slot_bytes %d: 1 or more" % slot_bytes)
        if backend not in BACKENDS:
            raise error(INVALID, "backend %r: one of %s" % (backend, ", ".join(BACKENDS)))
        self.fields = _fields(layout or {})
        if slot_bytes is None:
            slot_bytes = max((field.offset + field.bytes for field in self.fields.values()), default=0)
        self.depth, self.slot_bytes = depth, slot_bytes
        self.device_index = device_number(device)
        self._lock = threading.Lock()
        self._memory: list[Any] = [None] * max(depth, 0)  # what was registered, and a hold on it
        self._host: list[Any] = [None] * max(depth, 0)
        self._device: list[Any] = [None] * max(depth, 0)
        self._pinned: list[Any] = []
        self._handle = c_void_p()
        options = RingOptions(bytes=sizeof(RingOptions), device=self.device_index, depth=max(depth, 0),
                              slot_bytes=slot_bytes, flags=int(timing), backend=BACKENDS.index(backend))
        _library.call("ring_open", byref(options), byref(self._handle))

    def _open(self) -> c_void_p:
        if not self._handle:
            raise WrongState(STATE, "the ring is closed")
        return self._handle

    def _call(self, function: str, slot: int, *arguments: Any) -> None:
        if not 0 <= slot < self.depth:
            raise error(INVALID, "slot %d: there are %d, from 0" % (slot, self.depth))
        with self._lock:
            _library.call(function, self._open(), slot, *arguments)

    # ---- slots ----

    def register(self, slot: int, memory: Any = None) -> Any:
        """From now on `memory` is the host slot: at least slot_bytes long, contiguous and writable. A numpy array, a
        torch tensor of the host, multiprocessing.shared_memory.SharedMemory, mmap, bytearray; None makes one. It is
        held until another is registered or the ring is closed. Returns it.

        It is pinned in place where that is allowed and possible; two slots on one page of memory cannot both be."""
        if memory is None:
            memory = mmap.mmap(-1, self.slot_bytes)
        extent, hold = _hold_host(memory, "host slot %d" % slot)
        self._call("ring_register", slot, extent.address, extent.bytes)
        self._memory[slot] = (memory, hold)
        self._host[slot] = None
        return memory

    def host_bytes(self, slot: int) -> memoryview:
        """The host slot's slot_bytes bytes, whatever they were registered as."""
        held = self._memory[slot]
        if held is None:
            raise WrongState(STATE, "no host slot %d is registered" % slot)
        block = (ctypes.c_ubyte * self.slot_bytes).from_address(extent_of(held[0]).address)
        block._held = held  # type: ignore[attr-defined]
        return memoryview(block).cast("B")

    def host(self, slot: int) -> dict[str, Any]:
        """The layout's parts of the host slot, in place: as numpy arrays where numpy has been imported, else as torch
        tensors where torch has, else as memoryviews of bytes."""
        if self._host[slot] is None:
            view = self.host_bytes(slot)
            self._host[slot] = {name: _host_view(view[f.offset:f.offset + f.bytes], f)
                                for name, f in self.fields.items()}
        return dict(self._host[slot])

    def device_address(self, slot: int) -> int:
        """The device slot's address: aligned to 256 bytes, valid until the ring is closed."""
        address = c_void_p()
        self._call("ring_device_slot", slot, byref(address))
        return address.value or 0

    def device_bytes(self, slot: int) -> Any:
        """The device slot as an array of bytes: a torch tensor where PyTorch can use the device, else DeviceArray."""
        return self._view(self.device_address(slot), Field(0, (self.slot_bytes,), "uint8", self.slot_bytes))

    def device(self, slot: int) -> dict[str, Any]:
        """The layout's parts of the device slot, in place: torch tensors where PyTorch can use the device, else
        DeviceArray. They are not to be used once the ring is closed."""
        if self._device[slot] is None:
            address = self.device_address(slot)
            self._device[slot] = {name: self._view(address + field.offset, field)
                                  for name, field in self.fields.items()}
        return dict(self._device[slot])

    def _view(self, address: int, field: Field) -> Any:
        torch = torch_with_cuda()
        if torch is not None:
            return as_torch(torch, address, field.shape, field.dtype, self.device_index, self)
        return DeviceArray(address, field.shape, field.dtype, self)

    # ---- copies ----

    def submit(self, slot: int, size: Optional[int] = None) -> None:
        """Copies the host slot, or its first `size` bytes, to the device slot, after the slot's readers."""
        self._call("ring_submit", slot, self.slot_bytes if size is None else size)

    def pin(self, memory: Any) -> None:
        """Pins memory of the host in place, for copy(): whatever register() takes. It is held until the ring is
        closed. DriverError when it cannot be pinned."""
        extent, hold = _hold_host(memory, "pin")
        with self._lock:
            _library.call("ring_pin", self._open(), extent.address, extent.bytes)
            self._pinned.append((memory, hold))

    def copy(self, slot: int, target: Any = None, source: Any = None) -> None:
        """A submit between the caller's own memory: `source` of the host to `target` of the device, arrays of the
        same number of bytes, both contiguous. The copy comes after the slot's readers, and then the slot is ready.
        Out of pinned memory it is asynchronous: both must live until then. Without both: the slot is ready when all
        that was submitted to `stream` so far is done."""
        to = from_ = Extent(0, 0, 0, None)
        if target is not None or source is not None:
            to, from_ = contiguous_extent_of(target), contiguous_extent_of(source)
        if to.on_device is False or from_.on_device:
            raise error(INVALID, "copy: from memory of the host to memory of the device")
        if to.bytes != from_.bytes:
            raise error(INVALID, "copy of %d bytes into %d" % (from_.bytes, to.bytes))
        self._call("ring_copy", slot, to.address, from_.address, to.bytes)

    @property
    def stream(self) -> int:
        """The handle of the ring's copy stream, valid until the ring is closed."""
        found = c_void_p()
        with self._lock:
            _library.call("ring_stream", self._open(), byref(found))
        return found.value or 0

    def clear(self, slot: int) -> None:
        """The slot is not ready until its next submit has come through."""
        self._call("ring_clear", slot)

    def query(self, slot: int) -> bool:
        """Has the last submit come through? Never true for a slot that was cleared."""
        ready = c_int()
        self._call("ring_query", slot, byref(ready))
        return bool(ready.value)

    def wait_host(self, slot: int) -> None:
        """Waits until the slot is ready. WrongState when nothing was submitted since it was cleared."""
        if not 0 <= slot < self.depth:
            raise error(INVALID, "slot %d: there are %d, from 0" % (slot, self.depth))
        _library.call("ring_wait_host", self._open(), slot)  # others may go on meanwhile

    def wait_stream(self, slot: int, stream: Any = None) -> None:
        """What is submitted to the stream from now on runs when the slot is ready. The host does not wait."""
        self._call("ring_wait_stream", slot, stream_handle(stream, self.device_index))

    def reader(self, slot: int, stream: Any = None) -> None:
        """What was submitted to the stream so far reads the device slot: the slot's next submit waits for it."""
        self._call("ring_reader", slot, stream_handle(stream, self.device_index))

    @contextlib.contextmanager
    def reading(self, slot: int, stream: Any = None) -> Iterator[Any]:
        """wait_stream(), then the body of a `with`, then reader(). Gives device(), or device_bytes() of a ring
        without layout."""
        self.wait_stream(slot, stream)
        try:
            yield self.device(slot) if self.fields else self.device_bytes(slot)
        finally:
            self.reader(slot, stream)

    # ---- what it tells ----

    def properties(self, slot: int) -> RingProperties:
        """How the slot's bytes travel; backend "auto" while no host slot is registered."""
        found = RingPropertiesStruct()
        self._call("ring_properties", slot, byref(found))
        return RingProperties(BACKENDS[found.backend], bool(found.pinned), bool(found.async_submit),
                              bool(found.timing))

    def trace(self, n: int = _MOST_RECORDS) -> list[RingRecord]:
        """The last submits, at most 256, the oldest first."""
        records = (RingRecordStruct * min(max(n, 0), _MOST_RECORDS))()
        found = c_size_t()
        with self._lock:
            _library.call("ring_trace", self._open(), records, len(records), byref(found))
        return [RingRecord(r.sequence, r.submit_ns, r.bytes, None if r.copy_ms < 0 else r.copy_ms, r.slot)
                for r in records[:found.value]]

    # ---- the end ----

    def close(self) -> None:
        """Waits for copies and readers, unpins what the ring pinned, and frees the device slots. Capturing, and it stays
        open, while this thread captures a graph."""
        with self._lock:
            handle, self._handle = self._handle, c_void_p()
            try:
                if handle:
                    _library.call("ring_close", handle)
            except Capturing:
                self._handle = handle  # it is still open
                raise
            self._pinned = []
            self._memory = [None] * len(self._memory)
            self._host = [None] * len(self._memory)
            self._device = [None] * len(self._memory)

    def __enter__(self) -> TransferRing:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if not sys.is_finalizing() and self.__dict__.get("_handle"):
            with contextlib.suppress(Exception):
                self.close()


def _hold_host(memory: Any, what: str) -> tuple[Extent, Any]:
    """Where the host's memory is, and a hold on it: it cannot be closed, unmapped or resized meanwhile."""
    extent = contiguous_extent_of(memory)
    if extent.on_device:
        raise error(INVALID, "%s: memory of the host is meant" % what)
    hold = getattr(memory, "buf", memory)  # of a SharedMemory
    with contextlib.suppress(TypeError):
        hold = memoryview(hold)
        if hold.readonly:
            raise error(INVALID, "%s: it cannot be written" % what)
    return extent, hold


def _host_view(view: memoryview, field: Field) -> Any:
    typestr = type_string(field.dtype)
    numpy, torch = sys.modules.get("numpy"), torch_module()
    if numpy is not None and typestr[1] != "V":
        return numpy.frombuffer(view, dtype=typestr).reshape(field.shape)
    if torch is not None and hasattr(torch, "frombuffer"):
        return torch.frombuffer(view, dtype=torch_dtype(torch, field.dtype)).view(field.shape)
    return view


__all__ = ["BACKENDS", "Field", "RingProperties", "RingRecord", "TransferRing"]
