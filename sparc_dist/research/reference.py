"""SPARC in its most direct form: the reference for the tests and the benchmark.

Holds everything in memory, uses no shards and does not handle degenerate data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core import Mentions, Scores


def reference_sparc(scores: Scores, mentions: Mentions) -> NDArray[np.float64]:
    """Returns the final scores (M, N)."""
    singleton = scores.singleton.astype(np.float64)
    auxiliary = scores.auxiliary.astype(np.float64)
    compound = scores.compound.astype(np.float64)
    compound -= auxiliary.mean(1, keepdims=True)
    compound /= auxiliary.std(1, ddof=1, keepdims=True)
    singleton -= singleton.mean(1, keepdims=True)
    singleton /= singleton.std(1, ddof=1, keepdims=True)
    singleton = (singleton - singleton.mean(0)) / singleton.std(0, ddof=1)
    compound = (compound - compound.mean(0)) / compound.std(0, ddof=1)
    final = np.empty(singleton.shape)
    for index, prompts in enumerate(mentions):
        ranked = -np.sort(-compound[:, prompts], axis=1)
        vectors = np.column_stack([singleton[:, index], ranked])
        weights = np.linalg.eigh(np.cov(vectors, rowvar=False))[1][:, -1]
        weights *= np.sign(weights.sum()) / np.abs(weights).sum()
        final[:, index] = 0.5 * singleton[:, index] + 0.5 * vectors @ weights
    return final
