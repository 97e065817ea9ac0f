"""Class counts: how the scores of each class are distributed, and how well its threshold does.

All states are integers, so the results do not depend on how images are divided into shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.histogram import EDGES, Counts, histogram
from sparc_dist.core.moments import Floats
from sparc_dist.core.states import State

#: So many bins of the histogram are counted as one: 160 bins of 0.1.
JOINED = 2

#: The lower edge of each bin, in standardised scores.
STEPS: Floats = EDGES[::JOINED]


@dataclass(frozen=True)
class ClassCounts(State):
    """Counts of N classes.

    scores: of all images, of those with labels and of positives, by standardised score (3, N, 160).
    decided: hits, decisions and labels among images with labels (3, N).
    """

    scores: Counts
    decided: Counts

    @classmethod
    def of(
        cls,
        z: Floats,
        present: NDArray[np.bool_],
        labelled: NDArray[np.bool_],
        labels: NDArray[np.bool_],
    ) -> ClassCounts:
        """Returns the state of one shard. z, present, labels: (n, N), labelled: (n,)."""
        known, truth, found = z[labelled], labels[labelled], present[labelled]
        # Those that are not positive are moved below all others, and taken off again.
        positives = histogram(np.where(truth, known, -np.inf))
        positives[:, 0] = (truth & (known < EDGES[1])).sum(axis=0)
        counts = np.stack([histogram(z), histogram(known), positives])
        joined = np.add.reduce([counts[:, :, place::JOINED] for place in range(JOINED)])
        parts = (found & truth, found, truth)
        return cls(joined, np.array([part.sum(axis=0) for part in parts], dtype=np.int64))

    def distribution(self, index: int, most: int) -> tuple[Floats, Counts]:
        """Returns the standardised edges and the counts of at most ``most`` bins of a class.

        Bins are joined evenly, and those beyond the lowest and the highest score are left out.
        """
        counts = self.scores[0, index]
        filled = np.flatnonzero(counts)
        if not len(filled):
            return np.zeros(0), np.zeros(0, dtype=np.int64)
        width = -(-(int(np.ptp(filled)) + 1) // most)
        starts = np.arange(filled[0], filled[-1] + 1, width)
        last = STEPS[starts[-1]] + width * (STEPS[1] - STEPS[0])
        joined = np.add.reduceat(counts[: filled[-1] + 1], starts)
        return np.append(STEPS[starts], last), joined

    def precision_recall(self, index: int) -> list[tuple[float, float]]:
        """Returns recall and precision of a class at thresholds 0.1 apart, the highest first."""
        labelled, positives = self.scores[1:, index, ::-1]
        known, hits = labelled.cumsum(), positives.cumsum()
        if not hits[-1]:
            return []
        steps = np.flatnonzero(positives)  # in between, precision falls and recall stays
        recall, precision = hits[steps] / hits[-1], hits[steps] / known[steps]
        return list(zip(recall.tolist(), precision.tolist(), strict=True))

    def quality(self, index: int) -> tuple[float | None, float | None, float | None]:
        """Returns F1, precision and recall of a class in percent; None where there is nothing."""
        hits, decisions, labels = self.decided[:, index].tolist()
        pairs = ((2 * hits, decisions + labels), (hits, decisions), (hits, labels))
        f1, precision, recall = (100 * part / whole if whole else None for part, whole in pairs)
        return f1, precision, recall
