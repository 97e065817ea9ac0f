"""What a pass of the reduce learnt from some shards, kept in a file until it is needed again."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage


class State(Protocol):
    """A sum over images that can be cut into arrays and put together again, bit by bit."""

    def arrays(self) -> list[NDArray[Any]]:
        """The state as arrays, to be kept in a file."""
        ...

    @classmethod
    def from_arrays(cls, arrays: Sequence[NDArray[Any]]) -> Self:
        """What ``arrays`` gave."""
        ...


def save(url: str, key: str, state: State, hashes: Sequence[str] = ()) -> None:
    """Write a state. ``key``: a hash of all it was made from; ``hashes``: of files made with it."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {f"state{i:06d}": part for i, part in enumerate(state.arrays())}
    arrays |= {"count": len(arrays), "key": key, "hashes": np.array(hashes, dtype=str)}
    np.savez(buffer, **arrays)
    storage.write_bytes(url, buffer.getvalue())


S = TypeVar("S", bound=State)


def load(url: str, key: str, kind: type[S]) -> tuple[S, list[str]] | None:
    """The state at ``url`` and the hashes that were saved with it.

    None where there is no state, or one that was made from something else, or a damaged one.
    """
    content = storage.read_if_exists(url)
    if content is None:
        return None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = dict(archive)  # the archive's checksums are compared here
        parts = [arrays[f"state{i:06d}"] for i in range(int(arrays["count"]))]
        found = kind.from_arrays(parts), [str(value) for value in arrays["hashes"]]
    except Exception:  # a damaged archive raises nearly anything; it can be made again
        return None
    return found if str(arrays["key"]) == key else None
