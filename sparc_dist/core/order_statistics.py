"""Order statistics: the sorted compound scores of each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.moments import Floats

#: For each class, the indices of the compound prompts that mention it.
Mentions = Sequence[NDArray[np.int64]]


def mentions_of(prompt_classes: Sequence[Sequence[int]], classes: int) -> list[NDArray[np.int64]]:
    """Returns the prompts that mention each class, given the classes each of P prompts mentions."""
    prompts: list[list[int]] = [[] for _ in range(classes)]
    for prompt, mentioned in enumerate(prompt_classes):
        for index in sorted(set(mentioned)):
            prompts[index].append(prompt)
    return [np.array(indices, dtype=np.int64) for indices in prompts]


@dataclass(frozen=True)
class Ranking:
    """The vectors of all classes side by side, so that those of one length are sorted in one call.

    A class's vector is its singleton, then its m_i compound scores, here with the lowest first.

    blocks: for each length, the columns (k, 1 + m) of debiased scores that the vectors of k classes
    are made of. The first is the class itself.
    """

    blocks: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, mentions: Mentions) -> Ranking:
        """Returns the ranking of N classes among N singleton and P compound scores."""
        lengths: dict[int, list[NDArray[np.int64]]] = {}
        for index, prompts in enumerate(mentions):
            columns = np.concatenate([[index], len(mentions) + prompts]).astype(np.int64)
            lengths.setdefault(len(prompts), []).append(columns)
        return cls(tuple(np.stack(lengths[length]) for length in sorted(lengths)))

    def vectors(self, debiased: Floats) -> Floats:
        """Returns the vectors of all classes (n, Σ (1 + m_i)). debiased: (n, N + P)."""
        # Gathered at once and sorted in place: each copy would cost as much as half the sorting.
        values = np.take(debiased, self._columns, axis=1)
        for part in self.split(values):
            part[:, :, 1:].sort(axis=2)
        return values

    def split(self, values: Floats) -> Iterator[Floats]:
        """Yields the vectors (n, k, 1 + m) of each block, which are no copies."""
        start = 0
        for block in self.blocks:
            stop = start + block.size
            yield values[:, start:stop].reshape(len(values), *block.shape)
            start = stop

    def weigh(self, debiased: Floats, weights: Sequence[Floats]) -> Floats:
        """Returns the weighted sums of vectors (n, N). weights: per block, (k, 1 + m)."""
        sums = np.empty((len(debiased), sum(map(len, self.blocks))))
        parts = self.split(self.vectors(debiased))
        for block, vectors, rows in zip(self.blocks, parts, weights, strict=True):
            sums[:, block[:, 0]] = (vectors.swapaxes(0, 1) @ rows[:, :, None])[:, :, 0].T
        return sums

    def arranged(self, weights: Sequence[Floats]) -> list[Floats]:
        """Returns the weights of classes, the highest rank first, as ``weigh`` takes them."""
        return [
            np.stack([weights[index] for index in block[:, 0]])[:, flipped(block.shape[1])]
            for block in self.blocks
        ]

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        return np.concatenate([block.ravel() for block in self.blocks])


def flipped(length: int) -> NDArray[np.int64]:
    """Returns the places of a vector's entries if its ranks come in the opposite order."""
    return np.append(0, np.arange(length - 1, 0, -1))
