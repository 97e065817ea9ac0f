"""Shrinkage: the statistics of a prompt, shrunk to those of all prompts of its kind.

One prompt's mean and SD over few images say little. Prompts of the same kind resemble each other,
so pseudo-images drawn from all of them are added to the images of each.
"""

from __future__ import annotations

import numpy as np

from sparc_dist.core.moments import Floats, Moments

#: Number of pseudo-images that are added to the images of each prompt.
PSEUDO_IMAGES = 100.0

#: An SD below this fraction of the largest mean is rounding error of float32 scores.
FLAT = 1e-7


def shrunk(moments: Moments, pseudo_images: float = PSEUDO_IMAGES) -> tuple[Floats, Floats]:
    """Returns centre and SD of each prompt, with pseudo-images added: two arrays (d,).

    moments: of the d prompts of one kind, after the image-level step. Without pseudo-images these
    are the paper's mean and sample SD. The SD is 0 where the scores do not vary.
    """
    count, mean = moments.count, moments.mean
    observed = count - 1 + pseudo_images
    if not count or not mean.size or observed <= 0:
        return mean.copy(), np.zeros_like(mean)
    pooled = mean.mean()
    spread = (moments.deviations / count + (mean - pooled) ** 2).mean()
    centre = (count * mean + pseudo_images * pooled) / (count + pseudo_images)
    variance = (moments.deviations + pseudo_images * spread) / observed
    flat = variance <= (FLAT * np.abs(mean).max()) ** 2
    return centre, np.where(flat, 0.0, np.sqrt(variance))
