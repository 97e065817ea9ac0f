"""States add up field by field, and come back from arrays bit by bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparc_dist.core import Floats, Kinds, Moments, State, States


@dataclass(frozen=True)
class Nested(State):
    """A field of every kind."""

    count: int
    values: Floats
    moments: Moments
    pair: tuple[Floats, ...]
    parts: tuple[Moments, ...]
    named: States[Moments]


def example(seed: int) -> Nested:
    rows = np.random.default_rng(seed).normal(size=(5, 3))
    moments = Moments.of(rows)
    named = States({"b": moments, "a": Moments.of(rows[:, :1])})
    return Nested(seed, rows, moments, (rows[0], rows[1:]), (moments, moments), named)


def same(a: State | States[Moments], b: State | States[Moments]) -> None:
    for found, expected in zip(a.arrays(), b.arrays(), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_they_add_up_field_by_field() -> None:
    first, second = example(1), example(2)
    total = first + second
    assert total.count == 3
    np.testing.assert_array_equal(total.values, first.values + second.values)
    np.testing.assert_array_equal(total.pair[1], first.pair[1] + second.pair[1])
    same(total.moments, first.moments + second.moments)  # by Chan's formula
    same(total.parts[1], first.parts[1] + second.parts[1])
    assert [*total.named] == ["b", "a"]
    assert total.named["a"].count == 10
    assert States({"a": 1, "b": 2}) + States({"b": 10, "a": 20}) == {"a": 21, "b": 12}


def test_they_come_back_from_arrays() -> None:
    state = example(1)
    restored = Nested.from_arrays(state.arrays())
    assert isinstance(restored.count, int)
    assert [*restored.named] == ["b", "a"]
    same(restored, state)
    same(Kinds(dict.fromkeys("ab", Moments)).from_arrays(state.named.arrays()), state.named)
    assert Kinds({}).from_arrays(States[Moments]().arrays()) == {}
