"""Explanation: how the final scores of images came about, from similarities to sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparc_dist.core.debias import Scores
from sparc_dist.core.duo import Duo
from sparc_dist.core.fusion import Fusion
from sparc_dist.core.moments import Floats
from sparc_dist.core.order_statistics import Mentions


@dataclass(frozen=True)
class Parts:
    """The parts of an image's score of a column, of which the largest prompts come first.

    own: what the singleton adds. prompts: their indices; debiased, weights: of each (m_i,); their
    product is what a prompt adds.
    """

    own: float
    prompts: list[int]
    debiased: Floats
    weights: Floats


@dataclass(frozen=True)
class Explanation:
    """The scores of n images after both debias steps.

    singleton: (n, N + B), compound: (n, P)
    """

    fusion: Fusion | Duo
    singleton: Floats
    compound: Floats

    @classmethod
    def of(cls, fusion: Fusion | Duo, scores: Scores) -> Explanation:
        """Returns the explanation of some images."""
        if isinstance(fusion, Duo):
            return cls(fusion, *fusion.views.debias(scores))
        columns = len(fusion.mentions)
        debiased = fusion.debias(scores)
        return cls(fusion, debiased[:, :columns], debiased[:, columns:])

    def parts(self, image: int, column: int) -> Parts:
        """Returns the parts of one score; partners and the rival of duo are the rest of it."""
        compound = self.compound[image : image + 1]
        prompts = mentions(self.fusion)[column]
        weights, values = self.fusion.prompt_weights(compound, column)[0], compound[0, prompts]
        order = np.argsort(-weights * values, kind="stable")
        own = self.fusion.column_weights(column)[0] * self.singleton[image, column]
        return Parts(float(own), prompts[order].tolist(), values[order], weights[order])


def mentions(fusion: Fusion | Duo) -> Mentions:
    """Returns the prompts of each column."""
    return fusion.views.mentions if isinstance(fusion, Duo) else fusion.mentions
