"""Stands in for unilab.ipc.replay_pipelines.transfer: batches of a replay buffer on their way to the learner's device.

    -from unilab.ipc.replay_pipelines.transfer import build_replay_transfer_backend
    +from allograft.compat.replay_transfer import build_replay_transfer_backend

Different on purpose:
- On CUDA the copies are those of an allograft.TransferRing, so they are counted and traced, and `h2d_submitter` is
  "allograft_ring". No extension is built.
- A slot is overwritten only after what reads it: the streams that waited for it are waited for, up to what they had
  been given when the slot was cleared, or else when it was submitted again.
- A slot is not ready before its first submit, nor after clear_ready(). Waiting for such a slot returns at once.
- After close() a backend may be used again: host slots are then to be registered anew.
- ROCm is Unsupported: the library speaks to CUDA's driver.
"""
from .base import ReplayTransferBackend
from .factory import build_replay_transfer_backend
from .xpu import XpuReplayTransferBackend

__all__ = ["ReplayTransferBackend", "XpuReplayTransferBackend", "build_replay_transfer_backend"]
