"""SPARC itself: three passes over shards, with two small merges between them.

pass 1   image debias → moments of every prompt          merge: 2 (N + P) numbers
pass 2   prompt debias → sort → scatter of every class   merge: Σ (1 + m_i)² numbers
pass 3   prompt debias → sort → weigh the ranks → merge  → final scores
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparc_dist.core.debias import Scores, debias_images, debias_prompts, flat_images
from sparc_dist.core.fusion import Fusion, Method, rank_weights
from sparc_dist.core.moments import Moments, Scatter
from sparc_dist.core.order_statistics import Mentions, Ranking, flipped
from sparc_dist.core.states import State


@dataclass(frozen=True)
class PromptState(State):
    """The state of pass 1: the moments of N + P prompts, and the number of flat images."""

    moments: Moments
    flat_images: int

    @classmethod
    def of(cls, scores: Scores, method: Method) -> PromptState:
        """Returns the state of one shard."""
        return cls(
            Moments.of(debias_images(scores, method.image_debias)),
            flat_images(scores, method.image_debias),
        )


@dataclass(frozen=True)
class RankState(State):
    """The state of pass 2: the scatters of the vectors of each block of a ranking."""

    scatters: tuple[Scatter, ...]

    @classmethod
    def of(cls, scores: Scores, moments: Moments, ranking: Ranking, method: Method) -> RankState:
        """Returns the state of one shard."""
        debiased = debias_prompts(debias_images(scores, method.image_debias), moments)
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


def needs_ranks(method: Method) -> bool:
    """Whether the weights depend on the data, so that pass 2 is needed."""
    return "sparc" in method.fusions and method.strategy == "max-variance"


def finish(
    prompts: PromptState, ranks: RankState | None, mentions: Mentions, method: Method
) -> Fusion:
    """Returns the fitted model for the merged states."""
    scatters = ranks.of_classes(mentions) if ranks else [None] * len(mentions)
    weights = [
        rank_weights(method, len(indices), scatter)
        for indices, scatter in zip(mentions, scatters, strict=True)
    ]
    return Fusion(method, mentions, prompts.moments, weights, _notes(prompts, mentions))


def _notes(prompts: PromptState, mentions: Mentions) -> list[str]:
    """Returns notes for the user about degenerate data."""
    moments, classes = prompts.moments, len(mentions)
    notes = []
    if classes == 1:
        notes.append("There is only one class, so image debias sets all scores to 0.")
    elif prompts.flat_images:
        notes.append(f"{prompts.flat_images} images score every class the same: they become 0.")
    if moments.count == 1:
        notes.append("There is only one image, so prompt debias sets all scores to 0.")
        return notes
    constant = moments.sd == 0
    for kind, part in (("singleton", constant[:classes]), ("compound", constant[classes:])):
        if part.any():
            notes.append(f"{part.sum()} {kind} prompts score every image the same: they become 0.")
    longest = 1 + max(map(len, mentions), default=0)
    if moments.count < longest:
        notes.append(
            f"There are {moments.count} images for vectors of up to {longest} ranks: "
            "the weights are based on few observations."
        )
    return notes
