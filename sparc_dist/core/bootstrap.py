"""The paired bootstrap over images: how far an average precision depends on which images there are.

A draw gives each image a Poisson(1) weight: the number of times it is in the resample, for as many
images as there are on average. A draw's weights follow from the seed, the draw and the image's
position in its data set, so all classes, methods and units see the same resamples, and differences
between them are paired.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sparc_dist.core.average_precision import EmptyClass
from sparc_dist.core.moments import Floats

#: The number of draws, the seed of their weights, and the share of draws that an interval holds.
DRAWS, SEED, LEVEL = 1000, 0, 0.95

#: Draws that are evaluated together: 128 bytes of each image's weights, in float32.
TOGETHER = 32

Weights = NDArray[np.uint8]


def resampling_weights(images: int, draws: range) -> Weights:
    """Returns the weights of all images of a data set in each of the draws (draws, M)."""
    weights = np.empty((len(draws), images), np.uint8)
    for row, draw in zip(weights, draws, strict=True):
        row[:] = np.random.default_rng([SEED, draw]).poisson(1.0, images)
    return weights


@dataclass(frozen=True)
class Ranking:
    """The images of one class, sorted once and evaluated for any weights.

    A rank is a score that positives have; images with equal scores share it, as in
    ``average_precision``. reached, hits: sparse (ranks, M) with a 1 where an image, or a positive
    one, has the rank or lies between it and the next higher one. Ranks descend.
    """

    reached: Any
    hits: Any

    @classmethod
    def of(cls, scores: NDArray[np.floating], labels: NDArray[np.bool_]) -> Ranking:
        """Returns the ranking of a class. scores, labels: (M,)."""
        ranks = np.unique(scores[labels])
        # Images below all positives do not matter: their rank is −1.
        rank = np.searchsorted(ranks, scores, side="right") - 1
        shape = (len(ranks), len(scores))

        def ones(images: NDArray[np.intp]) -> Any:
            # Half the memory of int64.
            places = [part.astype(np.int32) for part in (len(ranks) - 1 - rank[images], images)]
            return sparse.csr_array((np.ones(len(images), np.float32), tuple(places)), shape)

        return cls(ones(np.flatnonzero(rank >= 0)), ones(np.flatnonzero(labels)))

    def average_precision(self, columns: NDArray[np.float32]) -> Floats:
        """Returns the AP in percent for each column of weights (M, draws); NaN without positives.

        Sums of integers are exact in float32 up to 16 million, and ranks add up in float64.
        """
        found = self.hits @ columns
        hits, reached = (
            np.cumsum(part, axis=0, dtype=np.float64) for part in (found, self.reached @ columns)
        )
        # A rank that no drawn image reaches has no drawn positive either.
        precision = np.divide(hits, reached, out=np.zeros_like(hits), where=reached > 0)
        positives = found.sum(axis=0, dtype=np.float64)
        none = np.full(len(positives), np.nan)
        summed = np.einsum("rd,rd->d", found, precision)
        return np.asarray(np.divide(100.0 * summed, positives, out=none, where=positives > 0))


def columns_of(weights: NDArray[np.integer]) -> NDArray[np.float32]:
    """Returns weights (draws, M) as rankings take them: (M, draws), contiguous."""
    return np.ascontiguousarray(weights.T).astype(np.float32)


def resampled_mean(aps: Floats, empty_class: EmptyClass = "skip") -> Floats:
    """Returns the mAP of each draw (…, draws); aps: (…, classes, draws).

    A class without a drawn positive is skipped, or counts as 0, as in
    ``mean_average_precision``; a draw without any has NaN.
    """
    known = ~np.isnan(aps)
    counts = known.sum(axis=-2)
    total = np.where(known, aps, 0.0).sum(axis=-2)
    size = np.where(counts > 0, aps.shape[-2] if empty_class == "zero" else counts, np.nan)
    return np.asarray(total / size)


def interval(differences: Floats) -> tuple[float, float]:
    """Returns the bounds between which the share LEVEL of the draws' differences lies."""
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(differences, [tail, 1 - tail])
    return float(low), float(high)
