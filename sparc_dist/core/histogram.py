"""Histogram: counts of standardised scores in fixed bins, which add up exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.moments import Floats
from sparc_dist.core.special import ndtr

Counts = NDArray[np.int64]

#: Bins of 0.05 on [−8, 8); scores beyond are counted in the outermost bins.
BINS, PER_UNIT = 320, 20
EDGES: Floats = (np.arange(BINS) - BINS // 2) / PER_UNIT
CENTRES: Floats = EDGES + 0.5 / PER_UNIT


def histogram(values: Floats) -> Counts:
    """Returns the counts (d, BINS) of the columns of ``values`` (n, d)."""
    bins = np.clip(np.floor(values * PER_UNIT), -BINS // 2, BINS // 2 - 1).astype(np.int64)
    columns = values.shape[1]
    places = bins + BINS // 2 + BINS * np.arange(columns)
    return np.bincount(places.ravel(), minlength=columns * BINS).reshape(columns, BINS)


def standard_normal() -> Floats:
    """Returns the share of a standard normal distribution in each bin (BINS,)."""
    below = ndtr(EDGES)
    below[0] = 0.0
    return np.diff(below, append=1.0)


def skewness(counts: Counts) -> Floats:
    """Returns the skewness of each row of counts (d, BINS), 0 if all are in one bin: (d,)."""
    share = counts / counts.sum(axis=1, keepdims=True)
    centred = CENTRES - (share @ CENTRES)[:, None]
    variance, third = ((share * centred**power).sum(axis=1) for power in (2, 3))
    spread = variance**1.5
    return np.asarray(np.divide(third, spread, out=np.zeros_like(third), where=variance > 1e-12))
