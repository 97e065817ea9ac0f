"""Final scores, and the two states that decisions need: their moments, then counts of bins.

Columns are the N classes, then B background classes. A fusion has two kinds of scores: *total*
before the rival is taken off and *final* after it. Without a rival both are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.debias import standardise
from sparc_dist.core.histogram import Counts, histogram
from sparc_dist.core.moments import Floats, Moments, Scatter
from sparc_dist.core.states import State

#: A column whose scores have a smaller SD is constant.
CONSTANT = 1e-6

#: The share of the identity in the correlation matrix that is inverted.
RIDGE = 0.05

#: The decimals that are kept of means, SDs (about 1) and correlations.
DIGITS = 9

#: The kinds of parts of final scores.
PARTS = ("background", "total")

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class FinalScores:
    """The final scores of n images, in float32 as they are stored.

    methods: (n, N) by the name of a fusion, baselines first. parts: what decisions also need of a
    fusion, by names that end in the kind of part: ``_background`` is (n, B), for a fusion without
    rival; ``_total`` is (n, N + B), all columns before the rival is taken off.
    """

    methods: Mapping[str, Float32]
    parts: Mapping[str, Float32]

    @classmethod
    def of(cls, by_name: Mapping[str, Float32]) -> FinalScores:
        """Returns the scores of what ``by_name`` is."""
        methods = {name: part for name, part in by_name.items() if not _kind(name)}
        return cls(methods, {name: part for name, part in by_name.items() if _kind(name)})

    @property
    def by_name(self) -> dict[str, Float32]:
        """All scores by name, in the order in which they are stored."""
        return {**self.methods, **self.parts}

    def __len__(self) -> int:
        return len(self.similarity)

    def __getitem__(self, rows: slice | list[int] | NDArray[np.bool_]) -> FinalScores:
        return FinalScores.of({name: part[rows] for name, part in self.by_name.items()})

    @property
    def similarity(self) -> Float32:
        """The similarities of images and singleton prompts (n, N)."""
        return self.methods["zsclip"]

    @property
    def debiased(self) -> Float32:
        """The same without the bias of images and prompts (n, N)."""
        return self.methods["debiased"]

    @property
    def every(self) -> Float32:
        """All scores side by side (n, d); d is 5 N + 2 B with SPARC and duo."""
        return np.concatenate([*self.by_name.values()], axis=1)

    def split(self, every: NDArray[np.floating]) -> FinalScores:
        """Returns scores that are side by side (n, d) as final scores like these."""
        ends = np.cumsum([part.shape[1] for part in self.by_name.values()])
        parts = np.split(every.astype(np.float32), ends[:-1], axis=1)
        return FinalScores.of(dict(zip(self.by_name, parts, strict=True)))

    @property
    def fusions(self) -> list[str]:
        """The names of the fusions that can decide."""
        return [name for name in self.methods if any(f"{name}_{p}" in self.parts for p in PARTS)]

    def columns(self, fusion: str) -> tuple[Float32, Float32]:
        """Returns a fusion's scores of all columns, before and after the rival: both (n, N + B)."""
        own, total = self.methods[fusion], self.parts.get(f"{fusion}_total")
        if total is None:
            every = np.concatenate([own, self.parts[f"{fusion}_background"]], axis=1)
            return every, every
        rival = total[:, :1] - own[:, :1]
        return total, np.concatenate([own, total[:, own.shape[1] :] - rival], axis=1)


def _kind(name: str) -> str | None:
    """Returns the kind of a part of final scores; None for the scores of a method."""
    return next((kind for kind in PARTS if name.endswith(f"_{kind}")), None)


def width_of(name: str, classes: int, background: int) -> int:
    """Returns the number of columns of scores with this name."""
    widths = {"background": background, "total": classes + background}
    return widths.get(_kind(name) or "", classes)


#: The final scores of a shard, which of its images have labels (n,), and their labels (n, N).
Labelled = tuple[FinalScores, NDArray[np.bool_], NDArray[np.bool_]]


@dataclass(frozen=True)
class ScoreMoments(State):
    """State 1: the scatters of totals and the moments of final scores of N + B columns.

    totals: those that prevalences are estimated from; the last is the fusion's own
    """

    totals: tuple[Scatter, ...]
    final: Moments

    @classmethod
    def of(
        cls, totals: Sequence[NDArray[np.floating]], final: NDArray[np.floating]
    ) -> ScoreMoments:
        """Returns the state of one shard. totals, final: each (n, N + B)."""
        return cls(tuple(map(Scatter.of, totals)), Moments.of(final))

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
        spreads = [self._final_sd, *map(self._total_sd, self.totals)]
        return np.asarray(np.minimum.reduce(spreads) <= CONSTANT)

    def _total_sd(self, total: Scatter) -> Floats:
        return np.sqrt(np.diag(total.matrix) / max(self.count - 1, 1))

    @property
    def _final_sd(self) -> Floats:
        return np.sqrt(self.final.deviations / max(self.count - 1, 1))

    @cached_property
    def standards(self) -> Standards:
        """What standardises and decorrelates scores. Constant columns become 0.

        Sums differ in the last bits with the shards that images are in. They are rounded off, so
        that the decisions do not.
        """
        final_sd = self._final_sd * ~self.constant
        return Standards(
            self.final.mean.round(DIGITS),
            final_sd.round(DIGITS),
            tuple(map(self._total_standard, self.totals)),
        )

    def _total_standard(self, total: Scatter) -> TotalStandard:
        varying = ~self.constant
        sd = self._total_sd(total) * varying
        scale = np.divide(1.0, sd, out=np.zeros_like(sd), where=varying)
        correlation = total.matrix / max(self.count - 1, 1) * np.outer(scale, scale)
        np.fill_diagonal(correlation, 1.0)
        matrix = _decorrelation(correlation.round(DIGITS))
        return TotalStandard(total.mean.round(DIGITS), sd.round(DIGITS), matrix)


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
class TotalStandard:
    """Mean and SD of a total (N + B,), and its decorrelation (N + B, N + B)."""

    mean: Floats
    sd: Floats
    decorrelation: Floats


@dataclass(frozen=True)
class Standards:
    """Mean and SD of final scores (N + B,), and the standards of totals."""

    mean: Floats
    sd: Floats
    totals: tuple[TotalStandard, ...]


@dataclass(frozen=True)
class ScoreCounts(State):
    """State 2: counts of standardised scores in bins, each (N + B, BINS).

    final: of final scores, totals: of each total, decorrelated: of each decorrelated total
    """

    final: Counts
    totals: tuple[Counts, ...]
    decorrelated: tuple[Counts, ...]

    @classmethod
    def of(
        cls,
        totals: Sequence[NDArray[np.floating]],
        final: NDArray[np.floating],
        standards: Standards,
    ) -> ScoreCounts:
        """Returns the state of one shard. totals, final: each (n, N + B)."""
        pairs = zip(totals, standards.totals, strict=True)
        plain = [standardise(total, own.mean, own.sd) for total, own in pairs]
        mixed = zip(plain, standards.totals, strict=True)
        return cls(
            histogram(standardise(final, standards.mean, standards.sd)),
            tuple(map(histogram, plain)),
            tuple(histogram(z @ own.decorrelation) for z, own in mixed),
        )
