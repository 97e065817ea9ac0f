"""Reads untrusted pickles: NumPy arrays and plain containers only.

Not even NumPy's constructors are available to a pickle, because with crafted arguments they read
arbitrary memory. Real arrays are built at the end, from checked parts of the stand-ins below.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from sparc_dist.storage.reading import RestrictedUnpickler


def load_plain(content: bytes) -> Any:
    """Returns the value in a pickle; raises UnpicklingError for anything that is not plain."""
    return _finished(RestrictedUnpickler(content, _STAND_INS).load(), {})


class _DType:
    """The stand-in of a number or text type such as f8; no objects, no fields."""

    def __init__(self, code: str, align: object = False, copy: object = False) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[biufSU][0-9]{1,6}", code):
            raise pickle.UnpicklingError(f"an array has the type {code!r}")
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        self.order = {"<": "<", ">": ">", "|": "|", "=": "="}[state[1]]

    def real(self) -> np.dtype[Any]:
        return np.dtype(f"{self.order}{self.code}")


class _Array:
    """The stand-in of an array: its parts."""

    def __init__(self, *_: object) -> None:
        self.parts: tuple[Any, ...] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.parts = (content, dtype, shape, "F" if fortran else "C")

    @classmethod
    def from_buffer(cls, content: Any, dtype: Any, shape: Any, order: Any) -> _Array:
        array = cls()
        array.parts = (content, dtype, shape, order)
        return array

    def real(self) -> np.ndarray[Any, Any]:
        if self.parts is None:
            raise pickle.UnpicklingError("an array has no content")
        content, dtype, shape, order = self.parts
        if not isinstance(content, bytes | bytearray) or not isinstance(dtype, _DType):
            raise pickle.UnpicklingError("an array is not made of plain bytes")
        if order not in ("C", "F"):
            raise pickle.UnpicklingError(f"an array has the order {order!r}")
        # reshape checks the length against the shape.
        return np.frombuffer(bytes(content), dtype.real()).reshape(shape, order=order).copy()


class _Function:
    """A function that a pickle can call, but whose attributes it cannot change."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it changes a function")


def _scalar(dtype: Any, content: Any) -> Any:
    array = _Array.from_buffer(content, dtype, (1,), "C")
    return array.real()[0]


def _latin1(text: Any, encoding: Any) -> bytes:
    """Returns bytes that old protocols write as text."""
    if encoding != "latin1" or not isinstance(text, str):
        raise pickle.UnpicklingError("it converts texts")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """Returns the empty bytes, which old protocols write as a call."""
    return b""


_STAND_INS: dict[tuple[str, str], Any] = {
    ("__builtin__", "bytes"): _Function(_no_bytes),
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): "ndarray",
    ("_codecs", "encode"): _Function(_latin1),
}
for _core in ("numpy.core", "numpy._core"):
    _STAND_INS[f"{_core}.multiarray", "_reconstruct"] = _Array
    _STAND_INS[f"{_core}.multiarray", "scalar"] = _Function(_scalar)
    _STAND_INS[f"{_core}.numeric", "_frombuffer"] = _Function(_Array.from_buffer)


def _finished(value: Any, done: dict[int, Any]) -> Any:
    """Returns the value with real arrays; ``done``: the results so far, by id."""
    if id(value) not in done:
        done[id(value)] = _finish(value, done)
    return done[id(value)]


def _finish(value: Any, done: dict[int, Any]) -> Any:
    if isinstance(value, _Array | _DType):
        return value.real()
    if isinstance(value, dict):
        return {_finished(key, done): _finished(item, done) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_finished(item, done) for item in value)
    if isinstance(value, type | _Function):
        raise pickle.UnpicklingError("it contains a function")
    return value
