"""Intel's XPU: PyTorch copies on a stream of the backend's."""
from __future__ import annotations

import contextlib
import importlib
import time
from typing import Any

_NEEDED = ("Stream", "Event", "stream", "current_stream")


class XpuReplayTransferBackend:
    """Copies on a stream of torch.xpu, an event for each slot. RuntimeError where PyTorch has no torch.xpu, or no device
    for it."""

    device_family = "xpu"
    h2d_submitter = "torch_xpu_copy_stream"
    host_memory_kind = "pageable_shared"
    host_pinned = False
    direct_pinned_shared = False
    supports_async_submit = True
    supports_timing_events = False

    def __init__(self, *, device: Any, ring_depth: int) -> None:
        xpu: Any = getattr(importlib.import_module("torch"), "xpu", None)
        missing = [name for name in _NEEDED if getattr(xpu, name, None) is None]
        if missing:
            raise RuntimeError("replay transfer to %s needs torch.xpu with %s: this PyTorch has no %s"
                               % (device, ", ".join(_NEEDED), ", ".join(missing)))
        available = getattr(xpu, "is_available", None)
        if callable(available) and not available():  # as in every PyTorch that is not built for it
            raise RuntimeError("replay transfer to %s: torch.xpu sees no such device" % (device,))
        self.device = device
        self._xpu = xpu
        self._stream = xpu.Stream(device=device)
        self._ready = [xpu.Event() for _ in range(int(ring_depth))]
        self._submitted = [False] * int(ring_depth)

    def register_host_slots(self, slots: list[Any]) -> None:
        """Nothing: pageable memory is copied as it is."""

    def allocate_device_slots(self, *, count: int, shape: tuple[int, int], dtype: Any) -> list[Any]:
        torch: Any = importlib.import_module("torch")
        return [torch.empty(shape, dtype=dtype, device=self.device) for _ in range(count)]

    def submit_h2d(self, *, slot: int, dst: Any, src: Any, metadata: Any, trace_recorder: Any,
                   trace_cuda_events: bool, h2d_bytes: int, pack_layout: str, pack_executor: str) -> float:
        began = time.perf_counter()
        on_device = getattr(self._xpu, "device", None)
        self._submitted[slot] = False
        with on_device(self.device) if callable(on_device) else contextlib.nullcontext():
            with self._xpu.stream(self._stream):
                dst.copy_(src, non_blocking=True)
                self._ready[slot].record(self._stream)
        self._submitted[slot] = True
        return time.perf_counter() - began

    def clear_ready(self, slot: int) -> None:
        self._submitted[slot] = False

    def ready_query(self, slot: int) -> bool:
        return self._submitted[slot] and bool(self._ready[slot].query())

    def synchronize_ready(self, slot: int) -> None:
        if self._submitted[slot]:
            self._ready[slot].synchronize()

    def wait_current_stream_for_ready(self, slot: int) -> None:
        if not self._submitted[slot]:
            return
        wait = getattr(self._xpu.current_stream(self.device), "wait_event", None)
        if callable(wait):
            wait(self._ready[slot])
        else:  # a version whose streams cannot
            self._ready[slot].synchronize()

    def close(self) -> None:
        """Nothing was taken."""


__all__ = ["XpuReplayTransferBackend"]
