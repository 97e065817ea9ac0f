import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparc_dist.core.moments import Moments
from sparc_dist.core.shrinkage import shrunk
from tests.support.strategies import bounded


@bounded(20)
@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
def test_without_pseudo_images_the_statistics_are_the_papers(seed: int, images: int) -> None:
    values = np.random.default_rng(seed).normal(0.2, 0.05, (images, 4))
    centre, sd = shrunk(Moments.of(values), 0)
    np.testing.assert_allclose(centre, values.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(sd, values.std(axis=0, ddof=1), rtol=1e-9)


def test_pseudo_images_have_the_mean_and_the_spread_of_all_prompts_together() -> None:
    values = np.array([[1.0, 4.0], [3.0, 8.0]])
    centre, sd = shrunk(Moments.of(values), 6)
    np.testing.assert_allclose(centre, [(2 * 2 + 6 * 4) / 8, (2 * 6 + 6 * 4) / 8])
    spread = values.var()
    np.testing.assert_allclose(sd**2, [(2 + 6 * spread) / 7, (8 + 6 * spread) / 7])


def test_one_image_is_compared_with_all_its_prompts() -> None:
    values = np.array([[1.0, 2.0, 6.0]])
    centre, sd = shrunk(Moments.of(values), 1e9)
    np.testing.assert_allclose(centre, [3.0] * 3, rtol=1e-6)
    np.testing.assert_allclose(sd, [values.std()] * 3, rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "pseudo_images"),
    [
        (np.full((5, 3), 0.3), 100.0),
        (np.array([[0.1, 0.5]]), 0.0),
        (np.array([[0.1]]), 100.0),
        (np.zeros((4, 2)), 100.0),
        (np.zeros((0, 2)), 100.0),
        (np.zeros((4, 0)), 100.0),
    ],
)
def test_the_sd_is_zero_where_nothing_varies(
    values: np.ndarray[tuple[int, int], np.dtype[np.float64]], pseudo_images: float
) -> None:
    centre, sd = shrunk(Moments.of(values), pseudo_images)
    assert centre.shape == sd.shape == values.shape[1:]
    assert np.isfinite(centre).all()
    assert (sd == 0).all()


def test_a_constant_prompt_borrows_the_spread_of_others_through_pseudo_images() -> None:
    values = np.random.default_rng(0).normal(0.2, 0.05, (50, 3))
    values[:, 1] = 0.2
    assert shrunk(Moments.of(values), 100)[1][1] > 0
    assert shrunk(Moments.of(values), 0)[1][1] == 0
