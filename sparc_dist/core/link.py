"""Link: the probability of a standardised score z, σ(slope · z + intercept), and a threshold.

Everything is computed from weights: the number, or the share, of images in each bin of z.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.histogram import CENTRES, EDGES
from sparc_dist.core.moments import Floats
from sparc_dist.core.special import expit, logit

Weights = NDArray[np.floating] | NDArray[np.integer]

#: The slope of the link without labels.
SLOPE = 2.0

#: An image with a lower probability is never said to hold the class.
MIN_PROBABILITY = 0.1

#: Bisection finds intercepts in ± this range to the last bit in so many steps.
RANGE, STEPS = 100.0, 80


def mean_probability(weights: Weights, slope: float, intercept: Floats) -> Floats:
    """Returns the mean probability of each class (d,). weights: (d, BINS), intercept: (d,)."""
    probability = expit(slope * CENTRES + intercept[:, None])
    mean: Floats = (weights * probability).sum(axis=1) / weights.sum(axis=1)
    return mean


def intercepts(weights: Weights, prevalence: Floats, slope: float = SLOPE) -> Floats:
    """Returns the intercepts (d,) with which each mean probability is the prevalence (d,).

    A class without a prevalence (NaN) has no intercept either.
    """
    low, high = np.full_like(prevalence, -RANGE), np.full_like(prevalence, RANGE)
    for _ in range(STEPS):
        middle = (low + high) / 2
        above = mean_probability(weights, slope, middle) > prevalence
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where(np.isnan(prevalence), np.nan, (low + high) / 2)


def thresholds(weights: Weights, slope: float, intercept: Floats, prevalence: Floats) -> Floats:
    """Returns the z (d,) from which on images are said to hold each class.

    It is the bin edge with the largest expected F1, the highest of equals, but not below the z of
    the lowest probability that is admitted.
    """
    probability = expit(slope * CENTRES + intercept[:, None])
    hits = np.cumsum((weights * probability)[:, ::-1], axis=1)
    decided = np.cumsum(weights[:, ::-1], axis=1)
    expected = weights.sum(axis=1) * prevalence
    best = np.argmax(hits / (decided + expected[:, None]), axis=1)
    lowest = scores_at(MIN_PROBABILITY, slope, intercept)
    return np.asarray(np.maximum(EDGES[::-1][best], lowest))


def scores_at(probability: float, slope: float, intercept: Floats) -> Floats:
    """Returns the z of each class (d,) at which its probability is as given."""
    return np.asarray((logit(probability) - intercept) / slope)
