"""The ensemble of backbones: the mean of their standardised final scores.

Each backbone's scores of a class, background classes included, are standardised by their own mean
and SD over images, so that no backbone counts more because its scores spread more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.debias import standardise
from sparc_dist.core.decisions import MIN_IMAGES
from sparc_dist.core.final_scores import CONSTANT, DIGITS, FinalScores
from sparc_dist.core.moments import Floats, Moments


@dataclass(frozen=True)
class Standard:
    """What standardises the final scores of one backbone.

    mean, sd: of all columns that ``FinalScores.every`` has; an SD of 0 makes a column 0
    """

    mean: Floats
    sd: Floats

    @classmethod
    def of(cls, moments: Moments) -> Standard:
        """Returns the standard of merged moments.

        Few images tell no mean and SD: if one class is in all of them, it must not become 0. Their
        scores enter as they are, which shrunk statistics have made comparable already. Rounded as
        ``ScoreMoments.standards``, because sums differ in the last bits with the shards.
        """
        if moments.count < MIN_IMAGES:
            return cls(np.zeros_like(moments.mean), np.ones_like(moments.mean))
        sd = moments.sd
        return cls(moments.mean.round(DIGITS), np.where(sd <= CONSTANT, 0.0, sd).round(DIGITS))

    def scale(self, method: str, methods: Iterable[str], classes: int) -> Floats:
        """Returns what a method's final score of each of the N classes is multiplied with (N,).

        methods: those that the backbone has, in order
        """
        first = [*methods].index(method) * classes
        sd = self.sd[first : first + classes]
        return np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0)


def average(
    parts: Iterable[tuple[FinalScores, Standard, NDArray[np.intp]]], images: int
) -> FinalScores:
    """Returns the mean over backbones of standardised scores of n images.

    parts: for each backbone the scores of images that it could read, its standard, and which of the
    n images these are. Each image is averaged over the backbones that have it, at least one.
    """
    total, seen, like = None, np.zeros((images, 1)), None
    for final, standard, rows in parts:
        if total is None:
            total, like = np.zeros((images, len(standard.mean))), final
        total[rows] += standardise(final.every, standard.mean, standard.sd)
        seen[rows] += 1
    if total is None or like is None:
        raise ValueError("an ensemble needs at least one backbone")
    return like.split(total / seen)
