"""Checkpoints of the reduce: the state of a pass for a group of shards, in a file."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core import State, States
from sparc_dist.runs.layout import FAN_IN

S = TypeVar("S", covariant=True)


class Kind(Protocol[S]):
    """Restores states: a type of states, or ``Kinds``."""

    def from_arrays(self, arrays: Sequence[NDArray[Any]]) -> S:
        """Restores a state from what its ``arrays`` returned."""
        ...


def save(url: str, key: str, state: State | States[Any], hashes: Sequence[str] = ()) -> None:
    """Writes a state. key: a hash of all its inputs; hashes: of files written along with it."""
    buffer, parts = io.BytesIO(), state.arrays()
    # A file of its own for each of some hundred arrays would take longer than a shard's work.
    forms = json.dumps([(part.dtype.str, part.shape) for part in parts])
    packed = np.frombuffer(b"".join(part.tobytes() for part in parts), dtype=np.uint8)
    np.savez(buffer, packed=packed, forms=forms, key=key, hashes=np.array(hashes, dtype=str))
    storage.write_bytes(url, storage.seal_archive(buffer.getvalue()))


def load(url: str, key: str, kind: Kind[S]) -> tuple[S, list[str]] | None:
    """Returns the state at ``url`` and the hashes that were saved with it.

    Returns None if the state is missing or damaged, or has another key.
    """
    found = load_any(url, kind)
    return found[:2] if found is not None and found[2] == key else None


def load_any(url: str, kind: Kind[S]) -> tuple[S, list[str], str] | None:
    """Returns the state at ``url``, its hashes and its key; None if it is missing or damaged."""
    content = storage.read_if_exists(url)
    if content is None or storage.seal_of(content) is None:
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = dict(archive)
    hashes = [str(value) for value in arrays["hashes"]]
    return kind.from_arrays(_unpacked(arrays)), hashes, str(arrays["key"])


def group_key(key: str, shards: range) -> str:
    """Returns the key of a group's state. key: a hash of everything else that decides it."""
    return f"{key}:{shards.start}:{shards.stop}"


def group_of(key: str) -> range:
    """Returns the shards of the group that a key of ``group_key`` names."""
    start, stop = key.split(":")[-2:]
    return range(int(start), int(stop))


def _unpacked(arrays: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    content, start, parts = arrays["packed"].tobytes(), 0, []
    for form, shape in json.loads(str(arrays["forms"])):
        # The copy can be written to, and starts at an even address.
        part = np.frombuffer(content, form, math.prod(shape), start).reshape(shape).copy()
        parts.append(part)
        start += part.nbytes
    return parts


def merge(states: Sequence[Any]) -> Any:
    """Returns the sum of the states of all groups, to the last bit as a run merges them."""
    while len(states) > 1:
        chunks = [states[i : i + FAN_IN] for i in range(0, len(states), FAN_IN)]
        states = [reduce(add, chunk) for chunk in chunks]
    return states[0]
