"""Verdicts: what each method that decides says about the classes of an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sparc_dist.core import FinalScores, judged_by
from sparc_dist.runs.ensemble_file import AnyLabeler

#: Classes that are absent and less likely than this are not listed.
LIKELY = 0.05

#: For each method: index, probability and presence of the classes that are present or likely.
#: The probability of a class whose scores do not vary is None.
Verdicts = Mapping[str, Sequence[tuple[int, float | None, bool]]]


def verdicts(labeler: AnyLabeler, final: FinalScores) -> list[Verdicts]:
    """Returns the verdicts on each image."""
    most, images = labeler.rule.get("top"), range(len(final))
    found: list[dict[str, Sequence[tuple[int, float | None, bool]]]] = [{} for _ in images]
    for method, (probability, present) in judged_by(labeler.decisions, final, most).items():
        for image in images:
            listed = np.flatnonzero(present[image] | (probability[image] >= LIKELY))
            chance, there = (part[image, listed].tolist() for part in (probability, present))
            found[image][method] = [
                (index, None if np.isnan(p) else p, here)
                for index, p, here in zip(listed.tolist(), chance, there, strict=True)
            ]
    return list(found)
