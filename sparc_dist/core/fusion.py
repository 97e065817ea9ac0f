"""Fusion: one weight per rank, and the merge with the singleton score.

Every strategy is a vector of weights over (singleton, 1st max, …, m-th max). Strategies differ only
in where the weights come from, so the same code scores an image for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from sparc_dist.core.debias import (
    ImageDebias,
    Scores,
    debias_images,
    debias_prompts,
    debias_singleton,
    standardise,
)
from sparc_dist.core.duo import DuoOptions, without_rival
from sparc_dist.core.moments import ROUNDING, Floats, Moments, Scatter
from sparc_dist.core.order_statistics import Mentions, Ranking

#: Rounding error of the sum of a unit vector's entries.
SIGN_ROUNDING = 1e-9

StrategyName = Literal["max-variance", "kmax", "mean", "singleton"]
FusionName = Literal["sparc", "duo"]

#: The fusions, in the order of tables: the methods that can decide.
DECIDING: tuple[FusionName, ...] = get_args(FusionName)
#: The options of a method that needs no ranks and gives debiased singletons.
UNRANKED: dict[str, Any] = {"strategy": "singleton", "merge": False}


@dataclass(frozen=True)
class Method:
    """How scores are debiased and fused. The defaults are SPARC.

    strategy: max-variance (SPARC), kmax (the k-th highest), mean (the mean of ranks k … m_i) or
    singleton. merge: whether to average the fused score with the debiased singleton. norm: the norm
    of the max-variance weights that is 1. rival: the share of an image's highest score that is
    taken off all its scores. duo: the parts of duo. primary: the method that decides; with ``auto``
    SPARC on official data sets, duo on others. fusions: those that are computed.
    """

    strategy: StrategyName = "max-variance"
    k: int = 1
    merge: bool = True
    norm: Literal["l1", "l2"] = "l1"
    image_debias: ImageDebias = "full"
    rival: float = 0.0
    duo: DuoOptions = field(default_factory=DuoOptions)
    primary: Literal["auto", "sparc", "duo"] = "auto"
    fusions: tuple[FusionName, ...] = DECIDING

    #: A config validates ``method:`` against this class; an unknown key there is an error.
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k is {self.k}; it must be at least 1")
        if not 0 <= self.rival < 1:
            raise ValueError(f"rival is {self.rival}; it must be at least 0 and below 1")
        if not self.fusions or not {*self.fusions} <= {*DECIDING}:
            raise ValueError(f"fusions is {list(self.fusions)}; list sparc, duo or both")
        if self.primary not in ("auto", *self.fusions):
            raise ValueError(
                f"primary is {self.primary}, which is not among the fusions "
                f"({', '.join(self.fusions)}); list it there, or leave primary out"
            )
        # Their order does not matter.
        listed = tuple(name for name in DECIDING if name in self.fusions)
        object.__setattr__(self, "fusions", listed)

    def deciding(self, preferred: FusionName) -> FusionName:
        """Returns the fusion that decides; ``preferred`` or the only one where it is ``auto``."""
        if self.primary != "auto":
            return self.primary
        return preferred if preferred in self.fusions else self.fusions[0]


def max_variance_weights(scatter: Scatter, norm: Literal["l1", "l2"] = "l1") -> Floats:
    """Returns the first principal component (1 + m_i,), of unit norm and with a mean ≥ 0.

    If nothing varies (one image), no direction is better than another: the weights are uniform.
    """
    size = len(scatter.mean)
    magnitude = scatter.count * float(scatter.mean @ scatter.mean) + np.trace(scatter.matrix)
    if np.trace(scatter.matrix) <= ROUNDING**2 * magnitude:
        direction = np.full(size, 1.0 / np.sqrt(size))
    else:
        direction = np.linalg.eigh(scatter.matrix)[1][:, -1]
    # A sum of zero leaves the sign open. A single prompt that contradicts its class always gives
    # (1, −1). The singleton then decides, not the rounding of the sum.
    total = direction.sum()
    if (total if abs(total) > SIGN_ROUNDING else direction[0]) < 0:
        direction = -direction
    length = np.abs(direction).sum() if norm == "l1" else np.sqrt(direction @ direction)
    weights: Floats = direction / length
    return weights


def rank_weights(method: Method, compounds: int, scatter: Scatter | None = None) -> Floats:
    """Returns the weights (1 + m_i,) of a class that ``compounds`` = m_i prompts mention.

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
    """The fitted model: the statistics and weights needed to score a new image.

    moments: of the N + P prompts over images, after the image-level step.
    weights: per class, (1 + m_i,).
    """

    method: Method
    mentions: Mentions
    moments: Moments
    weights: Sequence[Floats]
    notes: Sequence[str] = field(default=())

    def debias(self, scores: Scores) -> Floats:
        """Returns the debiased singleton and compound scores (n, N + P)."""
        return debias_prompts(debias_images(scores, self.method.image_debias), self.moments)

    def debias_singletons(self, scores: Scores) -> Floats:
        """Returns the debiased singleton scores alone (n, N)."""
        values, count = debias_singleton(scores, self.method.image_debias), len(self.mentions)
        return standardise(values, self.moments.mean[:count], self.moments.sd[:count])

    def final(self, scores: Scores) -> tuple[Floats, Floats]:
        """Returns the debiased singleton scores and SPARC's final scores, both (n, N)."""
        debiased = self.debias(scores)
        singleton = debiased[:, : len(self.mentions)]
        fused = self._ranking.weigh(debiased, self._arranged)
        total = merge(singleton, fused) if self.method.merge else fused
        return singleton, without_rival(total, self.method.rival) if self.method.rival else total

    @cached_property
    def _ranking(self) -> Ranking:
        return Ranking.of(self.mentions)

    @cached_property
    def _arranged(self) -> list[Floats]:
        return self._ranking.arranged(self.weights)

    def contributions(self, scores: Scores, columns: Iterable[int]) -> list[Floats]:
        """Returns, per column, what each of its m_i prompts adds to its final score (n, m_i).

        A prompt has the weight of its rank. The rest of a score is the column's singleton, and the
        rival if there is one.
        """
        compound = self.debias(scores)[:, len(self.mentions) :]
        return [
            compound[:, self.mentions[column]] * self.prompt_weights(compound, column)
            for column in columns
        ]

    def prompt_weights(self, compound: Floats, column: int) -> Floats:
        """Returns the weights (n, m_i) of a column's prompts in images; compound: debiased (n, P).

        A weight times a debiased score is what the prompt adds to the final score.
        """
        values = compound[:, self.mentions[column]]
        weights = np.empty_like(values)
        ranked = self.column_weights(column)[None, 1:]
        np.put_along_axis(weights, np.argsort(-values, axis=1), ranked, axis=1)
        return weights

    def column_weights(self, column: int) -> Floats:
        """Returns the weights of a column's singleton and ranks in final scores (1 + m_i,)."""
        weights = self.weights[column]
        if not self.method.merge:
            return weights
        return merge(np.eye(1, len(weights))[0], weights)


def merge(singleton: Floats, fused: Floats) -> Floats:
    """Returns the final scores: the mean of debiased singleton and fused scores."""
    return 0.5 * singleton + 0.5 * fused
