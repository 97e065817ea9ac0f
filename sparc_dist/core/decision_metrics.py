"""Decision metrics: how well decisions and probabilities agree with labels, from mergeable states.

All states are integers, so the results do not depend on how images are divided into shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.average_precision import Positives, Reached
from sparc_dist.core.moments import Floats
from sparc_dist.core.states import State

#: Equal bins of probability for the expected calibration error.
CALIBRATION_BINS = 15

#: Probabilities are added up in this unit, as integers: the sum is exact in any order.
UNIT = 2.0**-30

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Agreement(State):
    """Counts of decisions on N classes, of images by size, and of probabilities.

    The size of an image is the number of its decisions plus that of its labels. Its F1 is twice its
    hits over its size, so hits are enough, added up by size.

    classes: hits, decisions, labels of each class (3, N). images: images and hits by size
    (2, 2 N + 1). calibration: pairs of image and class, labels and the sum of probabilities in each
    bin of probability (3, CALIBRATION_BINS)
    """

    classes: Integers
    images: Integers
    calibration: Integers

    @classmethod
    def of(
        cls, probability: Floats, present: NDArray[np.bool_], labels: NDArray[np.bool_]
    ) -> Agreement:
        """Returns the state of one shard; all (n, N). Pairs without probability (NaN) have none."""
        hits = present & labels
        classes = np.array([part.sum(axis=0) for part in (hits, present, labels)], dtype=np.int64)
        size = present.sum(axis=1) + labels.sum(axis=1)
        images = np.zeros((2, 2 * labels.shape[1] + 1), dtype=np.int64)
        np.add.at(images[0], size, 1)
        np.add.at(images[1], size, hits.sum(axis=1))
        return cls(classes, images, _calibration(probability, labels))

    def metrics(self) -> dict[str, float | None]:
        """Returns micro, macro and sample F1, precision and recall in percent, and the ECE.

        Macro F1 is the mean over classes with a label. An image without labels and decisions has a
        sample F1 of 1. None where nothing was decided, labelled or seen.
        """
        hits, decisions, labels = self.classes.sum(axis=1).tolist()
        pairs, positives, probability = self.calibration
        gap = np.abs(positives - UNIT * probability).sum()
        return {
            **_f1(*self.classes),
            "sample_f1": _percent(self._sample_f1_sum(), int(self.images[0].sum())),
            "precision": _percent(hits, decisions),
            "recall": _percent(hits, labels),
            "ece": float(gap / pairs.sum()) if pairs.any() else None,
        }

    def _sample_f1_sum(self) -> float:
        images, hits = self.images
        sizes = np.arange(1, len(hits))
        return float(images[0] + (2 * hits[1:] / sizes).sum())


def expected_f1(probability: Floats, present: NDArray[np.bool_]) -> float | None:
    """Returns the F1 in percent that probabilities promise for the decisions on one class.

    An image holds the class with its probability, so the hits expected are the sum over the images
    decided, and the labels expected the sum over all. With probabilities of 0 and 1 it is the F1 of
    labels. None where nothing is expected, or the class has no probabilities.

    probability, present: of n images, (n,)
    """
    size = float(present.sum() + probability.sum())
    return float(200.0 * probability[present].sum() / size) if size > 0 else None


def oracle(positives: Positives, reached: Reached) -> dict[str, float | None]:
    """Returns the micro and macro F1 of the best threshold of each class, in percent.

    The threshold with the largest F1 is the score of a positive, so the states of average precision
    are all it needs, and the result is exact. Of equals, the highest threshold counts.
    """
    pairs = zip(positives.scores, reached.counts, strict=True)
    found = np.array([_best(scores, counts) for scores, counts in pairs], dtype=np.int64)
    return {f"oracle_{name}": value for name, value in _f1(*found.reshape(-1, 3).T).items()}


def _best(scores: NDArray[np.floating], reached: Integers) -> tuple[int, int, int]:
    """Returns hits, decisions and labels of one class at the threshold with the largest F1.

    scores: of its positives, ascending; reached: images that score at least as high
    """
    if not len(scores):
        return 0, 0, 0
    hits = len(scores) - np.searchsorted(scores, scores, side="left")
    f1 = 2 * hits / (reached + len(scores))
    best = len(f1) - 1 - np.argmax(f1[::-1])
    return int(hits[best]), int(reached[best]), len(scores)


def _f1(hits: Integers, decisions: Integers, labels: Integers) -> dict[str, float | None]:
    """Returns micro and macro F1 in percent, from counts of each class (N,)."""
    size = decisions + labels
    each = (2 * hits / np.maximum(size, 1))[labels > 0]
    return {
        "micro_f1": _percent(2 * hits.sum(), size.sum()),
        "macro_f1": _percent(each.sum(), len(each)),
    }


def _percent(part: float, whole: int) -> float | None:
    return float(100.0 * part / whole) if whole else None


def _calibration(probability: Floats, labels: NDArray[np.bool_]) -> Integers:
    """Returns pairs, labels and the sum of probabilities in each bin (3, CALIBRATION_BINS)."""
    known = ~np.isnan(probability)
    values = probability[known]
    bins = np.minimum((values * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    found = np.zeros((3, CALIBRATION_BINS), dtype=np.int64)
    np.add.at(found[0], bins, 1)
    np.add.at(found[1], bins, labels[known].astype(np.int64))
    np.add.at(found[2], bins, np.rint(values / UNIT).astype(np.int64))
    return found
