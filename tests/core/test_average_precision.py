import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from sparc_dist.core import Positives, Reached, mean_average_precision, summarise
from sparc_dist.core.average_precision import average_precision
from tests.support.cases import ap


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.booleans(), st.integers(0, 40))
def test_it_equals_scikit_learns_with_and_without_ties_and_through_shards(
    seed: int, images: int, ties: bool, edge: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, (images, 3)) * 1.0 if ties else rng.normal(size=(images, 3))
    labels = rng.random((images, 3)) < 0.4
    labels[0] = True
    expected = [100 * average_precision_score(labels[:, i], scores[:, i]) for i in range(3)]
    np.testing.assert_allclose(np.array(ap(scores, labels)), expected, atol=1e-9)
    parts = [slice(0, edge), slice(edge, None)]
    first, second = (Positives.of(scores[part], labels[part]) for part in parts)
    positives = second + first
    one, two = (Reached.of(scores[part], positives) for part in parts)
    merged = np.array(average_precision(positives, one + two))
    np.testing.assert_allclose(merged, expected, atol=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_the_images_that_reach_a_positive_are_those_with_at_least_its_score(
    seed: int, images: int, positives: int, ties: bool
) -> None:
    rng = np.random.default_rng(seed)

    def drawn(count: int) -> NDArray[np.float32]:
        values = rng.integers(0, 5, (count, 3)) if ties else rng.normal(size=(count, 3))
        return values.astype(np.float32)

    scores, others = drawn(images), drawn(positives)
    found = Positives.of(others, rng.random(others.shape) < 0.6)
    before = scores.copy()
    reached = Reached.of(scores, found)
    for column, (thresholds, counts) in enumerate(zip(found.scores, reached.counts, strict=True)):
        expected = [int((scores[:, column] >= threshold).sum()) for threshold in thresholds]
        assert counts.tolist() == expected
    assert scores.tolist() == before.tolist()


def test_stored_counts_are_small_and_add_up_beyond_their_size() -> None:
    scores = np.arange(200.0)[:, None]
    positives = Positives.of(scores, scores < 3)
    state = Reached.of(scores, positives)
    restored = Reached.from_arrays(state.arrays())
    assert state.arrays()[0].dtype == np.uint8
    assert (restored + restored).counts[0].tolist() == [400, 398, 396]


@given(st.integers(0, 2**32 - 1))
def test_the_order_of_tied_images_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, labels = rng.integers(0, 3, (20, 2)) * 1.0, rng.random((20, 2)) < 0.5
    order = rng.permutation(20)
    assert ap(scores[order], labels[order]) == ap(scores, labels)


def test_a_class_without_positives_is_left_out_or_counts_as_zero() -> None:
    scores = np.array([[0.9, 0.1], [0.2, 0.3]])
    labels = np.array([[True, False], [False, False]])
    aps = ap(scores, labels)
    assert aps == [100.0, None]
    assert mean_average_precision(aps) == 100.0
    assert mean_average_precision(aps, "zero") == 50.0
    assert summarise(aps, ["cat", "dog"]) == {"mAP": 100.0, "AP": {"cat": 100.0, "dog": None}}


def test_without_positives_there_is_no_map() -> None:
    aps = ap(np.zeros((3, 2)), np.zeros((3, 2), dtype=bool))
    assert mean_average_precision(aps) is None
    assert mean_average_precision(aps, "zero") == 0.0


def test_a_known_case() -> None:
    scores = np.array([[4.0], [3.0], [2.0], [1.0]])
    labels = np.array([[True], [False], [True], [False]])
    assert ap(scores, labels)[0] == pytest.approx(100 * (1 + 2 / 3) / 2)
