"""Fusion: one weight per rank, and the merge with the singleton score.

Every strategy is a vector of weights over (singleton, 1st max, …, m-th max); they differ only in
where the weights come from. So scoring an image is the same few lines for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from sparc_dist.core.debias import ImageDebias, Scores, debias_images, debias_prompts
from sparc_dist.core.moments import ROUNDING, Floats, Moments, Scatter
from sparc_dist.core.order_statistics import Mentions, order_statistics

#: The rounding of a sum of a unit vector's entries.
SIGN_ROUNDING = 1e-9

StrategyName = Literal["max-variance", "kmax", "mean", "singleton"]


@dataclass(frozen=True)
class Method:
    """How scores are debiased and fused. The defaults are SPARC.

    strategy: max-variance (SPARC), kmax (the k-th highest), mean (the mean of ranks k … m_i) or
    singleton. merge: average the fused score with the debiased singleton. norm: of the
    max-variance weights.
    """

    strategy: StrategyName = "max-variance"
    k: int = 1
    merge: bool = True
    norm: Literal["l1", "l2"] = "l1"
    image_debias: ImageDebias = "full"

    #: A config validates ``method:`` against this class; an unknown key there is an error.
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k is {self.k}; it must be at least 1")


def max_variance_weights(scatter: Scatter, norm: Literal["l1", "l2"] = "l1") -> Floats:
    """The first principal component (1 + m_i,), signed so that its mean is ≥ 0, of unit norm.

    Where nothing varies (one image) no direction is better than another: the weights are uniform.
    """
    size = len(scatter.mean)
    magnitude = scatter.count * float(scatter.mean @ scatter.mean) + np.trace(scatter.matrix)
    if np.trace(scatter.matrix) <= ROUNDING**2 * magnitude:
        direction = np.full(size, 1.0 / np.sqrt(size))
    else:
        direction = np.linalg.eigh(scatter.matrix)[1][:, -1]
    # A sum of zero leaves the sign open, as (1, −1) for a single prompt that contradicts its
    # class always does; the singleton then decides, not the rounding of the sum.
    total = direction.sum()
    if (total if abs(total) > SIGN_ROUNDING else direction[0]) < 0:
        direction = -direction
    length = np.abs(direction).sum() if norm == "l1" else np.sqrt(direction @ direction)
    weights: Floats = direction / length
    return weights


def rank_weights(method: Method, compounds: int, scatter: Scatter | None = None) -> Floats:
    """The weights (1 + m_i,) of a class that ``compounds`` = m_i prompts mention.

    A class with fewer than k prompts falls back to its singleton.
    """
    if method.strategy == "max-variance":
        if scatter is None:
            raise ValueError("max-variance weights need the class's scatter")
        return max_variance_weights(scatter, method.norm)
    weights = np.zeros(1 + compounds)
    if method.strategy == "singleton" or compounds < method.k:
        weights[0] = 1.0
    elif method.strategy == "kmax":
        weights[method.k] = 1.0
    else:
        weights[method.k :] = 1.0 / (compounds - method.k + 1)
    return weights


@dataclass(frozen=True)
class Fusion:
    """The fitted model: statistics and weights, all that is needed to score a new image.

    moments: of the N + P prompts over images, after the image-level step.
    weights: for each class (1 + m_i,).
    """

    method: Method
    mentions: Mentions
    moments: Moments
    weights: Sequence[Floats]
    notes: Sequence[str] = field(default=())

    def debias(self, scores: Scores) -> Floats:
        """Debiased singleton and compound scores (n, N + P)."""
        return debias_prompts(debias_images(scores, self.method.image_debias), self.moments)

    def final(self, scores: Scores) -> tuple[Floats, Floats]:
        """The debiased singleton scores and SPARC's final scores, both (n, N)."""
        debiased = self.debias(scores)
        singleton = debiased[:, : len(self.mentions)]
        ranked = order_statistics(debiased, self.mentions)
        fused = np.stack([x @ w for x, w in zip(ranked, self.weights, strict=True)], axis=1)
        return singleton, merge(singleton, fused) if self.method.merge else fused


def merge(singleton: Floats, fused: Floats) -> Floats:
    """The final score: half the debiased singleton, half the fused score."""
    return 0.5 * singleton + 0.5 * fused
