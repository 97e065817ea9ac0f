"""The classes that pages show: threshold, distribution, quality and prompts, from a labeler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparc_dist.core import FUSIONS, ClassCounts, Decision
from sparc_dist.report.exhibit import ClassExhibit
from sparc_dist.runs.ensemble_file import AnyLabeler
from sparc_dist.runs.slugs import slugs

#: The most bins of a distribution that are shown.
BINS = 60


@dataclass(frozen=True)
class ShownClasses:
    """The classes of a unit.

    metrics: its metrics.json. most: so many prompts of a class are shown. texts: of all compound
    prompts.
    """

    labeler: AnyLabeler
    counts: ClassCounts
    metrics: Mapping[str, Any]
    most: int
    slugs: Sequence[str]
    texts: Sequence[str]

    @classmethod
    def of(
        cls, labeler: AnyLabeler, counts: ClassCounts, metrics: Mapping[str, Any], most: int
    ) -> ShownClasses:
        """Returns the classes of a labeler."""
        known = (slugs(labeler.names.classes), compound_texts(labeler))
        return cls(labeler, counts, metrics, most, *known)

    @property
    def labelled(self) -> bool:
        """Whether any image has labels."""
        return bool(self.counts.scores[1].any())

    def exhibit(self, index: int, rows: Mapping[str, Sequence[str]]) -> ClassExhibit:
        """Returns what the page of a class shows. rows: the keys of images."""
        name, labeler = self.labeler.names.classes[index], self.labeler
        rule, fusion = labeler.decisions[labeler.primary], labeler.fusion
        by_threshold = labeler.rule.get("top") is None  # else thresholds decide nothing
        prompts = labeler.mentions[index].tolist()
        return ClassExhibit(
            name,
            self.slugs[index],
            rule.status[index],
            _number(rule.prevalence[index]),
            _number(rule.threshold_score[index]) if by_threshold else None,
            _number(rule.threshold_probability[index]) if by_threshold else None,
            *self._distribution(rule, index),
            rows,
            [] if fusion is None else fusion.column_weights(index).tolist(),
            [self.texts[prompt] for prompt in prompts[: self.most]],
            {m: self.metrics[m]["AP"].get(name) for m in FUSIONS if m in self.metrics},
            self.counts.precision_recall(index),
            *self.counts.quality(index),
            more_prompts=max(len(prompts) - self.most, 0),
        )

    def _distribution(self, rule: Decision, index: int) -> tuple[list[float], list[int]]:
        """Returns edges and counts of the scores that are judged; nothing if they do not vary."""
        edges, counts = self.counts.distribution(index, BINS)
        if not rule.sd[index]:
            return [], []
        return (rule.mean[index] + rule.sd[index] * edges).tolist(), counts.tolist()


def compound_texts(labeler: AnyLabeler) -> list[str]:
    """Returns the texts of a labeler's compound prompts."""
    rows = labeler.prompts.select(["kind", "text"]).to_pylist()
    return [row["text"] for row in rows if row["kind"] == "compound"]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
