"""Devices: what torch can use in this process, and the way of pixels to it and of results back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

#: Batches of one transfer that a GPU holds at a time: one that it encodes, and the next one.
HELD = 2


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


class Transfer:
    """The way of one thread's arrays to a device and back.

    On CUDA, copies have a stream of their own and start from or end in pinned memory, so that they
    overlap with computing; torch keeps pinned memory for the next batch. On the CPU there is
    nothing to overlap with.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def batches(self, pixels: NDArray[np.uint8], size: int) -> Iterator[torch.Tensor]:
        """Yields parts (≤ size, S, S, 3) of the pixels (n, S, S, 3), on the device.

        While the device still computes with a part, the next one is copied. A part is to be used
        before the next one is asked for.
        """
        if self._copies is None:
            yield from _copied(pixels, size)
            return
        begun: deque[torch.cuda.Event] = deque()
        for start in range(0, len(pixels), size):
            if len(begun) == HELD:  # or all of a shard's pixels would be on the device
                begun.popleft().synchronize()
            yield self._sent(pixels[start : start + size], self._copies)
            begun.append(_mark(torch.cuda.current_stream(self._device)))

    def _sent(self, part: NDArray[np.uint8], copies: torch.cuda.Stream) -> torch.Tensor:
        """Returns the part on the device; what is computed with it waits for its arrival."""
        # uint8 takes a quarter of the bytes of float32. The buffer is not used again before the
        # copy has ended: torch's allocator of pinned memory sees to that.
        pinned = torch.empty(part.shape, dtype=torch.uint8, pin_memory=True)
        np.copyto(pinned.numpy(), part)
        with torch.cuda.stream(copies):
            sent = pinned.to(self._device, non_blocking=True)
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(copies)
        # Its memory belongs to the stream of copies, which must not use it again too early.
        sent.record_stream(computing)
        return sent

    def fetched(self, results: Sequence[torch.Tensor]) -> list[NDArray[Any]]:
        """Returns results as arrays, when they have arrived; others may compute meanwhile."""
        if self._copies is None:
            return [part.cpu().numpy() for part in results]
        self._copies.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._copies):
            fetched = [part.to("cpu", non_blocking=True) for part in results]  # into pinned memory
        # Waits without holding a core. The results are not freed before, for we refer to them.
        _mark(self._copies).synchronize()
        return [part.numpy() for part in fetched]


def _copied(pixels: NDArray[np.uint8], size: int) -> Iterator[torch.Tensor]:
    """Yields parts in writable memory, which torch needs and Ray's shared memory is not."""
    # One buffer for all parts: to get new memory takes longer than to copy.
    buffer = torch.empty((min(size, len(pixels)), *pixels.shape[1:]), dtype=torch.uint8)
    for start in range(0, len(pixels), size):
        part = pixels[start : start + size]
        np.copyto(buffer[: len(part)].numpy(), part)
        yield buffer[: len(part)]


def _mark(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Returns an event that has come when all that the stream was given so far is done."""
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record(stream)
    return event
