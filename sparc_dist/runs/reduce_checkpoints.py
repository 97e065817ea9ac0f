"""Checkpoints of the reduce: the state of a pass for a group of shards, in a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.runs.layout import FAN_IN


class State(Protocol):
    """A sum over images that can be stored as arrays and restored bit by bit."""

    def arrays(self) -> list[NDArray[Any]]:
        """Returns the state as arrays, to be stored in a file."""
        ...

    @classmethod
    def from_arrays(cls, arrays: Sequence[NDArray[Any]]) -> Self:
        """Restores a state from what ``arrays`` returned."""
        ...


def save(url: str, key: str, state: State, hashes: Sequence[str] = ()) -> None:
    """Writes a state. key: a hash of all its inputs; hashes: of files written along with it."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {f"state{i:06d}": part for i, part in enumerate(state.arrays())}
    arrays |= {"count": len(arrays), "key": key, "hashes": np.array(hashes, dtype=str)}
    np.savez(buffer, **arrays)
    storage.write_bytes(url, buffer.getvalue())


S = TypeVar("S", bound=State)


def load(url: str, key: str, kind: type[S]) -> tuple[S, list[str]] | None:
    """Returns the state at ``url`` and the hashes that were saved with it.

    Returns None if the state is missing or damaged, or has another key.
    """
    found = load_any(url, kind)
    return found[:2] if found is not None and found[2] == key else None


def load_any(url: str, kind: type[S]) -> tuple[S, list[str], str] | None:
    """Returns the state at ``url``, its hashes and its key; None if it is missing or damaged."""
    content = storage.read_if_exists(url)
    if content is None:
        return None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = dict(archive)  # this verifies the checksums of the archive
        parts = [arrays[f"state{i:06d}"] for i in range(int(arrays["count"]))]
        hashes = [str(value) for value in arrays["hashes"]]
        return kind.from_arrays(parts), hashes, str(arrays["key"])
    except Exception:  # a damaged archive raises nearly anything; it is then computed again
        return None


def merge(states: Sequence[Any]) -> Any:
    """Returns the sum of the states of all groups, to the last bit as a run merges them."""
    while len(states) > 1:
        chunks = [states[i : i + FAN_IN] for i in range(0, len(states), FAN_IN)]
        states = [reduce(add, chunk) for chunk in chunks]
    return states[0]
