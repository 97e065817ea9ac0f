"""Explanation: how the final scores of images came about, from similarities to sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.debias import Scores
from sparc_dist.core.fusion import Fusion
from sparc_dist.core.moments import Floats


@dataclass(frozen=True)
class Parts:
    """The parts of an image's score of a column, of which the largest prompts come first.

    own: what the singleton adds. prompts: their indices; debiased, weights: of each (m_i,); their
    product is what a prompt adds.
    """

    own: float
    prompts: list[int]
    debiased: NDArray[np.floating]
    weights: Floats


@dataclass(frozen=True)
class Explanation:
    """The scores of n images after both debias steps.

    singleton: (n, N + B), compound: (n, P)
    """

    fusion: Fusion
    singleton: NDArray[np.floating]
    compound: NDArray[np.floating]

    @classmethod
    def of(cls, fusion: Fusion, scores: Scores) -> Explanation:
        """Returns the explanation of some images."""
        return cls(fusion, *fusion.debiased(scores))

    def parts(self, image: int, column: int) -> Parts:
        """Returns the parts of one score; what else a fusion adds, and its rival, is the rest."""
        compound = self.compound[image : image + 1]
        prompts = self.fusion.mentions[column]
        weights, values = self.fusion.prompt_weights(compound, column)[0], compound[0, prompts]
        order = np.argsort(-weights * values, kind="stable")
        own = self.fusion.column_weights(column)[0] * self.singleton[image, column]
        return Parts(float(own), prompts[order].tolist(), values[order], weights[order])
