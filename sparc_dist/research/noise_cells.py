"""The sums over images that the noise model needs, per pair prompt and cell; mergeable.

A pair prompt (i, j) divides the images into four cells by their labels: cell 2·y_i + y_j. The loss
weights the cells of a prompt equally, so a first pass counts them. Every further pass takes tables
f(prompt, cell), finds the best θ of each image in closed form, and keeps two sums per prompt and
cell. They suffice to find a better table, however many images there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core import ROUNDING, Floats
from sparc_dist.core.states import State

CELLS = 4

#: Number of images held as float64 at a time: two arrays of 4·P numbers each.
BLOCK = 128


@dataclass(frozen=True)
class Pairs:
    """One shard of images scored by pair prompts.

    scores: (n, P) raw cosines, labels: (n, N), classes: (P, 2) the classes i, j of each prompt
    """

    scores: NDArray[np.floating]
    labels: NDArray[np.bool_]
    classes: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, rows: slice) -> Pairs:
        return Pairs(self.scores[rows], self.labels[rows], self.classes)

    @property
    def cells(self) -> NDArray[np.uint8]:
        """The cell of each image under each prompt (n, P)."""
        present = self.labels.astype(np.uint8)
        first, second = self.classes.T
        return 2 * present[:, first] + present[:, second]

    def blocks(self) -> Iterator[Pairs]:
        """Yields the shard in blocks of few images; one empty block if it has no images."""
        for start in range(0, max(len(self), 1), BLOCK):
            yield self[start : start + BLOCK]

    def members(self) -> Floats:
        """Returns 1 where an image is in a prompt's cell, else 0 (n, P, 4)."""
        members: NDArray[np.bool_] = self.cells[:, :, None] == np.arange(CELLS)
        return members.astype(np.float64)


@dataclass(frozen=True)
class CellCounts:
    """Count, mean and sum of squared deviations of the scores in each cell: all (P, 4)."""

    count: Floats
    mean: Floats
    deviations: Floats

    @classmethod
    def of(cls, pairs: Pairs) -> CellCounts:
        """Returns the state of one shard."""
        return reduce(add, map(cls._of_block, pairs.blocks()))

    @classmethod
    def _of_block(cls, pairs: Pairs) -> CellCounts:
        members = pairs.members()
        scores = pairs.scores.astype(np.float64)[:, :, None]
        count = members.sum(axis=0)
        mean = (members * scores).sum(axis=0) / np.maximum(count, 1)
        return cls(count, mean, (members * (scores - mean) ** 2).sum(axis=0))

    def __add__(self, other: CellCounts) -> CellCounts:
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        delta = other.mean - self.mean
        return CellCounts(
            count,
            self.mean + delta * share,
            self.deviations + other.deviations + delta**2 * self.count * share,
        )


@dataclass(frozen=True)
class Balance:
    """The weight of one squared error in each cell; the weighted sum is the FVU.

    The cells of a prompt that are not empty weigh the same. A prompt's error is divided by its
    balanced variance; a prompt without variance is left out. weights: (P, 4); unit: the typical SD
    of a prompt's scores
    """

    weights: Floats
    unit: float

    @classmethod
    def of(cls, counts: CellCounts) -> Balance:
        """Returns the weights 1 / (prompts used · variance · cells filled · images in the cell)."""
        filled = counts.count > 0
        share = filled / np.maximum(filled.sum(axis=1, keepdims=True), 1)
        mean = (share * counts.mean).sum(axis=1, keepdims=True)
        within = counts.deviations / np.maximum(counts.count, 1)
        variance = (share * (within + (counts.mean - mean) ** 2)).sum(axis=1)
        used = variance > ROUNDING**2 * (variance + mean[:, 0] ** 2)
        if not used.any():
            raise ValueError(
                "No pair prompt's score differs between images, so there is nothing to fit; pass "
                "the scores of more than one image."
            )
        scale = np.where(used, 1 / np.where(used, variance, 1.0), 0.0) / used.sum()
        weights = scale[:, None] * share / np.maximum(counts.count, 1)
        return cls(weights, float(np.sqrt(variance[used].mean())))

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which prompts count (P,)."""
        used: NDArray[np.bool_] = self.weights.max(axis=1) > 0
        return used


@dataclass(frozen=True)
class CellSums(State):
    """The sums of a pass for K tables, each with the best θ₀, θ₁ ≥ 0 of every image.

    loss: (K,) weighted squared error; the FVU once all shards are added
    squares: (K, P, 4) Σ θ₁², products: (K, P, 4) Σ θ₁ (s − θ₀), over the images of each cell
    scale: (K,) Σ θ₁; count: number of images
    """

    loss: Floats
    squares: Floats
    products: Floats
    scale: Floats
    count: int

    @classmethod
    def of(cls, pairs: Pairs, tables: Floats, balance: Balance) -> CellSums:
        """Returns the state of one shard for ``tables`` (K, P, 4)."""
        return reduce(add, (cls._of_block(block, tables, balance) for block in pairs.blocks()))

    @classmethod
    def _of_block(cls, pairs: Pairs, tables: Floats, balance: Balance) -> CellSums:
        weights, values = balance.weights.ravel(), tables.reshape(len(tables), -1)
        members = pairs.members().reshape(len(pairs), weights.size)  # (n, 4 P)
        total = (members @ weights)[:, None]
        scores = np.repeat(pairs.scores.astype(np.float64), CELLS, axis=1)
        # Scores relative to the image's mean: θ₀ absorbs the difference, and subtracting large
        # sums from each other loses less precision.
        scores -= (members * scores) @ weights[:, None] / total
        scores *= members
        mean = members @ (weights * values).T / total  # of f, over the image's prompts (n, K)
        spread = members @ (weights * values**2).T - total * mean**2
        shared = scores @ (weights * values).T
        # If f is the same for all prompts, any θ₁ fits equally well. One of typical size lets f
        # learn from the image without letting it dominate.
        flat = spread <= ROUNDING * total * mean**2
        theta1 = np.where(flat, balance.unit, np.maximum(shared, 0) / np.where(flat, 1.0, spread))
        theta0 = -theta1 * mean
        error = (scores**2) @ weights[:, None] - theta1 * (2 * shared - theta1 * spread)
        products = theta1.T @ scores - (theta1 * theta0).T @ members
        return cls(
            error.sum(axis=0),
            ((theta1**2).T @ members).reshape(tables.shape),
            products.reshape(tables.shape),
            theta1.sum(axis=0),
            len(pairs),
        )
