"""Mergeable mean, variance and second moments (Chan's formula, float64)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.states import State

Floats = NDArray[np.float64]

#: A spread below this fraction of the data's magnitude is rounding error and counts as zero.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Moments(State):
    """Count, mean and sum of squared deviations of d columns.

    mean, deviations: (d,)
    """

    count: int
    mean: Floats
    deviations: Floats

    @classmethod
    def of(cls, values: NDArray[np.floating]) -> Moments:
        """Returns the moments of the rows of ``values`` (n, d)."""
        values = np.asarray(values, dtype=np.float64)
        if not len(values):
            return cls(0, np.zeros(values.shape[1]), np.zeros(values.shape[1]))
        mean = values.mean(axis=0)
        return cls(len(values), mean, ((values - mean) ** 2).sum(axis=0))

    def __add__(self, other: Moments) -> Moments:
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        delta = other.mean - self.mean
        return Moments(
            count,
            self.mean + delta * (other.count / count),
            self.deviations + other.deviations + delta**2 * (self.count * other.count / count),
        )

    @property
    def sd(self) -> Floats:
        """Sample SD (ddof = 1) of each column (d,); exactly 0 if the column is constant."""
        if self.count < 2:
            return np.zeros_like(self.mean)
        sd = np.sqrt(self.deviations / (self.count - 1))
        magnitude = np.sqrt(np.mean(self.mean**2 + sd**2)) if sd.size else 0.0
        return np.where(sd <= ROUNDING * magnitude, 0.0, sd)


@dataclass(frozen=True)
class Scatter(State):
    """Count, mean and scatter matrix (sum of outer products of deviations) of d columns.

    mean: (d,), matrix: (d, d); or of k tables at once, (k, d) and (k, d, d)
    """

    count: int
    mean: Floats
    matrix: Floats

    @classmethod
    def of(cls, values: NDArray[np.floating]) -> Scatter:
        """Returns the scatter of the rows of ``values`` (n, d)."""
        rows: Floats = np.asarray(values, dtype=np.float64)
        mean: Floats = rows.sum(axis=0) / max(len(rows), 1)
        return cls.centred(mean, rows - mean)

    @classmethod
    def centred(cls, mean: Floats, values: Floats) -> Scatter:
        """Returns the scatter of rows from which their mean is taken off: (n, d) or (n, k, d)."""
        tables = values.swapaxes(0, -2)
        return cls(len(values), mean, tables.swapaxes(-1, -2) @ tables)

    def __add__(self, other: Scatter) -> Scatter:
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        delta = other.mean - self.mean
        return Scatter(
            count,
            self.mean + delta * (other.count / count),
            self.matrix
            + other.matrix
            + delta[..., :, None] * delta[..., None, :] * (self.count * other.count / count),
        )
