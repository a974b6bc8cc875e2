"""CUDA: the ready slots and the copy stream of an allograft.TransferRing, between the caller's own tensors."""
from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional

from ..._interop import device_number
from ..._library import UNSUPPORTED, Capturing, Unsupported
from ...transfer import TransferRing

_METADATA = ("tick_id", "snapshot_ptr", "snapshot_size", "sample_seed", "sample_count", "batch_host_slot",
             "batch_gpu_slot")


class CudaLikeReplayTransferBackend:
    """Copies out of pinned host slots on a copy stream. NotLoaded where there is no library, Unsupported where PyTorch
    is one for ROCm.

    A stream that waits for a slot, and is not PyTorch's, must exist until the slot has been cleared or submitted again.
    """

    device_family = "cuda"
    h2d_submitter = "allograft_ring"
    host_memory_kind = "registered_pinned_shared"
    supports_async_submit = True
    supports_timing_events = True

    def __init__(self, *, device: Any, ring_depth: int) -> None:
        torch: Any = importlib.import_module("torch")
        if getattr(getattr(torch, "version", None), "hip", None):
            raise Unsupported(UNSUPPORTED, "replay transfer to %s: this PyTorch is for ROCm, which the library does not "
                              "speak to" % (device,))
        self.device = device
        self.host_pinned = False
        self.direct_pinned_shared = False
        self._torch = torch
        self._depth = int(ring_depth)
        self._lock = threading.RLock()  # the producer's and the consumer's calls
        self._submitted = [False] * self._depth
        self._readers: list[list[Any]] = [[] for _ in range(self._depth)]  # streams that waited for the slot
        self._ring: Optional[TransferRing] = None
        self._open()

    def _open(self) -> TransferRing:
        """The ring, made again after close()."""
        with self._lock:
            if self._ring is None:
                self._ring = TransferRing(self._depth, device=device_number(self.device))
            return self._ring

    # ---- slots ----

    def register_host_slots(self, slots: list[Any]) -> None:
        """Pins them in place until close(). RuntimeError when one cannot be pinned."""
        ring = self._open()
        for slot in slots:
            ring.pin(slot)
        self.host_pinned = self.direct_pinned_shared = True

    def allocate_device_slots(self, *, count: int, shape: tuple[int, int], dtype: Any) -> list[Any]:
        """They may be memory that is still in use on the current stream: the next copies come after that."""
        made = [self._torch.empty(shape, dtype=dtype, device=self.device) for _ in range(count)]
        with self._lock:
            stream = self._torch.cuda.current_stream(self.device)
            for readers in self._readers:
                if stream not in readers:
                    readers.append(stream)
            self._take_readers()
        return made

    def _take_readers(self, slot: Optional[int] = None) -> None:
        """The slot's next copy, or every slot's, comes after what its streams were given so far. A stream that is being
        captured now cannot be waited for: it is asked again later."""
        ring = self._open()
        for number in range(self._depth) if slot is None else (slot,):
            later = []
            for stream in self._readers[number]:
                try:
                    ring.reader(number, stream)
                except Capturing:
                    later.append(stream)
            self._readers[number] = later

    # ---- copies ----

    @contextlib.contextmanager
    def _on_copy_stream(self, ring: TransferRing) -> Iterator[Any]:
        stream = self._torch.cuda.ExternalStream(ring.stream, device=self.device)
        with self._torch.cuda.device(self.device), self._torch.cuda.stream(stream):
            yield stream

    def _event(self, ring: TransferRing) -> Any:
        """Recorded on the copy stream now."""
        event = self._torch.cuda.Event(enable_timing=True)
        with self._on_copy_stream(ring) as stream:
            event.record(stream)
        return event

    def _copy(self, ring: TransferRing, slot: int, dst: Any, src: Any) -> None:
        """As it lies, if both tensors lie alike; else PyTorch converts."""
        alike = (dst.is_contiguous() and src.is_contiguous() and dst.dtype == src.dtype
                 and tuple(dst.shape) == tuple(src.shape) and not src.is_cuda)
        if alike and dst.numel():
            ring.copy(slot, dst, src)
            return
        ring.copy(slot)  # which waits for the readers
        ring.clear(slot)
        with self._on_copy_stream(ring):
            dst.copy_(src, non_blocking=True)
        ring.copy(slot)

    def submit_h2d(self, *, slot: int, dst: Any, src: Any, metadata: Any, trace_recorder: Any,
                   trace_cuda_events: bool, h2d_bytes: int, pack_layout: str, pack_executor: str) -> float:
        """Out of a registered `src` this returns at once. With a recorder and `trace_cuda_events`, the recorder gets
        two events around the copy, by add_cuda_pending_span()."""
        began_ns = time.perf_counter_ns()
        events = []
        with self._lock:
            ring = self._open()
            self._take_readers(slot)
            if trace_recorder is not None and trace_cuda_events:
                ring.copy(slot)  # the readers are waited for: that is none of the copy's time
                events.append(self._event(ring))
            self._copy(ring, slot, dst, src)
            self._submitted[slot] = True
            if events:
                events.append(self._event(ring))
        seconds = (time.perf_counter_ns() - began_ns) / 1e9
        if events:
            about = {"slot": slot, "h2d_bytes": h2d_bytes, "pinned_memory": self.host_pinned,
                     "pack_layout": pack_layout, "pack_executor": pack_executor, "h2d_submitter": self.h2d_submitter,
                     "direct_pinned_shared": self.direct_pinned_shared}
            if metadata is not None:
                about.update((name, getattr(metadata, name)) for name in _METADATA if hasattr(metadata, name))
            trace_recorder.add_cuda_pending_span("gpu/replay_pipeline_batch_h2d", category="gpu", cpu_begin_ns=began_ns,
                                                 start_event=events[0], end_event=events[1], args=about)
        return seconds

    # ---- ready slots ----

    def clear_ready(self, slot: int) -> None:
        """Of the streams that waited for the slot, what they were given so far reads it, and nothing later."""
        with self._lock:
            self._take_readers(slot)
            self._submitted[slot] = False
            self._open().clear(slot)

    def ready_query(self, slot: int) -> bool:
        with self._lock:
            return self._open().query(slot)

    def synchronize_ready(self, slot: int) -> None:
        with self._lock:
            ring = self._open()
            if not self._submitted[slot]:
                return
        ring.wait_host(slot)  # others may go on meanwhile

    def wait_current_stream_for_ready(self, slot: int) -> None:
        stream = self._torch.cuda.current_stream(self.device)
        with self._lock:
            if not self._submitted[slot]:
                return
            self._open().wait_stream(slot, stream)
            if stream not in self._readers[slot]:
                self._readers[slot].append(stream)

    def close(self) -> None:
        """Waits for copies and what reads them, and unpins the host slots. A second time: nothing."""
        with self._lock:
            ring, self._ring = self._ring, None
            self._submitted = [False] * self._depth
            self._readers = [[] for _ in range(self._depth)]
            self.host_pinned = self.direct_pinned_shared = False
        if ring is not None:
            ring.close()


__all__ = ["CudaLikeReplayTransferBackend"]
