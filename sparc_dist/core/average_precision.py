"""Exact average precision from mergeable states, without sorting all images in one place.

AP is the mean, over a class's positive images, of (positives scored at least as high) / (images
scored at least as high). Images with equal scores share one rank, so the result does not depend on
their order and equals scikit-learn's. The first pass collects the positives' scores; the second
counts, for some shards at a time, the images that reach each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.states import State

EmptyClass = Literal["skip", "zero"]


@dataclass(frozen=True)
class Positives(State):
    """The scores of the positive images of each of d columns, ascending: d arrays."""

    scores: tuple[NDArray[np.floating], ...]

    @classmethod
    def of(cls, scores: NDArray[np.floating], labels: NDArray[np.bool_]) -> Positives:
        """Returns the state of some images. scores: (n, d), labels: (n, d)."""
        images, columns = np.nonzero(labels)
        values = scores[images, columns]
        values = values[np.lexsort((values, columns))]  # one sort for all: each column has few
        ends = np.cumsum(labels.sum(axis=0)).tolist()
        return cls(tuple(values[start:end] for start, end in pairwise([0, *ends])))

    def __add__(self, other: Positives) -> Positives:
        pairs = zip(self.scores, other.scores, strict=True)
        merged = tuple(np.concatenate(pair) for pair in pairs)
        for column in merged:
            column.sort()
        return Positives(merged)


@dataclass(frozen=True)
class Reached(State):
    """For each positive of each column, the images that score at least as high: d arrays."""

    counts: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, scores: NDArray[np.floating], positives: Positives) -> Reached:
        """Returns the state of some images. scores: (n, d).

        More images at once take less time in all: every call goes through all positives.
        """
        ordered = scores.T.copy()
        ordered.sort(axis=1)  # neighbours are found faster
        columns = zip(ordered, positives.scores, strict=True)
        return cls(tuple(_reaching(column, thresholds) for column, thresholds in columns))

    def arrays(self) -> list[NDArray[Any]]:
        """Returns the state as arrays, to be stored in a file.

        Integers are as small as they can be: each group of shards stores one for each positive.
        """
        return [c.astype(np.min_scalar_type(c.max(initial=0))) for c in self.counts]

    @classmethod
    def from_arrays(cls, arrays: Sequence[NDArray[Any]]) -> Reached:
        """Restores a state from what ``arrays`` returned."""
        return cls(tuple(counts.astype(np.int64) for counts in arrays))


def _reaching(scores: NDArray[np.floating], thresholds: NDArray[np.floating]) -> NDArray[np.int64]:
    """Returns how many scores (n,) are at least as high as each threshold (m,); both ascending."""
    # A score reaches the thresholds before its place. To search for scores among thresholds takes
    # n log m, the opposite m log n, and a data set has more positives than some shards have images.
    places = np.searchsorted(thresholds, scores, side="right")
    return len(scores) - np.cumsum(np.bincount(places, minlength=len(thresholds) + 1)[:-1])


def average_precision(positives: Positives, reached: Reached) -> list[float | None]:
    """Returns the AP of each column in percent; None for a column without positives."""
    return [
        _column_ap(scores, counts) if len(scores) else None
        for scores, counts in zip(positives.scores, reached.counts, strict=True)
    ]


def _column_ap(scores: NDArray[np.floating], counts: NDArray[np.int64]) -> float:
    hits = len(scores) - np.searchsorted(scores, scores, side="left")
    return float(100.0 * np.mean(hits / counts))


def mean_average_precision(
    aps: Sequence[float | None], empty_class: EmptyClass = "skip"
) -> float | None:
    """Returns the mean over classes. A class without positives is skipped, or counts as 0."""
    present = [ap for ap in aps if ap is not None]
    if empty_class == "zero":
        present += [0.0] * (len(aps) - len(present))
    return float(np.mean(present)) if present else None


def summarise(
    aps: Sequence[float | None], classes: Sequence[str], empty_class: EmptyClass = "skip"
) -> Mapping[str, object]:
    """Returns one method's entry in metrics.json: ``{"mAP": …, "AP": {class: …}}``."""
    return {
        "mAP": mean_average_precision(aps, empty_class),
        "AP": dict(zip(classes, aps, strict=True)),
    }
