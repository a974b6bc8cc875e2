"""The CPU, and devices without streams of their own: PyTorch copies, and submit_h2d() waits for it."""
from __future__ import annotations

import importlib
import time
from typing import Any


class TorchCopyReplayTransferBackend:
    """Copies that have come through when submit_h2d() returns. Any torch.device."""

    h2d_submitter = "torch_copy"
    host_memory_kind = "pageable_shared"
    host_pinned = False
    direct_pinned_shared = False
    supports_async_submit = False
    supports_timing_events = False

    def __init__(self, *, device: Any, ring_depth: int) -> None:
        self.device = device
        self.device_family = device.type
        self._ready = [False] * int(ring_depth)

    def register_host_slots(self, slots: list[Any]) -> None:
        """Nothing: pageable memory is copied as it is."""

    def allocate_device_slots(self, *, count: int, shape: tuple[int, int], dtype: Any) -> list[Any]:
        torch: Any = importlib.import_module("torch")
        return [torch.empty(shape, dtype=dtype, device=self.device) for _ in range(count)]

    def submit_h2d(self, *, slot: int, dst: Any, src: Any, metadata: Any, trace_recorder: Any,
                   trace_cuda_events: bool, h2d_bytes: int, pack_layout: str, pack_executor: str) -> float:
        began = time.perf_counter()
        self._ready[slot] = False
        dst.copy_(src)
        self._synchronize()
        self._ready[slot] = True
        return time.perf_counter() - began

    def _synchronize(self) -> None:
        """A device that copies behind the host's back is waited for."""
        torch: Any = importlib.import_module("torch")
        module = getattr(torch, self.device.type, None)
        synchronize = getattr(module, "synchronize", None)
        if self.device.type != "cpu" and callable(synchronize):
            synchronize()

    def clear_ready(self, slot: int) -> None:
        self._ready[slot] = False

    def ready_query(self, slot: int) -> bool:
        return self._ready[slot]

    def synchronize_ready(self, slot: int) -> None:
        """Nothing: what was submitted has come through."""
        _ = self._ready[slot]  # a slot that there is not

    def wait_current_stream_for_ready(self, slot: int) -> None:
        self.synchronize_ready(slot)

    def close(self) -> None:
        """Nothing was taken."""


__all__ = ["TorchCopyReplayTransferBackend"]
