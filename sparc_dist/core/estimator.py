"""The estimator: fits on plain arrays in one call, and scores new ones with ``transform``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparc_dist.core.arrays import ScoresLike, as_scores, slices
from sparc_dist.core.fusions import Fusions, fit_fusions
from sparc_dist.core.method import Method
from sparc_dist.core.order_statistics import Mentions, mentions_of


def fit(
    scores: ScoresLike,
    prompts: Sequence[Sequence[int]],
    *,
    background: int = 0,
    method: Method | None = None,
) -> Fusions:
    """Fits SPARC and duo on the scores of n images; needs no labels.

    scores: similarities of images and prompts, as ``Scores``, as a tuple or as a dict of
    singleton (n, N), auxiliary (n, N) and compound (n, P).
    prompts: for each of the P compound prompts, the indices of the classes that it mentions.
    background: the number of last columns of singleton and auxiliary that are background classes,
    which are scored and left out of the result.

    Raises ValueError if shapes, values or indices are wrong.
    """
    checked = as_scores(scores)
    columns, compounds = checked.singleton.shape[1], checked.compound.shape[1]
    if not 0 <= background < columns:
        raise ValueError(f"background is {background}; it must be from 0 to {columns - 1}")
    if len(prompts) != compounds:
        raise ValueError(f"there are {len(prompts)} prompts for {compounds} columns of `compound`")
    mentions = _mentions(prompts, columns)
    listed = method or Method()
    usable = listed if checked.embedding is not None else listed.with_scores_alone()
    return fit_fusions(slices(checked), mentions, columns - background, usable)


def _mentions(prompts: Sequence[Sequence[int]], columns: int) -> Mentions:
    """Returns the prompts that mention each column; raises ValueError for a wrong index."""
    for number, ids in enumerate(prompts):
        indices = np.asarray(ids)
        if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iu":
            raise ValueError(f"prompts[{number}] is {ids!r}; list the indices of its classes")
        if indices.min() < 0 or indices.max() >= columns:
            raise ValueError(f"prompts[{number}] is {ids!r}; indices must be below {columns}")
    return mentions_of(prompts, columns)
