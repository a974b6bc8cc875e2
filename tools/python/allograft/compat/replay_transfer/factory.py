"""The backend for a device."""
from __future__ import annotations

from typing import Any

from .base import ReplayTransferBackend
from .cuda_like import CudaLikeReplayTransferBackend
from .torch_copy import TorchCopyReplayTransferBackend
from .xpu import XpuReplayTransferBackend


def build_replay_transfer_backend(*, device: Any, ring_depth: int) -> ReplayTransferBackend:
    """The backend for the learner's torch.device, with slots 0 to ring_depth - 1: a transfer ring for CUDA, a stream
    and events for XPU, and for all others, the CPU too, a copy that has come through when submit_h2d() returns."""
    if device.type == "cuda":
        return CudaLikeReplayTransferBackend(device=device, ring_depth=ring_depth)
    if device.type == "xpu":
        return XpuReplayTransferBackend(device=device, ring_depth=ring_depth)
    return TorchCopyReplayTransferBackend(device=device, ring_depth=ring_depth)
