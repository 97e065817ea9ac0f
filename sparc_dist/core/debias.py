"""Debias: take the bias of each image, then of each prompt, out of the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.moments import ROUNDING, Floats, Moments

#: The image-level step of the singleton scores: mean and SD, the mean only, nothing.
ImageDebias = Literal["full", "centre", "none"]


@dataclass(frozen=True)
class Scores:
    """The raw similarities of n images.

    singleton: (n, N), auxiliary: (n, N), compound: (n, P)
    """

    singleton: NDArray[np.floating]
    auxiliary: NDArray[np.floating]
    compound: NDArray[np.floating]

    def __len__(self) -> int:
        return len(self.singleton)

    def __getitem__(self, rows: slice) -> Scores:
        return Scores(self.singleton[rows], self.auxiliary[rows], self.compound[rows])


def image_statistics(scores: NDArray[np.floating]) -> tuple[Floats, Floats]:
    """Mean and sample SD of each image's scores (n, N): two columns (n, 1).

    The SD is 0 where an image's scores are all the same, and where there is but one class.
    """
    values = np.asarray(scores, dtype=np.float64)
    mean = values.mean(axis=1, keepdims=True)
    if values.shape[1] < 2:
        return mean, np.zeros_like(mean)
    sd = values.std(axis=1, ddof=1, keepdims=True)
    magnitude = np.sqrt((values**2).mean(axis=1, keepdims=True))
    return mean, np.where(sd <= ROUNDING * magnitude, 0.0, sd)


def debias_images(scores: Scores, mode: ImageDebias = "full") -> Floats:
    """The image-level step: singleton and compound scores side by side (n, N + P)."""
    return np.concatenate([debias_singleton(scores, mode), debias_compound(scores)], axis=1)


def debias_singleton(scores: Scores, mode: ImageDebias = "full") -> Floats:
    """The image-level step of the singleton scores (n, N), by those of their image."""
    mean, sd = image_statistics(scores.singleton)
    if mode == "full":
        return standardise(scores.singleton, mean, sd)
    return scores.singleton.astype(np.float64) - (mean if mode == "centre" else 0.0)


def debias_compound(scores: Scores) -> Floats:
    """The image-level step of the compound scores (n, P), by the *auxiliary* ones of their image.

    Compound prompts have no template, so neither may their yardstick.
    """
    return standardise(scores.compound, *image_statistics(scores.auxiliary))


def flat_images(scores: Scores, mode: ImageDebias = "full") -> int:
    """How many images have the same score for every class, so that debias makes them 0."""
    flat = image_statistics(scores.auxiliary)[1] == 0
    if mode == "full":
        flat |= image_statistics(scores.singleton)[1] == 0
    return int(flat.sum())


def debias_prompts(values: Floats, moments: Moments) -> Floats:
    """The prompt-level step: each column of ``values`` (n, N + P) by its moments over images."""
    return standardise(values, moments.mean, moments.sd)


def standardise(values: NDArray[np.floating], mean: Floats, sd: Floats) -> Floats:
    """(values − mean) / sd, and 0 where sd is 0."""
    centred = np.asarray(values, dtype=np.float64) - mean
    return np.divide(centred, sd, out=np.zeros_like(centred), where=sd > 0)
