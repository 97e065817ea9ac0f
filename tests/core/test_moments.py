import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparc_dist.core import Moments, Scatter


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.data())
def test_merged_states_are_the_state_of_the_whole(
    seed: int, rows: int, data: st.DataObject
) -> None:
    values = np.random.default_rng(seed).normal(3.0, 2.0, (rows, 4))
    edges = sorted(data.draw(st.lists(st.integers(0, rows), max_size=4)))
    parts = np.split(values, edges)
    moments, scatter = Moments.of(parts[0]), Scatter.of(parts[0])
    for part in parts[1:]:
        moments, scatter = moments + Moments.of(part), scatter + Scatter.of(part)
    assert moments.count == scatter.count == rows
    np.testing.assert_allclose(moments.mean, values.mean(0), atol=1e-12)
    np.testing.assert_allclose(scatter.mean, values.mean(0), atol=1e-12)
    centred = values - values.mean(0)
    np.testing.assert_allclose(scatter.matrix, centred.T @ centred, atol=1e-10)
    if rows > 1:
        np.testing.assert_allclose(moments.sd, values.std(0, ddof=1), atol=1e-12)


def test_chans_formula_keeps_a_small_spread_on_a_large_mean() -> None:
    values = 1e8 + np.random.default_rng(0).normal(size=(1000, 1))
    merged = Moments.of(values[:300]) + Moments.of(values[300:])
    assert merged.sd[0] == pytest.approx(values.std(ddof=1), rel=1e-6)


def test_a_constant_column_has_an_sd_of_exactly_zero() -> None:
    values = np.random.default_rng(0).normal(size=(50, 3))
    values[:, 1] = 0.1 + 0.2
    sd = (Moments.of(values[:20]) + Moments.of(values[20:])).sd
    assert sd[1] == 0
    assert (sd[[0, 2]] > 0.5).all()


def test_one_row_has_no_spread_and_no_rows_are_neutral() -> None:
    one = Moments.of(np.array([[1.0, 2.0]]))
    assert (one.sd == 0).all()
    none = Moments.of(np.zeros((0, 2)))
    assert (none + one) is one
    assert (one + none) is one
