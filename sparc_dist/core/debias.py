"""Debias: removes the bias of each image, then of each prompt, from the scores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.moments import ROUNDING, Floats, Moments

#: What the image-level step removes: mean and SD, mean and the root of the SD; from singletons only
#: the mean, or nothing.
ImageDebias = Literal["full", "sqrt", "centre", "none"]


@dataclass(frozen=True)
class Scores:
    """The raw similarities of n images.

    singleton: (n, N), auxiliary: (n, N), compound: (n, P). embedding: (n, d), of length 1; None
    where it is not known or no fusion needs it.

    Statistics of images are computed once for all fusions, so scores must not change afterwards.
    """

    singleton: NDArray[np.floating]
    auxiliary: NDArray[np.floating]
    compound: NDArray[np.floating]
    embedding: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.singleton)

    def __getitem__(self, rows: slice | list[int]) -> Scores:
        embedding = None if self.embedding is None else self.embedding[rows]
        return Scores(self.singleton[rows], self.auxiliary[rows], self.compound[rows], embedding)

    @cached_property
    def of_singleton(self) -> ImageStatistics:
        """The statistics of each image's singleton scores."""
        return ImageStatistics.of(self.singleton)

    @cached_property
    def of_auxiliary(self) -> ImageStatistics:
        """The statistics of each image's auxiliary scores."""
        return ImageStatistics.of(self.auxiliary)


@dataclass(frozen=True)
class ImageStatistics:
    """Mean, sample SD and root mean square of each image's scores: three columns (n, 1).

    The SD is 0 if there is only one class. columns: the number N of scores of an image.
    """

    columns: int
    mean: Floats
    sd: Floats
    magnitude: Floats

    @classmethod
    def of(cls, scores: NDArray[np.floating]) -> ImageStatistics:
        """Returns the statistics of scores (n, N)."""
        values = np.asarray(scores, dtype=np.float64)
        mean = values.mean(axis=1, keepdims=True)
        columns = values.shape[1]
        sd = values.std(axis=1, ddof=1, keepdims=True) if columns > 1 else np.zeros_like(mean)
        return cls(columns, mean, sd, np.sqrt((values**2).mean(axis=1, keepdims=True)))

    @property
    def spread(self) -> Floats:
        """The SD (n, 1), 0 if an image's scores are all the same."""
        return np.where(self.sd <= ROUNDING * self.magnitude, 0.0, self.sd)


def debias_images(scores: Scores, mode: ImageDebias = "full") -> Floats:
    """Returns singleton, then compound scores after the image-level step (n, N + P)."""
    values = np.concatenate([scores.singleton, scores.compound], axis=1, dtype=np.float64)
    # The whole table is standardised as compound scores: faster than a part of each row.
    standardise(values, *_compound_bias(scores, mode), out=values)
    values[:, : scores.singleton.shape[1]] = debias_singleton(scores, mode)
    return values


def debias_singleton(scores: Scores, mode: ImageDebias = "full") -> Floats:
    """Returns the singleton scores (n, N) debiased by their own mean and SD per image."""
    mean, sd = scores.of_singleton.mean, scores.of_singleton.spread
    if mode in ("full", "sqrt"):
        return standardise(scores.singleton, mean, np.sqrt(sd) if mode == "sqrt" else sd)
    return scores.singleton.astype(np.float64) - (mean if mode == "centre" else 0.0)


def debias_compound(scores: Scores, mode: ImageDebias = "full") -> Floats:
    """Returns the compound scores (n, P) standardised by their image's *auxiliary* scores.

    Compound prompts have no template, so the scores that standardise them must have none either.
    Modes that leave singletons unscaled are for singletons on another scale: they change nothing.
    """
    return standardise(scores.compound, *_compound_bias(scores, mode))


def _compound_bias(scores: Scores, mode: ImageDebias) -> tuple[Floats, Floats]:
    """Returns what is taken off an image's compound scores, and what they are divided by."""
    mean, sd = scores.of_auxiliary.mean, scores.of_auxiliary.spread
    return mean, np.sqrt(sd) if mode == "sqrt" else sd


def flat_images(scores: Scores, mode: ImageDebias = "full") -> int:
    """Returns how many images score every class the same, so that debias sets them to 0."""
    flat = scores.of_auxiliary.spread == 0
    if mode in ("full", "sqrt"):
        flat |= scores.of_singleton.spread == 0
    return int(flat.sum())


def debias_prompts(values: Floats, moments: Moments) -> Floats:
    """Standardises each column of ``values`` (n, N + P) by its moments over images, in place."""
    return standardise(values, moments.mean, moments.sd, out=values)


def standardise(
    values: NDArray[np.floating], mean: Floats, sd: Floats, out: Floats | None = None
) -> Floats:
    """Returns (values − mean) / sd, and 0 where sd is 0. out: where to write it."""
    centred: Floats = np.subtract(values, mean, out=out, dtype=np.float64)
    # One division per row or column, not per score: those are slow.
    centred *= np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0)
    return centred
