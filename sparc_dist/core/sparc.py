"""SPARC: a weight for each rank of a class's compound scores, and the merge with its singleton.

pass 1   image debias → moments of every prompt          merge: 2 (N + P) numbers, ``Debiased``
pass 2   prompt debias → sort → scatter of every class   merge: Σ (1 + m_i)² numbers
pass 3   prompt debias → sort → weigh the ranks → merge  → final scores

Every strategy is a vector of weights over (singleton, 1st max, …, m-th max). Strategies differ only
in where the weights come from, so the same code scores an image for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.baselines import Debiased
from sparc_dist.core.debias import Scores
from sparc_dist.core.fusion import NO_BASE, Arrays, Facts, Given, Passes, Totals, without_rival
from sparc_dist.core.method import Method
from sparc_dist.core.moments import ROUNDING, Floats, Scatter
from sparc_dist.core.order_statistics import Mentions, Ranking, flipped
from sparc_dist.core.states import State

#: Rounding error of the sum of a unit vector's entries.
SIGN_ROUNDING = 1e-9


@dataclass(frozen=True)
class RankScatters(State):
    """The scatters of the vectors of each block of a ranking."""

    scatters: tuple[Scatter, ...]

    @classmethod
    def of(cls, debiased: Floats, ranking: Ranking) -> RankScatters:
        """Returns the state of one shard. debiased: (n, N + P)."""
        vectors = ranking.vectors(debiased)
        mean = (
            vectors.mean(axis=0, keepdims=True) if len(vectors) else np.zeros((1, vectors.shape[1]))
        )
        vectors -= mean
        means, parts = ranking.split(mean), ranking.split(vectors)
        return cls(tuple(Scatter.centred(m[0], part) for m, part in zip(means, parts, strict=True)))

    def of_classes(self, mentions: Mentions) -> list[Scatter]:
        """Returns for each class the scatter of its order statistics, the highest rank first."""
        found = {}
        for block, scatter in zip(Ranking.of(mentions).blocks, self.scatters, strict=True):
            order = flipped(block.shape[1])
            parts = zip(scatter.mean[:, order], scatter.matrix[:, order][:, :, order], strict=True)
            for index, part in zip(block[:, 0].tolist(), parts, strict=True):
                found[index] = Scatter(scatter.count, *part)
        return [found[index] for index in range(len(mentions))]


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
class Sparc(Debiased):
    """The fitted model: the statistics and weights needed to score a new image.

    weights: per column, (1 + m_i,).
    """

    name = "sparc"
    title = "SPARC"
    part = "background"
    builds_on = ("debiased",)
    passes: ClassVar[Passes] = (("rank_statistics", RankScatters),)
    prefix = "ranks"

    weights: Sequence[Floats]

    @classmethod
    def gather(cls, given: Given) -> Callable[[Scores], State] | None:
        """Returns the function that makes the state of a shard; None if weights are known."""
        if given.method.strategy != "max-variance":
            return None
        debiased, ranking = _debiased(given), Ranking.of(given.mentions)
        return lambda scores: RankScatters.of(debiased.debias(scores), ranking)

    @classmethod
    def fit(cls, given: Given) -> Self:
        """Returns the model for the merged state."""
        mentions, base = given.mentions, _debiased(given)
        scatters = given.states[0].of_classes(mentions) if given.states else [None] * len(mentions)
        weights = [
            rank_weights(given.method, len(indices), scatter)
            for indices, scatter in zip(mentions, scatters, strict=True)
        ]
        notes, count = list(base.notes), base.moments.count
        longest = 1 + max(map(len, mentions), default=0)
        if 1 < count < longest:
            notes.append(
                f"There are {count} images for vectors of up to {longest} ranks: "
                "the weights are based on few observations."
            )
        return cls(mentions, notes, given.method, base.moments, weights)

    def final(self, scores: Scores, base: Mapping[str, Totals] = NO_BASE) -> Totals:
        """Returns the final scores (n, N + B); its rival, if there is one, is part of both."""
        debiased = self.debias(scores)
        fused = self._ranking.weigh(debiased, self._arranged)
        total = merge(debiased[:, : len(self.mentions)], fused) if self.method.merge else fused
        final = without_rival(total, self.method.rival) if self.method.rival else total
        return final, final

    @cached_property
    def _ranking(self) -> Ranking:
        return Ranking.of(self.mentions)

    @cached_property
    def _arranged(self) -> list[Floats]:
        return self._ranking.arranged(self.weights)

    def prompt_weights(self, compound: NDArray[np.floating], column: int) -> Floats:
        """Returns the weights (n, m_i) of a column's prompts in images: those of their ranks."""
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

    def arrays(self) -> Arrays:
        """Returns what a labeler stores of it: the weights of all columns, one after the other."""
        return {"weights": np.concatenate(self.weights)}

    @classmethod
    def restored(cls, given: Given, arrays: Arrays, facts: Facts) -> Self:
        """Returns the model of what ``arrays`` returned."""
        ends = np.cumsum([0, *(1 + len(prompts) for prompts in given.mentions)]).tolist()
        weights = [arrays["weights"][a:b] for a, b in pairwise(ends)]
        moments = _debiased(given).moments
        return cls(given.mentions, facts["notes"], given.method, moments, weights)


def _debiased(given: Given) -> Debiased:
    """Returns the fitted model that SPARC builds on."""
    found = given.base["debiased"]
    assert isinstance(found, Debiased)
    return found


def merge(singleton: Floats, fused: Floats) -> Floats:
    """Returns the final scores: the mean of debiased singleton and fused scores."""
    return 0.5 * singleton + 0.5 * fused
