"""Drift: how far new images are from those that a fusion was fitted on."""

from __future__ import annotations

import math

import numpy as np

from sparc_dist.core.moments import Moments

#: With fewer images, means say nothing.
MIN_IMAGES = 20
#: Above this drift, in SDs of the fit, probabilities are not to be trusted. Other images of the
#: same kind were at 0.3 at most, photos beside drawings at 0.4 at least (docs/labelling.md).
LARGE = 0.35


def drift(debiased: Moments, fitted_on: int) -> float | None:
    """Returns how far prompt means have moved, in SDs of the fit; None for few images.

    debiased: of the debiased singleton scores of new images (N + B columns). The prompt-level step
    subtracts the mean of the fit and divides by its SD, so on images like those of the fit their
    mean is about 0. The drift is the root mean square over columns, without what chance adds to
    means of so many images.
    """
    if debiased.count < MIN_IMAGES:
        return None
    chance = debiased.sd**2 * (1 / debiased.count + 1 / fitted_on)
    moved = float(np.mean(debiased.mean**2 - chance))
    return math.sqrt(max(moved, 0.0))
