"""Answers: what a person says about some classes of some images, and the link that follows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.link import SLOPE
from sparc_dist.core.moments import Floats
from sparc_dist.core.special import expit

#: An answer: 1 is yes, 0 is no; or none was given.
YES, UNKNOWN = 1, -1

#: How far the logarithm of the slope is expected to be from that without labels (SD).
SLOPE_SD = 0.35

#: Newton's method: number of steps, and the largest move of a parameter in one of them.
STEPS, LARGEST = 50, 1.0


@dataclass(frozen=True)
class Answers:
    """k answers, each about one class of one image.

    column: the class, total and final: its score before and after the rival is taken off, present:
    whether the answer is yes; each (k,)
    """

    column: NDArray[np.int64]
    total: Floats
    final: Floats
    present: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        total: NDArray[np.floating],
        final: NDArray[np.floating],
        answers: NDArray[np.integer] | NDArray[np.bool_],
    ) -> Answers:
        """Returns the answers about one shard: yes, no or unknown, (n, N).

        total, final: scores (n, N), or (n, N + B) with background columns last
        """
        image, column = np.nonzero(answers != UNKNOWN)
        return cls(
            column.astype(np.int64),
            total[image, column].astype(np.float64),
            final[image, column].astype(np.float64),
            answers[image, column] == YES,
        )

    def __len__(self) -> int:
        return len(self.column)

    def __add__(self, other: Answers) -> Answers:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Answers(*map(np.concatenate, pairs))


def fit_link(
    z: Floats, column: NDArray[np.int64], present: NDArray[np.bool_], intercept: Floats
) -> tuple[float, Floats]:
    """Returns the slope and the intercepts (N,) that answers suggest: the posterior's maximum.

    The model is logit p = slope · z + intercept_c + shift + δ_c with normal priors on the logarithm
    of the slope (around that without labels), on the shift of all classes and on δ_c of each.

    z: standardised scores, column: classes, present: answers; each (k,). intercept: without
    answers, (N,)
    """
    precision = np.ones(2 + len(intercept))
    precision[0] = SLOPE_SD**-2
    parameters = np.zeros_like(precision)
    for _ in range(STEPS):
        slope = SLOPE * np.exp(parameters[0])
        p = expit(slope * z + (intercept + parameters[1] + parameters[2:])[column])
        slopes = _sums(present - p, slope * z, column, len(intercept))
        curvature = _curvature(p * (1 - p), slope * z, column, len(intercept)) + np.diag(precision)
        # The rest of the second derivative by the log slope, only where it shortens the step:
        # otherwise the matrix may not be positive, and the step leads downhill.
        curvature[0, 0] += max(0.0, -slopes[0])
        step = np.linalg.solve(curvature, slopes - precision * parameters)
        parameters += np.clip(step, -LARGEST, LARGEST)
    return float(SLOPE * np.exp(parameters[0])), intercept + parameters[1] + parameters[2:]


def _sums(values: Floats, z: Floats, column: NDArray[np.int64], classes: int) -> Floats:
    """Returns Σ values · (derivatives by log slope, shift and each δ_c), (2 + N,)."""
    return np.array([values @ z, values.sum(), *np.bincount(column, values, classes)])


def _curvature(weights: Floats, z: Floats, column: NDArray[np.int64], classes: int) -> Floats:
    """Returns Σ weights · (products of those derivatives), (2 + N, 2 + N)."""
    matrix = np.diag(_sums(weights, z, column, classes))
    matrix[0] = matrix[:, 0] = _sums(weights * z, z, column, classes)
    matrix[1] = matrix[:, 1] = _sums(weights, z, column, classes)
    return matrix
