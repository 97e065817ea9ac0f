"""Order statistics: the sorted compound scores of each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.moments import Floats

#: For each class, the indices of the compound prompts that mention it.
Mentions = Sequence[NDArray[np.int64]]


def mentions_of(prompt_classes: Sequence[Sequence[int]], classes: int) -> list[NDArray[np.int64]]:
    """Returns the prompts that mention each class, given the classes each of P prompts mentions."""
    prompts: list[list[int]] = [[] for _ in range(classes)]
    for prompt, mentioned in enumerate(prompt_classes):
        for index in sorted(set(mentioned)):
            prompts[index].append(prompt)
    return [np.array(indices, dtype=np.int64) for indices in prompts]


def descending(scores: NDArray[np.floating], columns: NDArray[np.int64]) -> Floats:
    """Returns some columns of the scores, sorted within each image (n, len(columns))."""
    return np.sort(np.asarray(scores[:, columns], dtype=np.float64), axis=1)[:, ::-1]


def order_statistics(debiased: Floats, mentions: Mentions) -> Iterator[Floats]:
    """Yields each class's vectors (n, 1 + m_i): the singleton, then the sorted compound scores.

    debiased: (n, N + P), singleton scores first.
    """
    classes = len(mentions)
    for index, prompts in enumerate(mentions):
        ranked = descending(debiased, classes + prompts)
        yield np.concatenate([debiased[:, index : index + 1], ranked], axis=1)
