from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from sparc_dist.core.answers import SLOPE_SD, UNKNOWN, YES, Answers, fit_link
from sparc_dist.core.link import SLOPE, intercepts, mean_probability, thresholds
from sparc_dist.core.moments import Floats
from tests.support.strategies import bounded


def test_answers_may_be_partial_and_add_up() -> None:
    scores = np.arange(6.0).reshape(2, 3)
    replies = np.array([[YES, UNKNOWN, 0], [UNKNOWN, YES, UNKNOWN]])
    whole = Answers.of(scores, -scores, replies)
    parts = [Answers.of(scores[[i]], -scores[[i]], replies[[i]]) for i in range(2)]
    assert len(whole) == 3
    assert whole.column.tolist() == [0, 2, 1]
    assert whole.total.tolist() == [0.0, 2.0, 4.0]
    assert whole.present.tolist() == [True, False, True]
    for part, merged in zip(*map(astuple, (whole, parts[0] + parts[1])), strict=True):
        np.testing.assert_array_equal(part, merged)


@bounded(25)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 120),
    st.sampled_from("model yes no".split()),
)
def test_the_link_is_the_most_probable_even_if_answers_contradict_the_scores(
    seed: int, classes: int, count: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    z, column = rng.normal(0, 2, count), rng.integers(0, classes, count)
    intercept = rng.normal(-3, 2, classes)
    model = rng.random(count) < expit(2 * z + intercept[column])
    present = {"model": model, "yes": z > 0, "no": z < 0}[kind]

    def loss(parameters: Floats) -> float:
        shift = parameters[1] + parameters[2:]
        logits = SLOPE * np.exp(parameters[0]) * z + (intercept + shift)[column]
        data = np.logaddexp(0, logits).sum() - logits[present].sum()
        prior = (parameters[0] / SLOPE_SD) ** 2 + (parameters[1:] ** 2).sum()
        return float(data + prior / 2)

    slope, moved = fit_link(z, column, present, intercept)
    best = minimize(loss, np.zeros(2 + classes), options={"gtol": 1e-7})
    assert slope == pytest.approx(SLOPE * np.exp(best.x[0]), rel=1e-3)
    np.testing.assert_allclose(moved, intercept + best.x[1] + best.x[2:], atol=1e-3)


def test_the_intercept_gives_the_prevalence() -> None:
    counts = np.random.default_rng(0).integers(0, 9, (4, 320))
    prevalence = np.array([1e-6, 0.1, 0.95, np.nan])
    found = intercepts(counts, prevalence)
    np.testing.assert_allclose(mean_probability(counts, SLOPE, found), prevalence, rtol=1e-9)


def test_the_threshold_is_the_highest_of_equals_and_not_below_the_lowest_probability() -> None:
    counts = np.zeros((2, 320), dtype=np.int64)
    counts[:, 100], counts[:, 220] = 1000, 10
    intercept = np.array([-6.0, -20.0])
    prevalence = mean_probability(counts, SLOPE, intercept)
    found = thresholds(counts, SLOPE, intercept, prevalence)
    assert found[0] == 3.0
    assert expit(SLOPE * found[1] - 20.0) == pytest.approx(0.1)
