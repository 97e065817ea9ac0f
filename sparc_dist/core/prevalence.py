"""Prevalence: the share of images that hold each class, estimated without labels.

The scores of a class are a mixture of two normal distributions with one variance, absent and
present. Classes are fitted together: each is drawn a little to what all of them show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparc_dist.core.histogram import CENTRES, Counts, skewness
from sparc_dist.core.moments import Floats

#: Number of pseudo-images of the pooled fit that are added to each class.
PSEUDO_IMAGES = 10.0

#: Two components that are closer than this many SDs do not tell present from absent.
MIN_DISTANCE = 1.5

#: The fit ends when no prevalence moves by this much, or after so many rounds.
STILL, ROUNDS = 1e-5, 500

#: A prevalence that the scores before decorrelation show is believed up to here.
MAX_COMMON = 2 / 3


@dataclass(frozen=True)
class Mixture:
    """(1 − share) · N(absent, variance) + share · N(present, variance) of d classes: each (d,)."""

    share: Floats
    absent: Floats
    present: Floats
    variance: Floats

    @property
    def distance(self) -> Floats:
        """How many SDs lie between the components (d,)."""
        return (self.present - self.absent) / np.sqrt(self.variance)

    def memberships(self) -> Floats:
        """E-step: returns the probability of the upper component in each bin (d, BINS)."""
        share, absent, present, variance = (
            part[:, None] for part in (self.share, self.absent, self.present, self.variance)
        )
        distances = (CENTRES - absent) ** 2 - (CENTRES - present) ** 2
        with np.errstate(divide="ignore", over="ignore"):
            odds = np.log(1 - share) - np.log(share) - distances / (2 * variance)
            return 1 / (1 + np.exp(odds))


def fit_mixture(counts: Counts, start: float, pseudo_images: float) -> Mixture:
    """Fits a mixture to each row of counts (d, BINS) by expectation maximisation.

    start: the bins from the one where the cumulative share of images reaches it begin in the upper
    component. The moment at which the fit ends is part of its definition.
    """
    images = counts.sum(axis=1, keepdims=True)
    fitted = _maximise(counts, (counts.cumsum(axis=1) >= start * images) * 1.0, pseudo_images)
    for _ in range(ROUNDS):
        before = fitted.share
        fitted = _maximise(counts, fitted.memberships(), pseudo_images)
        if np.abs(fitted.share - before).max() < STILL:
            break
    return fitted


def _maximise(counts: Counts, memberships: Floats, pseudo_images: float) -> Mixture:
    """M-step: returns the mixture that fits best, given the membership of each bin (d, BINS)."""
    images = counts.sum(axis=1)
    upper = counts * memberships
    lower = counts - upper
    n1, n0 = upper.sum(axis=1), lower.sum(axis=1)
    s1, s0 = upper @ CENTRES, lower @ CENTRES
    share = n1.sum() / images.sum()
    mean1, mean0 = _ratio(s1.sum(), n1.sum()), _ratio(s0.sum(), n0.sum())
    added1, added0 = pseudo_images * share, pseudo_images * (1 - share)
    present = _ratio(s1 + added1 * mean1, n1 + added1)
    absent = _ratio(s0 + added0 * mean0, n0 + added0)
    squares = (upper * (CENTRES - present[:, None]) ** 2).sum(axis=1)
    squares += (lower * (CENTRES - absent[:, None]) ** 2).sum(axis=1)
    variance = squares + pseudo_images * (squares.sum() / images.sum())
    return Mixture(
        (n1 + added1) / (images + pseudo_images),
        absent,
        present,
        np.maximum(variance / (images + pseudo_images), 1e-4),
    )


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Returns part / whole, and 0 where whole is 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def estimate(decorrelated: Counts, plain: Counts) -> tuple[Floats, list[str]]:
    """Returns the prevalence (d,) and the status of each of d columns.

    decorrelated, plain: counts (d, BINS) of the scores before the rival is taken off, with and
    without what other columns tell of them. Decorrelation removes the context of a class, which
    would otherwise pass for its presence. The status is

    - ``clear``: the components are far apart;
    - ``unclear``: they are not, and the prevalence is the mean of all columns;
    - ``common``: most images hold the class, and the prevalence comes from the plain scores.
    """
    mixture = fit_mixture(decorrelated, 0.9, PSEUDO_IMAGES)
    unclear = mixture.distance < MIN_DISTANCE
    prevalence = np.where(unclear, mixture.share.mean(), mixture.share)
    status = ["unclear" if flag else "clear" for flag in unclear]
    images = plain[0].sum()
    for column in np.flatnonzero(skewness(plain) < -(0.1 + np.sqrt(6 / images))):
        # Each column is fitted alone, so its prevalence does not depend on which others are common.
        share = fit_mixture(plain[column : column + 1], 0.5, 0.0).share[0]
        status[column] = "common" if share <= MAX_COMMON else "unclear"
        prevalence[column] = share if share <= MAX_COMMON else prevalence[column]
    return prevalence, status
