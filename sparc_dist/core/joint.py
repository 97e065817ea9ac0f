"""Joint states: what several methods gather in the same pass, stored and merged as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.fusion import DECIDING


@dataclass(frozen=True)
class Joint:
    """States that are gathered together; None for a fusion that a unit does not have.

    kinds: their types, in order
    """

    parts: tuple[Any, ...]
    kinds: ClassVar[tuple[type[Any], ...]] = ()

    def arrays(self) -> list[NDArray[Any]]:
        """Returns the states as arrays, to be stored in a file."""
        parts = [[] if part is None else part.arrays() for part in self.parts]
        return [np.array([len(part) for part in parts]), *(a for part in parts for a in part)]

    @classmethod
    def from_arrays(cls, arrays: Sequence[NDArray[Any]]) -> Self:
        """Restores states from what ``arrays`` returned."""
        lengths, *rest = arrays
        ends = np.cumsum(lengths).tolist()
        pieces = [rest[end - size : end] for end, size in zip(ends, lengths.tolist(), strict=True)]
        pairs = zip(cls.kinds, pieces, strict=True)
        return cls(tuple(k.from_arrays(piece) if piece else None for k, piece in pairs))

    def __add__(self, other: Self) -> Self:
        pairs = zip(self.parts, other.parts, strict=True)
        return type(self)(tuple(None if a is None else a + b for a, b in pairs))


def of_fusions(names: Iterable[str], state: Callable[[str], Any]) -> tuple[Any, ...]:
    """Returns the state of each fusion, None for those that are not named."""
    listed = {*names}
    return tuple(state(name) if name in listed else None for name in DECIDING)


def by_fusion(parts: Iterable[Any]) -> dict[str, Any]:
    """Returns the states of the fusions that there are, by name."""
    return {name: part for name, part in zip(DECIDING, parts, strict=True) if part is not None}
