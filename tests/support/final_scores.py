"""Final scores for the tests of decisions: those of the golden set, and random ones."""

from __future__ import annotations

from functools import cache, reduce
from operator import add
from typing import Any

import numpy as np

from sparc_dist.core.final_scores import ScoreCounts, ScoreMoments
from sparc_dist.core.method import DuoOptions, Method
from sparc_dist.core.moments import Floats
from tests.support.cases import golden
from tests.support.fitting import debiased_and_final, fit_duo, fit_sparc


@cache
def scored(method: str) -> tuple[Floats, Floats]:
    """The golden set's scores before and after the rival is taken off."""
    scores, mentions, _, _ = golden()
    if method == "duo":
        duo = fit_duo(lambda: [scores], mentions, DuoOptions())
        return duo.weigh(duo.views.of_images(scores))
    sparc = debiased_and_final(fit_sparc(lambda: [scores], mentions, Method()), scores)[1]
    return sparc, sparc


def states(total: Floats, final: Floats, pieces: int = 1) -> tuple[ScoreMoments, ScoreCounts]:
    """The merged states of images in so many shards."""
    shards = list(zip(np.array_split(total, pieces), np.array_split(final, pieces), strict=True))
    state = reduce(add, (ScoreMoments.of([total], final) for total, final in shards))
    standards = state.standards
    return state, reduce(
        add, (ScoreCounts.of([total], final, standards) for total, final in shards)
    )


def random_scores(seed: int, images: int, columns: int, constant: int = 0) -> tuple[Floats, Floats]:
    total = np.random.default_rng(seed).normal(size=(images, columns))
    total[:, :constant] = 0.3
    return total, total - 0.2 * total.max(axis=1, keepdims=True)


def close(found: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(np.asarray(found), np.array(expected), rtol=0, atol=tolerance)
