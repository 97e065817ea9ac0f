"""Final scores, and the two states that decisions need: their moments, then counts of bins.

Columns are the N classes, then B background classes. A method has two kinds of scores: *total*
before the rival is taken off and *final* after it. For SPARC both are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.debias import standardise
from sparc_dist.core.fusion import DECIDING
from sparc_dist.core.histogram import Counts, histogram
from sparc_dist.core.moments import Floats, Moments, Scatter
from sparc_dist.core.states import State

#: A column whose scores have a smaller SD is constant.
CONSTANT = 1e-6

#: The share of the identity in the correlation matrix that is inverted.
RIDGE = 0.05

#: The decimals that are kept of means, SDs (about 1) and correlations.
DIGITS = 9

#: The methods that are evaluated; those of them that decide are the fusions.
METHODS = ("zsclip", "debiased", *DECIDING)

Float32 = NDArray[np.float32]


def methods_of(fusions: Iterable[str]) -> list[str]:
    """Returns the methods of a unit that has these fusions."""
    listed = {*fusions}
    return [name for name in METHODS if name not in DECIDING or name in listed]


@dataclass(frozen=True)
class FinalScores:
    """The final scores of n images, in float32 as they are stored.

    zsclip, debiased, sparc, duo: (n, N). Decisions also need sparc_background: (n, B), and
    duo_total: (n, N + B), duo before the rival is taken off. The matrices of a fusion that is not
    listed have no columns.
    """

    zsclip: Float32
    debiased: Float32
    sparc: Float32
    duo: Float32
    sparc_background: Float32
    duo_total: Float32

    def __len__(self) -> int:
        return len(self.zsclip)

    def __getitem__(self, rows: slice | list[int] | NDArray[np.bool_]) -> FinalScores:
        return FinalScores(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @property
    def every(self) -> Float32:
        """All scores side by side (n, d); d is 5 N + 2 B with both fusions."""
        return np.concatenate([getattr(self, name) for name in self.__dataclass_fields__], axis=1)

    def split(self, every: NDArray[np.floating]) -> FinalScores:
        """Returns scores that are side by side (n, d) as final scores like these."""
        widths = [getattr(self, name).shape[1] for name in self.__dataclass_fields__]
        parts = np.split(every.astype(np.float32), np.cumsum(widths[:-1]), axis=1)
        return FinalScores(*parts)

    @property
    def fusions(self) -> list[str]:
        """The names of the fusions."""
        return [name for name in DECIDING if getattr(self, name).shape[1]]

    @property
    def methods(self) -> Float32:
        """The scores of all methods side by side (n, methods · N)."""
        return np.concatenate([getattr(self, name) for name in METHODS], axis=1)

    def columns(self, method: str) -> tuple[Float32, Float32]:
        """Returns a method's scores of all columns, before and after the rival: both (n, N + B)."""
        if method == "sparc":
            every = np.concatenate([self.sparc, self.sparc_background], axis=1)
            return every, every
        total, n = self.duo_total, self.duo.shape[1]
        rival = total[:, :1] - self.duo[:, :1]
        return total, np.concatenate([self.duo, total[:, n:] - rival], axis=1)


#: The final scores of a shard, which of its images have labels (n,), and their labels (n, N).
Labelled = tuple[FinalScores, NDArray[np.bool_], NDArray[np.bool_]]


@dataclass(frozen=True)
class FinalState(State):
    """State 1: the scatter of total and the moments of final scores of N + B columns."""

    total: Scatter
    final: Moments

    @classmethod
    def of(cls, total: NDArray[np.floating], final: NDArray[np.floating]) -> FinalState:
        """Returns the state of one shard. total, final: (n, N + B)."""
        return cls(Scatter.of(total), Moments.of(final))

    @property
    def count(self) -> int:
        """Number of images."""
        return self.final.count

    @property
    def columns(self) -> int:
        """Number of columns, N + B."""
        return len(self.final.mean)

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Whether a column's scores, before or after the rival is taken off, are constant."""
        return np.minimum(self._total_sd, self._final_sd) <= CONSTANT

    @property
    def _total_sd(self) -> Floats:
        return np.sqrt(np.diag(self.total.matrix) / max(self.count - 1, 1))

    @property
    def _final_sd(self) -> Floats:
        return np.sqrt(self.final.deviations / max(self.count - 1, 1))

    @cached_property
    def standards(self) -> Standards:
        """What standardises and decorrelates scores. Constant columns become 0.

        Sums differ in the last bits with the shards that images are in. They are rounded off, so
        that the decisions do not.
        """
        varying = ~self.constant
        total_sd, final_sd = self._total_sd * varying, self._final_sd * varying
        scale = np.divide(1.0, total_sd, out=np.zeros_like(total_sd), where=varying)
        correlation = self.total.matrix / max(self.count - 1, 1) * np.outer(scale, scale)
        np.fill_diagonal(correlation, 1.0)
        return Standards(
            self.total.mean.round(DIGITS),
            total_sd.round(DIGITS),
            self.final.mean.round(DIGITS),
            final_sd.round(DIGITS),
            _decorrelation(correlation.round(DIGITS)),
        )


def _decorrelation(correlation: Floats) -> Floats:
    """Returns the symmetric matrix (d, d) that turns standardised into decorrelated scores.

    It is the inverse root of the correlations (d, d) with a ridge. Decorrelated scores have an SD
    of 1, too.
    """
    ridged = (1 - RIDGE) * correlation + RIDGE * np.eye(len(correlation))
    values, vectors = np.linalg.eigh(ridged)
    matrix = (vectors / np.sqrt(values)) @ vectors.T
    variance = np.einsum("ij,ik,kj->j", matrix, correlation, matrix)
    return np.asarray(matrix / np.sqrt(variance))


@dataclass(frozen=True)
class Standards:
    """Means and SDs of total and final scores (N + B,), and the decorrelation (N + B, N + B)."""

    total_mean: Floats
    total_sd: Floats
    final_mean: Floats
    final_sd: Floats
    decorrelation: Floats


@dataclass(frozen=True)
class CountState(State):
    """State 2: counts of standardised scores in bins, each (N + B, BINS).

    final: of final scores, total: of total scores, decorrelated: of decorrelated total scores
    """

    final: Counts
    total: Counts
    decorrelated: Counts

    @classmethod
    def of(
        cls, total: NDArray[np.floating], final: NDArray[np.floating], standards: Standards
    ) -> CountState:
        """Returns the state of one shard. total, final: (n, N + B)."""
        plain = standardise(total, standards.total_mean, standards.total_sd)
        return cls(
            histogram(standardise(final, standards.final_mean, standards.final_sd)),
            histogram(plain),
            histogram(plain @ standards.decorrelation),
        )
