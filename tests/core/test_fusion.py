import numpy as np
import pytest

from sparc_dist.core import Method, Scatter
from sparc_dist.core.sparc import max_variance_weights, rank_weights


def along(direction: list[float]) -> Scatter:
    """Returns the scatter of points that vary along a direction, with a little noise."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 1)) * np.array(direction)
    return Scatter.of(points + rng.normal(0, 1e-4, points.shape) + 5.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_sign_makes_the_mean_of_the_weights_positive(sign: float) -> None:
    weights = max_variance_weights(along([sign * 3.0, sign * 2.0, sign * -1.0]))
    np.testing.assert_allclose(weights, np.array([3, 2, -1]) / 6, atol=1e-3)


def test_a_lone_prompt_that_contradicts_its_class_leaves_the_sign_to_the_singleton() -> None:
    singleton = np.random.default_rng(0).normal(size=(500, 1))
    for noise in (0.1, 0.2, 0.3, 0.4):
        other = -singleton + noise * np.random.default_rng(1).normal(size=(500, 1))
        vectors = np.concatenate([singleton, other], axis=1)
        weights = max_variance_weights(Scatter.of(vectors / vectors.std(axis=0)))
        np.testing.assert_allclose(weights, [0.5, -0.5], atol=1e-9)


def test_weights_have_unit_l1_norm_or_unit_l2_norm_on_request() -> None:
    scatter = along([3.0, -2.0, 1.0])
    assert np.abs(max_variance_weights(scatter)).sum() == pytest.approx(1.0)
    assert (max_variance_weights(scatter, "l2") ** 2).sum() == pytest.approx(1.0)


def test_where_nothing_varies_all_ranks_weigh_the_same() -> None:
    constant = Scatter.of(np.full((10, 4), 0.3))
    np.testing.assert_array_equal(max_variance_weights(constant), np.full(4, 0.25))


def test_fixed_strategies() -> None:
    kmax = rank_weights(Method(strategy="kmax", k=2), 4)
    np.testing.assert_array_equal(kmax, [0, 0, 1, 0, 0])
    mean = rank_weights(Method(strategy="mean", k=3), 4)
    np.testing.assert_array_equal(mean, [0, 0, 0, 0.5, 0.5])
    singleton = rank_weights(Method(strategy="singleton"), 4)
    np.testing.assert_array_equal(singleton, [1, 0, 0, 0, 0])


@pytest.mark.parametrize("strategy", ["kmax", "mean"])
def test_a_class_with_fewer_than_k_prompts_uses_its_singleton(strategy: str) -> None:
    method = Method(strategy=strategy, k=3)  # type: ignore[arg-type]
    np.testing.assert_array_equal(rank_weights(method, 2), [1, 0, 0])
    np.testing.assert_array_equal(rank_weights(method, 0), [1])


def test_max_variance_needs_the_data() -> None:
    with pytest.raises(ValueError, match="scatter"):
        rank_weights(Method(), 2)
