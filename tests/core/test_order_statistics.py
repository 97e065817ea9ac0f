"""Vectors that are sorted together are those that each class would have alone."""

from __future__ import annotations

import numpy as np

from sparc_dist.core import Moments, Scatter, Scores
from sparc_dist.core.debias import debias_images, debias_prompts
from sparc_dist.core.order_statistics import Ranking, mentions_of
from sparc_dist.core.sparc import RankScatters

#: Of five classes; the third has no prompt, and three have two.
PROMPTS = [(0, 1), (0, 4), (1, 3), (3,), (0,), (4,)]
MENTIONS = mentions_of(PROMPTS, 5)


def random_scores(images: int = 40) -> Scores:
    rng = np.random.default_rng(0)
    return Scores(*(rng.normal(0.2, 0.01, (images, width)) for width in (5, 5, len(PROMPTS))))


def debiased(scores: Scores) -> np.ndarray:
    values = debias_images(scores)
    return debias_prompts(values, Moments.of(values))


def alone(values: np.ndarray, index: int) -> np.ndarray:
    """The vectors of one class, the highest rank first."""
    ranked = np.sort(values[:, 5 + MENTIONS[index]], axis=1)[:, ::-1]
    return np.column_stack([values[:, index], ranked])


def test_classes_of_one_length_are_in_one_block() -> None:
    blocks = Ranking.of(MENTIONS).blocks
    assert [block[:, 0].tolist() for block in blocks] == [[2], [1, 3, 4], [0]]
    assert [block.shape[1] for block in blocks] == [1, 3, 4]
    assert blocks[2].tolist() == [[0, 5, 6, 9]]


def test_weighted_sums_are_those_of_each_class() -> None:
    values, ranking = debiased(random_scores()), Ranking.of(MENTIONS)
    weights = [np.arange(1.0, 2 + len(prompts)) for prompts in MENTIONS]
    expected = [alone(values, index) @ weights[index] for index in range(5)]
    sums = ranking.weigh(values, ranking.arranged(weights))
    np.testing.assert_allclose(sums, np.stack(expected, axis=1), rtol=0, atol=1e-12)


def test_scatters_are_those_of_each_class_and_merge() -> None:
    values, ranking = debiased(random_scores()), Ranking.of(MENTIONS)
    parts = (values[:15], values[15:15], values[15:])
    first, none, last = (RankScatters.of(part, ranking) for part in parts)
    for index, scatter in enumerate((first + none + last).of_classes(MENTIONS)):
        expected = Scatter.of(alone(values, index))
        assert scatter.count == 40
        np.testing.assert_allclose(scatter.mean, expected.mean, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scatter.matrix, expected.matrix, rtol=0, atol=1e-12)
