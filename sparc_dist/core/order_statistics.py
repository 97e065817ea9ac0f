"""Order statistics: each class's compound scores, sorted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.moments import Floats

#: For each class the indices of the compound prompts that mention it.
Mentions = Sequence[NDArray[np.int64]]


def mentions_of(prompt_classes: Sequence[Sequence[int]], classes: int) -> list[NDArray[np.int64]]:
    """Turn the classes each of P prompts mentions into the prompts that mention each class."""
    prompts: list[list[int]] = [[] for _ in range(classes)]
    for prompt, mentioned in enumerate(prompt_classes):
        for index in sorted(set(mentioned)):
            prompts[index].append(prompt)
    return [np.array(indices, dtype=np.int64) for indices in prompts]


def falling(scores: NDArray[np.floating], columns: NDArray[np.int64]) -> Floats:
    """Some columns of scores, those of each image sorted (n, len(columns))."""
    return np.sort(np.asarray(scores[:, columns], dtype=np.float64), axis=1)[:, ::-1]


def order_statistics(debiased: Floats, mentions: Mentions) -> Iterator[Floats]:
    """For each class its vectors (n, 1 + m_i): the singleton, then the compound scores, falling.

    debiased: (n, N + P), singleton scores first.
    """
    classes = len(mentions)
    for index, prompts in enumerate(mentions):
        ranked = falling(debiased, classes + prompts)
        yield np.concatenate([debiased[:, index : index + 1], ranked], axis=1)
