"""Devices: what torch can use in this process."""

from __future__ import annotations

import torch


def gpu_count() -> int:
    """Returns the number of GPUs that torch sees on this machine."""
    return torch.cuda.device_count()


def pick_device(gpus: float, threads: int) -> str:
    """Returns a worker's device: its GPU if it holds a share of one, else the CPU.

    Ray shows a worker only its own GPUs, so "cuda" is always the right one. A cluster may declare
    GPUs that torch cannot use; the metrics then say that the CPU did the work. Sets the number of
    ``threads`` that torch uses on the CPU.
    """
    torch.set_num_threads(threads)
    return "cuda" if gpus and torch.cuda.is_available() else "cpu"
