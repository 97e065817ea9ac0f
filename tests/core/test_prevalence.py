import numpy as np
import pytest

from sparc_dist.core.histogram import BINS, CENTRES, EDGES, histogram, skewness, standard_normal
from sparc_dist.core.moments import Floats
from sparc_dist.core.prevalence import MIN_DISTANCE, PSEUDO_IMAGES, estimate, fit_mixture


def mixed(share: float, distance: float, columns: int = 6, images: int = 4000) -> Floats:
    """Standardised scores of columns of which a share of images lies a distance higher."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(images, columns)) + distance * (rng.random((images, columns)) < share)
    return np.asarray((values - values.mean(axis=0)) / values.std(axis=0, ddof=1))


def test_scores_are_counted_in_bins_and_clipped_at_both_ends() -> None:
    counts = histogram(np.array([[-9.0, 0.0], [-8.0, 0.049], [7.999, 0.05], [80.0, -0.001]]))
    assert counts.shape == (2, BINS)
    assert counts.dtype == np.int64
    assert counts[0, [0, BINS - 1]].tolist() == [2, 2]
    assert counts[1, 159:162].tolist() == [1, 2, 1]
    assert (EDGES[0], EDGES[160]) == (-8.0, 0.0)
    assert histogram(np.zeros((0, 2))).sum() == 0


def test_the_standard_normal_stands_in_for_counts() -> None:
    share = standard_normal()
    assert share.sum() == pytest.approx(1.0)
    assert share @ CENTRES == pytest.approx(0.0, abs=1e-12)
    assert share @ CENTRES**2 == pytest.approx(1.0, abs=1e-3)


def test_skewness_is_that_of_the_scores_and_zero_in_a_single_bin() -> None:
    values = np.random.default_rng(0).exponential(size=(5000, 2)) - 1
    centred = values - values.mean(axis=0)
    direct = (centred**3).mean(axis=0) / (centred**2).mean(axis=0) ** 1.5
    np.testing.assert_allclose(skewness(histogram(values)), direct, rtol=0.02)
    assert skewness(histogram(np.zeros((9, 1))))[0] == 0


@pytest.mark.parametrize("share", [0.03, 0.1, 0.3])
def test_a_clear_share_is_found(share: float) -> None:
    counts = histogram(mixed(share, distance=4.0))
    prevalence, status = estimate(counts, counts)
    np.testing.assert_allclose(prevalence, share, atol=0.02)
    assert set(status) == {"clear"}


def test_columns_without_two_components_get_the_mean_of_all() -> None:
    values = np.concatenate([mixed(0.1, 4.0), mixed(0.5, 2.0)], axis=1)
    counts = histogram(values)
    mixture = fit_mixture(counts, 0.9, PSEUDO_IMAGES)
    prevalence, status = estimate(counts, counts)
    unclear = mixture.distance < MIN_DISTANCE
    assert unclear.any()
    assert not unclear.all()
    assert [name == "unclear" for name in status] == unclear.tolist()
    np.testing.assert_array_equal(prevalence[unclear], mixture.share.mean())
    np.testing.assert_array_equal(prevalence[~unclear], mixture.share[~unclear])


def test_a_common_class_is_found_before_decorrelation_and_a_too_common_one_is_unclear() -> None:
    rare, common, everywhere = (histogram(mixed(share, 4.0)) for share in (0.1, 0.6, 0.85))
    plain = np.concatenate([rare[:4], common[:1], everywhere[:1]])
    prevalence, status = estimate(rare, plain)
    assert status == ["clear"] * 4 + ["common", "unclear"]
    assert prevalence[4] == pytest.approx(0.6, abs=0.02)
    assert prevalence[5] == fit_mixture(rare, 0.9, PSEUDO_IMAGES).share[5]


def test_classes_are_drawn_to_what_all_show() -> None:
    counts = histogram(np.concatenate([mixed(0.1, 4.0), mixed(0.3, 4.0)], axis=1))
    alone, drawn = (fit_mixture(counts, 0.9, pseudo).share for pseudo in (0.0, 1e9))
    assert np.ptp(alone) > 0.1
    np.testing.assert_allclose(drawn, drawn[0], atol=1e-4)


@pytest.mark.parametrize("pseudo_images", [0.0, PSEUDO_IMAGES])
def test_a_single_bin_is_no_crash(pseudo_images: float) -> None:
    counts = histogram(np.zeros((50, 2)))
    with np.errstate(invalid="raise"):
        mixture = fit_mixture(counts, 0.9, pseudo_images)
    for part in (mixture.share, mixture.absent, mixture.present, mixture.variance):
        assert np.isfinite(part).all()
