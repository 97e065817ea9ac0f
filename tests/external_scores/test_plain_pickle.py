"""Plain values survive a pickle round trip; anything else fails and nothing is run."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from sparc_dist.external_scores.plain_pickle import load_plain

PROTOCOLS = range(6)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
callables = st.sampled_from([eval, os.system, Path, datetime, np.load, getattr, OrderedDict])


@given(plain, callables, st.booleans(), st.integers(0, 5))
def test_only_plain_values_come_out_of_a_pickle(
    value: object, stranger: object, hidden: bool, protocol: int
) -> None:
    content = pickle.dumps([value, stranger] if hidden else [value], protocol)
    if hidden:
        with pytest.raises(pickle.UnpicklingError, match="it refers to"):
            load_plain(content)
    else:
        assert load_plain(content) == [value]


arrays = hn.arrays(
    st.sampled_from(["f4", "f8", ">f8", "i8", "u1", "?", "U3", "S2"]),
    hn.array_shapes(min_dims=0, max_dims=3, min_side=0),
)


@given(arrays, st.integers(0, 5), st.booleans())
def test_arrays_of_every_protocol_survive_a_round_trip(
    array: np.ndarray[Any, Any], protocol: int, fortran: bool
) -> None:
    written = np.asfortranarray(array) if fortran else array
    read = load_plain(pickle.dumps({"a": [written]}, protocol))["a"][0]
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numpy_scalars(protocol: int) -> None:
    assert load_plain(pickle.dumps([np.float32(0.5), np.int64(7)], protocol)) == [0.5, 7]


class Call:
    """Pickles as a call of anything with anything."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize(
    "attack",
    [
        # With real constructors this reads memory at an address of the attacker's choice.
        Call(np.ndarray, (1,), np.dtype("O"), b"A" * 8),
        Call(np.dtype, "O"),
        Call(np.dtype, [("a", "O")]),
        Call(np.dtype, "f8,O"),
        np.array([{}], dtype=object),
        np.zeros(2, dtype=[("a", "f8")]),
    ],
    ids=["ndarray", "dtype", "fields", "comma", "objects", "record"],
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_attacks_with_numpy_constructors_fail(attack: object, protocol: int) -> None:
    with pytest.raises((pickle.UnpicklingError, TypeError, ValueError, KeyError)):
        load_plain(pickle.dumps({"gts": attack}, protocol))


@pytest.mark.parametrize(
    "name", ["_codecs\nencode", "numpy.core.multiarray\nscalar", "numpy._core.numeric\n_frombuffer"]
)
def test_a_function_can_be_neither_changed_nor_returned(name: str) -> None:
    function = b"c" + name.encode() + b"\n"
    state = pickle.dumps((None, {"__defaults__": (1,)}), 2)[2:-1]
    with pytest.raises(pickle.UnpicklingError, match="it changes a function"):
        load_plain(b"\x80\x02" + function + state + b"b.")
    with pytest.raises(pickle.UnpicklingError, match="it contains a function"):
        load_plain(b"\x80\x02" + function + b".")


def test_a_memo_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(pickle.UnpicklingError, match="remembers a value as number 4294967295"):
        load_plain(b"\x80\x02Nr\xff\xff\xff\xff.")


def test_values_that_share_parts_are_finished_once_each() -> None:
    value: Any = [np.arange(3)]
    for _ in range(60):
        value = [value, value]  # 2^60 paths to the same array
    found = load_plain(pickle.dumps(value))
    for _ in range(60):
        assert found[0] is found[1]
        found = found[0]
    np.testing.assert_array_equal(found[0], [0, 1, 2])


def test_an_array_that_claims_more_than_it_holds_is_refused() -> None:
    content = pickle.dumps(np.zeros((2, 3)), 2).replace(b"K\x02K\x03\x86", b"K\x7fK\x03\x86")
    with pytest.raises(ValueError, match="reshape"):
        load_plain(content)
