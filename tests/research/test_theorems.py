"""The closed forms against enumeration and simulation, and the claims of Theorem 1."""

from itertools import product
from math import floor, inf, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparc_dist.research.theorems import (
    EXAMPLES,
    SEEN,
    Setting,
    bounds,
    case_differences,
    crossing,
    enumerated,
    relative_difference,
    simulated,
    win_rate_difference,
    win_rates,
)
from tests.support.strategies import bounded

MIXED = (0.1, 0.2, 0.3, 0.4)
SHARES = st.tuples(*[st.integers(0, 9)] * 4).filter(any)


def setting_of(rho: float, q: float, nu: float, pi: Any) -> Setting:
    """Returns a setting for a pi that need not sum to 1."""
    return Setting(rho, q, nu, tuple(share / sum(pi) for share in pi))


@st.composite
def settings_of(draw: st.DrawFn, shares: st.SearchStrategy[Any] = SHARES) -> Setting:
    """Draws settings whose bounds are at most some thousands."""
    q = draw(st.floats(0.001, 0.9))
    rho = q + draw(st.floats(0.05, 0.95)) * (1 - q)
    return setting_of(rho, q, draw(st.floats(0, 0.45)), draw(shares))


def same(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def up_to(setting: Setting) -> Any:
    """Returns every m from 2 to well beyond the bounds."""
    return np.arange(2, floor(bounds(setting).guaranteed) + 200)


@pytest.mark.parametrize("m", [2, 3, 6])
def test_the_closed_forms_equal_enumeration(m: int) -> None:
    for rho, q, nu in product((0.15, 0.5, 0.97), (0.01, 0.14), (0.0, 0.05, 0.2, 0.45)):
        alone = [enumerated(setting_of(rho, q, nu, case), m) for case in np.eye(len(SEEN))]
        mixed = Setting(rho, q, nu, MIXED)
        rates = enumerated(mixed, m)
        same(case_differences(mixed, m), np.diff(alone)[:, 0])
        same(win_rates(mixed, m), rates)
        same(win_rate_difference(mixed, m), rates[1] - rates[0])


@pytest.mark.parametrize("setting", EXAMPLES)
@pytest.mark.parametrize("m", [2, 20])
def test_simulation_agrees_with_the_closed_forms(setting: Setting, m: int) -> None:
    rng = np.random.default_rng(0)
    drawn = simulated(setting, m, 20_000, rng) + simulated(setting, m, 20_000, rng)
    exact = np.append(win_rates(setting, m), win_rate_difference(setting, m))
    error = drawn.sd / np.sqrt(drawn.count)
    assert (error > 0).all()
    assert (np.abs(drawn.mean - exact) < 5 * error).all()


def test_the_presence_of_the_and_bonus_matters_but_not_its_size() -> None:
    def answers(delta: float) -> Any:
        drawn = simulated(EXAMPLES[0], 4, 1_000, np.random.default_rng(0), delta)
        return np.append(enumerated(EXAMPLES[0], 4, delta), drawn.mean)

    np.testing.assert_array_equal(answers(0.01), answers(7.0))
    assert (np.abs(answers(0.0) - answers(0.01))[:4] > 0.001).all()


@bounded(60)
@given(settings_of())
def test_lemma_1(setting: Setting) -> None:
    assert 1 > setting.rho_prime > setting.q_prime > 0
    gap = 2 * (0.5 - setting.nu) * (setting.rho - setting.q)
    assert setting.rho_prime - setting.q_prime == pytest.approx(gap)
    assert setting.gamma * setting.a == pytest.approx(1 - setting.q_prime)


@bounded(60)
@given(settings_of(SHARES.filter(lambda shares: any(shares[:3]))))
def test_second_max_wins_above_the_bounds(setting: Setting) -> None:
    m = up_to(setting)
    beyond = m > bounds(setting).guaranteed
    assert beyond.sum() > 100
    assert (relative_difference(setting, m)[beyond] > 0).all()


def test_without_the_easy_case_first_max_is_no_worse_below_both_bounds() -> None:
    rng = np.random.default_rng(0)
    below_both = 0
    for nu in np.tile([0.0, 0.02, 0.1], 100):
        q, rho = np.sort(rng.uniform(0.001, 0.3, 2)) + (0.0, 0.01)
        setting = setting_of(rho, q, nu, [*rng.dirichlet([1, 1, 1]), 0])
        found, m = bounds(setting), up_to(setting)
        below = (m <= found.first) & (m <= found.second)
        below_both += below.sum()
        assert (relative_difference(setting, m)[below] <= 0).all()
    assert below_both > 500


def test_on_both_bounds_there_can_be_a_tie() -> None:
    """The paper says that first-max is better there."""
    setting = Setting(0.75, 0.25, 0.0, (0.5, 0.5, 0.0, 0.0))
    assert bounds(setting).second == pytest.approx(2)
    assert bounds(setting).first > 2
    assert np.diff(enumerated(setting, 2)) == win_rate_difference(setting, 2) == 0


@bounded(60)
@given(settings_of(st.just((1, 2, 3, 4))))
def test_each_bound_turns_its_inequality_of_the_proof_into_an_equation(setting: Setting) -> None:
    found, p, q = bounds(setting), setting.rho_prime, setting.q_prime
    right = 1 + (log(2) + log(1 - p + found.first * p + p * (1 - q) / q)) / -log(1 - p)
    assert found.first == pytest.approx(right, rel=1e-12)
    assert found.first > 1
    a_over_g = p / q * ((1 - p) / (1 - q)) ** (found.second - 1)
    assert a_over_g == pytest.approx((0.1 + 0.2 + 0.3 / 2) / (1 - 0.3))


def test_bounds_at_the_edges_of_pi() -> None:
    hardest = Setting(0.3, 0.1, 0.1, (0, 0, 1, 0))
    assert bounds(hardest).second == -inf
    assert bounds(hardest).guaranteed == bounds(hardest).first
    certain = Setting(0.3, 0.1, 0.1, (0, 0, 0, 1))
    with pytest.raises(ValueError, match=r"pi\(1,0\) < 1"):
        bounds(certain)
    assert crossing(certain) is None
    assert relative_difference(certain, 1_000) < 0


def test_crossings_of_the_papers_example() -> None:
    assert [setting.nu for setting in EXAMPLES] == [0.05, 0.2]
    assert [crossing(setting) for setting in EXAMPLES] == [9, 4]
    rare, often = ([np.diff(enumerated(s, m))[0] for m in range(2, 9)] for s in EXAMPLES)
    assert max(rare) < 0
    assert max(often[:2]) < 0 < min(often[2:])


@bounded(60)
@given(settings_of(SHARES.filter(lambda shares: any(shares[:3]))))
def test_the_crossing_is_the_last_change_of_sign(setting: Setting) -> None:
    m, found = up_to(setting), crossing(setting)
    assert found is not None
    positive = relative_difference(setting, m) > 0
    assert positive[m >= found].all()
    assert found == 2 or not positive[m == found - 1][0]


def test_a_lead_at_small_m_that_is_lost_again_is_no_crossing() -> None:
    setting = Setting(0.3, 0.2, 0.0, (0.01, 0.0, 0.0, 0.99))
    found = crossing(setting)
    assert np.diff(enumerated(setting, 2)) > 0 > np.diff(enumerated(setting, 8))
    assert found is not None
    assert found > 8
    assert crossing(setting, largest=found - 1) is None


def test_large_m_neither_overflows_nor_loses_the_sign() -> None:
    m = np.array([[2, 10, 1_000], [10**5, 10**6, 10**9]])
    for setting in (*EXAMPLES, Setting(0.99, 0.01, 0.0, MIXED)):
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            difference, sign = win_rate_difference(setting, m), relative_difference(setting, m)
            rates = win_rates(setting, m)
        assert difference.shape == m.shape
        assert difference[1, 2] == 0 < sign[1, 2]
        same(rates[1] - rates[0], difference)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ((0.1, 0.2, 0.1, MIXED), "rho > q"),
        ((1.0, 0.2, 0.1, MIXED), "rho > q"),
        ((0.1, 0.0, 0.1, MIXED), "rho > q"),
        ((float("nan"), 0.1, 0.1, MIXED), "rho > q"),
        ((0.2, 0.1, 0.5, MIXED), "below 1/2"),
        ((0.2, 0.1, -0.1, MIXED), "below 1/2"),
        ((0.2, 0.1, 0.1, (0.5, 0.5, 0.5, -0.5)), "four probabilities"),
        ((0.2, 0.1, 0.1, (0.5, 0.1, 0.1, 0.1)), "four probabilities"),
        ((0.2, 0.1, 0.1, (0.5, 0.5)), "four probabilities"),
        ((0.2, 0.2 - 1e-16, 0.4999, MIXED), "double precision"),
    ],
)
def test_impossible_settings_are_an_error(values: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Setting(*values)


def test_a_single_score_has_no_second() -> None:
    setting = EXAMPLES[0]
    for function in (win_rate_difference, relative_difference, case_differences, win_rates):
        with pytest.raises(ValueError, match="at least 2"):
            function(setting, [1, 2])
    with pytest.raises(ValueError, match="at least 2"):
        simulated(setting, 1, 10, np.random.default_rng(0))
    for m in (1, 9):
        with pytest.raises(ValueError, match="from 2 to 8"):
            enumerated(setting, m)
