"""States: sums over images that add up with ``+`` and are stored as arrays, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

Arrays = list[NDArray[Any]]


@dataclass(frozen=True)
class State:
    """The base of states, which are dataclasses.

    A field is an array, an integer, another state, a tuple of one of these or ``States``. States
    add up field by field; those that do not, such as moments, have a ``+`` of their own.
    """

    def __add__(self, other: Self) -> Self:
        pairs = zip(_values(self), _values(other), strict=True)
        return type(self)(*(_sum(a, b) for a, b in pairs))

    def arrays(self) -> Arrays:
        """Returns the state as arrays, to be stored in a file."""
        parts = [_arrays(value) for value in _values(self)]
        return [part for (part,) in parts] if _is_flat(type(self)) else _joined(parts)

    @classmethod
    def from_arrays(cls, arrays: Sequence[NDArray[Any]]) -> Self:
        """Restores a state from what ``arrays`` returned."""
        own: Any = cls
        parts = [[array] for array in arrays] if _is_flat(own) else _split(arrays)
        return cls(*(_restored(kind, part) for kind, part in zip(_kinds(own), parts, strict=True)))


S = TypeVar("S")


class States(dict[Any, S]):
    """States by name; ``+`` adds those of the same name."""

    def __add__(self, other: Mapping[Any, S]) -> States[S]:
        return States({name: _sum(state, other[name]) for name, state in self.items()})

    def arrays(self) -> Arrays:
        """Returns the names and the states as arrays."""
        return [np.array([*self], dtype=str), *_joined([_arrays(state) for state in self.values()])]


@dataclass(frozen=True)
class Kinds:
    """The types of ``States`` by name, to restore them."""

    kinds: Mapping[str, type[State]]

    def from_arrays(self, arrays: Sequence[NDArray[Any]]) -> States[Any]:
        """Restores states from what ``arrays`` returned."""
        names, *rest = arrays
        pairs = zip(names.tolist(), _split(rest), strict=True)
        return States({name: self.kinds[name].from_arrays(part) for name, part in pairs})


def _values(state: State) -> list[Any]:
    """Returns the values of a state's fields."""
    return [getattr(state, field.name) for field in fields(state)]


@cache
def _kinds(state: Any) -> list[Any]:
    """Returns the types of a state's fields."""
    hints = get_type_hints(state)
    return [hints[field.name] for field in fields(state)]


def _is_flat(state: Any) -> bool:
    """Whether every field is one array or integer, so that arrays need no lengths before them."""
    return all(kind is int or get_origin(kind) is np.ndarray for kind in _kinds(state))


def _sum(a: Any, b: Any) -> Any:
    return tuple(map(_sum, a, b)) if isinstance(a, tuple) else a + b


def _arrays(value: Any) -> Arrays:
    if isinstance(value, State | States):
        return value.arrays()
    if isinstance(value, tuple):
        return _joined([_arrays(part) for part in value])
    return [np.asarray(value)]


def _restored(kind: Any, arrays: Arrays) -> Any:
    origin = get_origin(kind) or kind
    if origin is int:
        return int(arrays[0])
    if origin is np.ndarray:
        return arrays[0]
    if origin is tuple:
        return tuple(_restored(get_args(kind)[0], part) for part in _split(arrays))
    if origin is States:
        names, *rest = arrays
        parts = (_restored(get_args(kind)[0], part) for part in _split(rest))
        return States(zip(names.tolist(), parts, strict=True))
    return kind.from_arrays(arrays)


def _joined(parts: Sequence[Arrays]) -> Arrays:
    """Returns the arrays of all parts, after the number of arrays of each."""
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return [lengths, *(array for part in parts for array in part)]


def _split(arrays: Sequence[NDArray[Any]]) -> list[Arrays]:
    """Returns the parts of what ``_joined`` returned."""
    lengths, *rest = arrays
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    return [rest[end - size : end] for end, size in zip(ends, lengths.tolist(), strict=True)]
