import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from sparc_dist.core.bootstrap import interval, resampled_mean, resampling_weights
from tests.support.cases import ap, resampled_ap


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.booleans())
def test_it_equals_scikit_learns_with_weights_and_the_plain_one_with_repeated_images(
    seed: int, images: int, ties: bool
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, images) * 1.0 if ties else rng.normal(size=images)
    labels = rng.random(images) < 0.4
    weights = resampling_weights(images, range(seed, seed + 5))
    found = resampled_ap(scores.astype(np.float32), labels, weights)
    for value, weight in zip(found, weights, strict=True):
        if not weight[labels].any():
            assert np.isnan(value)
            continue
        expected = average_precision_score(labels, scores, sample_weight=weight)
        assert value == pytest.approx(100 * expected, abs=1e-9)
        repeated = np.repeat(np.arange(images), weight)
        assert [value] == pytest.approx(ap(scores[repeated, None], labels[repeated, None]))


def test_an_images_weight_depends_on_draw_and_position_alone() -> None:
    weights = resampling_weights(1000, range(67))
    np.testing.assert_array_equal(resampling_weights(1000, range(60, 67)), weights[60:])
    np.testing.assert_array_equal(resampling_weights(700, range(67)), weights[:, :700])
    assert len(np.unique(weights[:, 0])) > 2  # draws differ
    assert weights.mean() == pytest.approx(1.0, abs=0.02)
    assert weights.var() == pytest.approx(1.0, abs=0.03)


def test_a_draw_does_not_depend_on_those_evaluated_with_it() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=200), rng.random(200) < 0.2
    weights = resampling_weights(200, range(35))
    each = [resampled_ap(scores, labels, row[None])[0] for row in weights]
    assert resampled_ap(scores, labels, weights).tolist() == pytest.approx(each, abs=1e-12)


def test_the_spread_is_that_of_the_usual_bootstrap() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=400), rng.random(400) < 0.2
    scores[labels] += 1.0
    drawn = rng.integers(0, 400, (400, 400))
    usual = [ap(scores[rows, None], labels[rows, None])[0] for rows in drawn]
    found = resampled_ap(scores, labels, resampling_weights(400, range(400)))
    assert found.std() == pytest.approx(np.std(np.array(usual, dtype=float)), rel=0.2)
    assert found.mean() == pytest.approx(np.mean(np.array(usual, dtype=float)), abs=1.0)


def test_a_class_without_drawn_positives_is_left_out_or_counts_as_zero() -> None:
    aps = np.array([[[80.0, np.nan, np.nan], [40.0, 40.0, np.nan]]])
    np.testing.assert_array_equal(resampled_mean(aps), [[60.0, 40.0, np.nan]])
    np.testing.assert_array_equal(resampled_mean(aps, "zero"), [[60.0, 20.0, np.nan]])


def test_an_interval_holds_the_middle_of_the_draws() -> None:
    assert interval(np.arange(101.0)) == pytest.approx((2.5, 97.5))
