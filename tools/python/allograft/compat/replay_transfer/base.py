"""What every backend has: the contract between a replay pipeline and a device."""
from __future__ import annotations

from typing import Any, Protocol


class ReplayTransferBackend(Protocol):
    """Brings batches from host slots to device slots. A slot's number says which event tells that it is ready: host and
    device slots are the caller's to number, and a backend does not pair them.

    A batch: clear_ready(slot), submit_h2d(slot=slot, ...), then ready_query(slot), synchronize_ready(slot) on the host
    or wait_current_stream_for_ready(slot) on the device. One thread may submit while another waits.
    """

    device: Any  # torch.device
    device_family: str  # "cuda", "xpu", or the device's type
    h2d_submitter: str  # who copies
    host_memory_kind: str
    host_pinned: bool  # registered host slots are pinned now
    direct_pinned_shared: bool  # and the device reads them in place
    supports_async_submit: bool  # submit_h2d() returns before the bytes have come through
    supports_timing_events: bool  # it tells a trace recorder of events around the copy

    def register_host_slots(self, slots: list[Any]) -> None:
        """Tensors of the host that batches will come from."""

    def allocate_device_slots(self, *, count: int, shape: tuple[int, int], dtype: Any) -> list[Any]:
        """`count` new tensors on the device."""

    def submit_h2d(self, *, slot: int, dst: Any, src: Any, metadata: Any, trace_recorder: Any,
                   trace_cuda_events: bool, h2d_bytes: int, pack_layout: str, pack_executor: str) -> float:
        """Copies the tensor `src` of the host to `dst` of the device; `slot` is ready when it has come through. The
        seconds that the host took for it."""

    def clear_ready(self, slot: int) -> None:
        """The slot is not ready until its next submit has come through."""

    def ready_query(self, slot: int) -> bool:
        """Has the slot's last submit come through?"""

    def synchronize_ready(self, slot: int) -> None:
        """Waits for it. Returns at once when there is nothing to wait for."""

    def wait_current_stream_for_ready(self, slot: int) -> None:
        """The same on the device: what is submitted to the current stream from now on runs when the slot is ready."""

    def close(self) -> None:
        """Gives back what registering took."""
