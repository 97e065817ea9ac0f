"""Plain arrays: scores as callers have them, checked, and in slices of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparc_dist.core.debias import Scores

#: Scores, or the three matrices singleton (n, N), auxiliary (n, N) and compound (n, P): in this
#: order, or by these names.
ScoresLike = Scores | tuple[ArrayLike, ArrayLike, ArrayLike] | Mapping[str, ArrayLike]

NAMES = ("singleton", "auxiliary", "compound")
#: Final scores are float32.
LARGEST = np.finfo(np.float32).max
SLICE = 4096  # images at a time, so that float64 copies stay small beside the matrices


def as_scores(scores: ScoresLike) -> Scores:
    """Returns scores as matrices; raises ValueError if they do not fit together."""
    if isinstance(scores, Scores):
        checked = as_scores((scores.singleton, scores.auxiliary, scores.compound))
        return replace(checked, embedding=scores.embedding)
    if isinstance(scores, Mapping):
        if missing := [name for name in NAMES if name not in scores]:
            raise ValueError(f"scores have no {' and no '.join(missing)}")
        scores = (scores["singleton"], scores["auxiliary"], scores["compound"])
    if len(scores) != len(NAMES):
        raise ValueError(f"scores must be three matrices ({', '.join(NAMES)}), not {len(scores)}")
    found = Scores(*(matrix(part, name) for part, name in zip(scores, NAMES, strict=True)))
    if not len(found) or not found.singleton.shape[1]:
        raise ValueError(f"singleton has the shape {found.singleton.shape}; there is nothing to do")
    if found.auxiliary.shape != found.singleton.shape or len(found.compound) != len(found):
        shapes = [f"{name} {getattr(found, name).shape}" for name in NAMES]
        raise ValueError(f"scores must be (n, N), (n, N) and (n, P), but are {', '.join(shapes)}")
    for name in NAMES:
        check_finite(getattr(found, name), name)
    return found


def matrix(array: Any, name: str) -> NDArray[Any]:
    """Returns the array; raises ValueError if it is not a matrix of numbers."""
    try:
        values = np.asarray(array)
    except (ValueError, OverflowError, RecursionError):  # nested lists of different lengths
        values = np.empty(0)
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        raise ValueError(f"`{name}` must be a matrix of numbers, images × prompts")
    return values


def check_finite(values: NDArray[Any], name: str) -> None:
    """Raises ValueError if ``values`` (n, N) are not all finite float32 numbers."""
    # isfinite would make a copy; comparisons with NaN are false.
    if values.size and not (values.min() >= -LARGEST and values.max() <= LARGEST):
        row, column = np.argwhere(~((values >= -LARGEST) & (values <= LARGEST)))[0]
        raise ValueError(
            f"`{name}` is {values[row, column]} at row {row}, column {column}; every score must be "
            "a finite number within the range of float32"
        )


def slices(scores: Scores) -> Callable[[], Iterator[Scores]]:
    """Returns a function that iterates over the matrices in slices of images."""
    return lambda: (scores[start : start + SLICE] for start in range(0, len(scores), SLICE))
