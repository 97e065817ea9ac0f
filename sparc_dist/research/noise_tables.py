"""The noise model's seven forms of f(y_i, y_j), each a table over prompts and cells.

Five of them are one formula: top · max + δ · min of the two classes' terms a₀ + y·a₁. AND is
(0, 1), OR is (1, 0), additive is (1, 1), and the AND bonus leaves δ free, as one value for all
prompts or one per prompt.

What the data can determine. The scale of f belongs to θ₁. A common shift of all a₀ adds (top + δ)
times that shift to f. If all prompts share δ, θ₀ absorbs it, so only differences between the a₀
count. With one δ per prompt, the shift also moves the prompts relative to each other. Two things
then determine δ_ij: the step from one present class to two, which does not depend on the shift, and
the prompt's own level, which does. On data that follow the model they agree and δ_ij is recovered.
Prompt levels that do not come from a₀ lead to larger a₀ and a shifted δ_ij.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from sparc_dist.core import Floats
from sparc_dist.research.noise_cells import CELLS, Balance, CellSums

#: Whether the first and the second class of a prompt are present in each cell.
FIRST = np.array([0.0, 0.0, 1.0, 1.0])
SECOND = np.array([0.0, 1.0, 0.0, 1.0])

#: The start of every fit: a₀, a₁ and δ, and the relative spread of the first two.
A0, A1, DELTA, SPREAD = 0.1, 1.0, 0.5, 0.3

#: Number of L-BFGS-B steps before the images' θ are computed again.
INNER_STEPS = 30


@dataclass(frozen=True)
class Quadratic:
    """The loss of a table for fixed θ, up to a constant: Σ squares f² − 2 products f.

    squares, products: (P, 4)
    """

    squares: Floats
    products: Floats

    @classmethod
    def of(cls, sums: CellSums, k: int, balance: Balance) -> Quadratic:
        """Returns the loss of table ``k`` from the sums of a pass."""
        return cls(balance.weights * sums.squares[k], balance.weights * sums.products[k])

    def __call__(self, table: Floats) -> float:
        """Returns the loss of a table (P, 4)."""
        return float((table * (self.squares * table - 2 * self.products)).sum())

    def slope(self, table: Floats) -> Floats:
        """Returns the gradient (P, 4) of the loss of a table."""
        return 2 * (self.squares * table - self.products)


class Model(Protocol):
    """One form of f. Its parameters are a vector with no value below ``lowest``."""

    @property
    def lowest(self) -> float:
        """The lower bound of the parameters."""
        ...

    def start(self, rng: np.random.Generator) -> Floats:
        """Returns the parameters to start from."""
        ...

    def table(self, x: Floats) -> Floats:
        """Returns f (P, 4)."""
        ...

    def improved(self, x: Floats, loss: Quadratic) -> Floats:
        """Returns parameters that are no worse than ``x`` for fixed θ."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same f everywhere: only the level of each image is explained."""

    prompts: int
    lowest: float = 0.0

    def start(self, rng: np.random.Generator) -> Floats:
        """Returns an empty vector: there are no parameters."""
        return np.zeros(0)

    def table(self, x: Floats) -> Floats:
        """Returns f (P, 4)."""
        return np.full((self.prompts, CELLS), 0.1)

    def improved(self, x: Floats, loss: Quadratic) -> Floats:
        """Returns ``x``: there is nothing to improve."""
        return x


@dataclass(frozen=True)
class LookupTable:
    """Four free values per prompt."""

    prompts: int
    lowest: float = -np.inf

    def start(self, rng: np.random.Generator) -> Floats:
        """Returns the table of the common start."""
        return first_table(self.prompts).ravel()

    def table(self, x: Floats) -> Floats:
        """Returns f (P, 4)."""
        return x.reshape(self.prompts, CELLS)

    def improved(self, x: Floats, loss: Quadratic) -> Floats:
        """Returns the best table; a cell without data keeps its value."""
        has_data = loss.squares > 0
        best = loss.products / np.where(has_data, loss.squares, 1.0)
        return np.where(has_data, best, self.table(x)).ravel()


@dataclass(frozen=True)
class ClassTerms:
    """f = top · max + δ · min of a₀ + y·a₁ of the two classes; parameters: a₀, a₁, free δ.

    pairs: (P, 2); count: N; bonus: a fixed δ, or "one" free δ for all prompts, or one for "each"
    """

    pairs: NDArray[np.integer]
    count: int
    top: float
    bonus: float | Literal["one", "each"]
    lowest: float = 0.0

    @property
    def deltas(self) -> int:
        """The number of free δ."""
        return {"one": 1, "each": len(self.pairs)}.get(str(self.bonus), 0)

    def start(self, rng: np.random.Generator) -> Floats:
        """Returns the common start with random spread: max has no derivative at ties."""
        a = np.repeat([A0, A1], self.count) * rng.uniform(1 - SPREAD, 1 + SPREAD, 2 * self.count)
        return np.concatenate([a, np.full(self.deltas, DELTA)])

    def nested(self, other: ClassTerms, x: Floats) -> Floats:
        """Returns the parameters with which this model equals ``other`` at ``x``."""
        delta = np.broadcast_to(np.ravel(other.delta(x)), self.deltas)
        return np.concatenate([x[: 2 * self.count], delta])

    def delta(self, x: Floats) -> Floats:
        """Returns δ (P, 1) or (1, 1)."""
        free = x[2 * self.count :] if self.deltas else np.array([float(self.bonus)])
        return free[:, None]

    def terms(self, x: Floats) -> tuple[Floats, Floats]:
        """Returns a₀ + y·a₁ of the first and of the second class, both (P, 4)."""
        a0, a1 = x[: self.count, None], x[self.count : 2 * self.count, None]
        first, second = self.pairs.T
        return a0[first] + a1[first] * FIRST, a0[second] + a1[second] * SECOND

    def table(self, x: Floats) -> Floats:
        """Returns f (P, 4)."""
        u, w = self.terms(x)
        return self.top * np.maximum(u, w) + self.delta(x) * np.minimum(u, w)

    def improved(self, x: Floats, loss: Quadratic) -> Floats:
        """Runs L-BFGS-B over a₀ and a₁, with the best δ at each step."""
        search = minimize(
            self._objective(loss),
            x[: 2 * self.count],
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * (2 * self.count),
            options={"maxiter": INNER_STEPS, "ftol": 1e-12, "gtol": 1e-9},
        )
        better = self._with_best_delta(search.x, loss)
        return better if loss(self.table(better)) <= loss(self.table(x)) else x

    def _with_best_delta(self, a: Floats, loss: Quadratic) -> Floats:
        """Returns a₀, a₁ and the best δ ≥ 0 for them; 0 if the data do not determine it."""
        u, w = self.terms(a)
        high, low = np.maximum(u, w), np.minimum(u, w)
        gain = (low * (loss.products - loss.squares * self.top * high)).sum(axis=1)
        size = (loss.squares * low**2).sum(axis=1)
        if self.bonus == "one":
            gain, size = gain.sum(keepdims=True), size.sum(keepdims=True)
        delta = np.maximum(gain, 0) / np.where(size > 0, size, 1.0)
        return np.concatenate([a, delta[: self.deltas]])

    def _objective(self, loss: Quadratic) -> Callable[[Floats], tuple[float, Floats]]:
        """Returns value and gradient over a₀ and a₁; δ is optimal, so its change adds nothing."""
        first, second = self.pairs.T

        def objective(a: Floats) -> tuple[float, Floats]:
            x = self._with_best_delta(a, loss)
            (u, w), delta, table = self.terms(x), self.delta(x), self.table(x)
            slope, tilt = loss.slope(table), (self.top - delta) / 2 * np.sign(u - w)
            u_slope = slope * ((self.top + delta) / 2 + tilt)
            w_slope = slope * ((self.top + delta) / 2 - tilt)
            gradient = [
                np.bincount(first, u_slope @ in_first, self.count)
                + np.bincount(second, w_slope @ in_second, self.count)
                for in_first, in_second in ((np.ones(CELLS), np.ones(CELLS)), (FIRST, SECOND))
            ]
            return loss(table), np.concatenate(gradient)

        return objective


def first_table(prompts: int) -> Floats:
    """Returns the table (P, 4) from which every fit finds its first θ: OR with a bonus."""
    high = A0 + A1 * np.maximum(FIRST, SECOND)
    low = A0 + A1 * np.minimum(FIRST, SECOND)
    return np.tile(high + DELTA * low, (prompts, 1))


def models(pairs: NDArray[np.integer], count: int) -> dict[str, Model]:
    """Returns the seven models for prompts over ``pairs`` (P, 2) of ``count`` = N classes."""
    return {
        "constant": Constant(len(pairs)),
        "only_and": ClassTerms(pairs, count, 0.0, 1.0),
        "only_or": ClassTerms(pairs, count, 1.0, 0.0),
        "additive": ClassTerms(pairs, count, 1.0, 1.0),
        "or_static_and_bonus": ClassTerms(pairs, count, 1.0, "one"),
        "or_variable_and_bonus": ClassTerms(pairs, count, 1.0, "each"),
        "lookup_table": LookupTable(len(pairs)),
    }
