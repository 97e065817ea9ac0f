"""Views: what the prompts of a class show of it in an image, from three sides.

An image step removes the bias of each image, a prompt step that of each prompt. Both differ from
those of SPARC: the first divides by the root of the SD, the second uses shrunk statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from sparc_dist.core.debias import ImageStatistics, Scores, standardise
from sparc_dist.core.moments import Floats, Moments
from sparc_dist.core.order_statistics import Mentions
from sparc_dist.core.shrinkage import FLAT, shrunk

#: With fewer columns, the mean and SD of an image say more about its classes than about its bias.
MIN_COLUMNS = 10

#: What an image's scores are divided by: their SD, its root, or nothing.
Scaling = Literal["full", "sqrt", "none"]


def image_step(scores: Scores, scaling: Scaling = "sqrt") -> tuple[Floats, Floats]:
    """Returns singleton (n, N + B) and compound scores (n, P) without the bias of their image.

    Scores are divided by the root of the image's SD: it is partly gain, partly content. With few
    columns they remain as they are.
    """
    return (
        standardise(scores.singleton, *image_bias(scores.of_singleton, scaling)),
        standardise(scores.compound, *image_bias(scores.of_auxiliary, scaling)),
    )


def image_bias(image: ImageStatistics, scaling: Scaling = "sqrt") -> tuple[Floats, Floats]:
    """Returns what the image step takes off and divides by: two columns (n, 1).

    The divisor is 0 if an image's scores are all the same.
    """
    mean, sd = image.mean, image.sd
    if image.columns < MIN_COLUMNS:
        return np.zeros_like(mean), np.ones_like(mean)
    divisor = {"full": sd, "sqrt": np.sqrt(sd), "none": np.ones_like(sd)}[scaling]
    return mean, np.where(sd <= FLAT * np.abs(mean), 0.0, divisor)


def flat_images(scores: Scores) -> int:
    """Returns how many images score every column the same, so that the image step gives zeros."""
    roots = (image_bias(part)[1] for part in (scores.of_singleton, scores.of_auxiliary))
    return int(np.logical_or(*(root == 0 for root in roots)).sum())


@dataclass(frozen=True)
class Views:
    """Three views of each column i: its own score, its compounds and its partners.

    The compounds are the mean of the m_i prompts that mention i. The partners are the sum of the
    other columns j, each times n_ij / m_i, where n_ij prompts mention both: what the compounds
    would show of them if prompts added up.

    mentions: per column. centre, sd: of the N + B + P prompts, (N + B + P,). scaling: of the image
    step.
    """

    mentions: Mentions
    centre: Floats
    sd: Floats
    scaling: Scaling = "sqrt"

    @classmethod
    def of(
        cls,
        singleton: Moments,
        compound: Moments,
        mentions: Mentions,
        shrinkage: float,
        scaling: Scaling,
    ) -> Views:
        """Returns the views that follow from the moments of prompts after the image step."""
        kinds = [shrunk(kind, shrinkage) for kind in (singleton, compound)]
        centre, sd = (np.concatenate(parts) for parts in zip(*kinds, strict=True))
        return cls(mentions, centre, sd, scaling)

    @cached_property
    def counts(self) -> Floats:
        """The number m_i of prompts that mention each column (N + B,)."""
        return np.array([len(prompts) for prompts in self.mentions], dtype=np.float64)

    @cached_property
    def averages(self) -> Floats:
        """The matrix (P, N + B) that averages the prompts of each column."""
        matrix = np.zeros((len(self.centre) - len(self.mentions), len(self.mentions)))
        for column, prompts in enumerate(self.mentions):
            matrix[prompts, column] = 1.0 / max(len(prompts), 1)
        return matrix

    @cached_property
    def partners(self) -> Floats:
        """The matrix (N + B, N + B) with n_ij / m_i in row j and column i, 0 where j = i."""
        matrix: Floats = (self.averages > 0).astype(np.float64).T @ self.averages
        np.fill_diagonal(matrix, 0.0)
        return matrix

    @cached_property
    def _scaled(self) -> Floats:
        """The averages (P, N + B) of compound scores that are still to be divided by their SD."""
        sd = self.sd[len(self.mentions) :, None]
        return np.divide(self.averages, sd, out=np.zeros_like(self.averages), where=sd > 0)

    @cached_property
    def _offset(self) -> Floats:
        """What the centres of prompts take off the compounds (N + B,)."""
        return np.asarray(self.centre[len(self.mentions) :] @ self._scaled)

    def of_images(self, scores: Scores) -> tuple[Floats, Floats, Floats]:
        """Returns own scores, compounds and partners, each (n, N + B)."""
        own = self._own(scores)
        # All steps are linear, so compound scores are averaged before they are scaled: there are
        # far fewer averages than prompts.
        bias, divisor = image_bias(scores.of_auxiliary, self.scaling)
        sums = np.subtract(scores.compound, bias, dtype=np.float64) @ self._scaled
        compounds = standardise(sums, np.zeros_like(divisor), divisor, out=sums)
        compounds -= self._offset
        return own, compounds, own @ self.partners

    def debias(self, scores: Scores) -> tuple[Floats, Floats]:
        """Returns the debiased singleton (n, N + B) and compound scores (n, P)."""
        columns = len(self.mentions)
        compound = image_step(scores, self.scaling)[1]
        centre, sd = self.centre[columns:], self.sd[columns:]
        return self._own(scores), standardise(compound, centre, sd, out=compound)

    def _own(self, scores: Scores) -> Floats:
        columns = len(self.mentions)
        own = standardise(scores.singleton, *image_bias(scores.of_singleton, self.scaling))
        return standardise(own, self.centre[:columns], self.sd[:columns], out=own)
