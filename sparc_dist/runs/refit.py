"""Refits the decisions of a finished unit in seconds, from states in storage and what is known.

Final scores and states stay as they are, so every refit starts from the label-free fit, and a refit
without any knowledge restores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core import (
    Agreement,
    Answers,
    DecidedStatistics,
    Decision,
    Floats,
    GalleryStatistics,
    Knowledge,
    LabelStatistics,
    decide,
)
from sparc_dist.core.answers import UNKNOWN
from sparc_dist.errors import UserError
from sparc_dist.runs.decisions_file import write_decisions
from sparc_dist.runs.doubts import doubts_of
from sparc_dist.runs.ensemble_file import write_any_labeler
from sparc_dist.runs.finished_unit import FinishedUnit
from sparc_dist.runs.gallery_file import write_gallery
from sparc_dist.runs.labels import write_labels
from sparc_dist.runs.outcome import DECIDING, reopen

#: Yes or no by the id of an image and the index of a class.
GivenAnswers = Mapping[str, Mapping[int, bool]]


@dataclass(frozen=True)
class Rule:
    """How to decide. threshold: a probability for all classes. top: so many classes per image."""

    knowledge: Knowledge = field(default_factory=Knowledge)
    answers: GivenAnswers = field(default_factory=dict)
    threshold: float | None = None
    top: int | None = None

    def judge(
        self, decision: Decision, scores: tuple[NDArray[np.floating], NDArray[np.floating]]
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Returns the probability of each class and whether it is present, both (n, N)."""
        return decision.judge(*scores, self.top)

    def to_json(self, unit: FinishedUnit) -> dict[str, Any]:
        """Returns what decisions.json keeps of it; nothing for the label-free fit."""
        given = {unit.classes[i]: value for i, value in self.knowledge.prevalence.items()}
        told = {
            "prevalence": given or None,
            "per_image": self.knowledge.per_image,
            "answers": sum(map(len, self.answers.values())) or None,
            "threshold": self.threshold,
            "top": self.top,
        }
        return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True)
class Refit:
    """The new decisions of the method that decides.

    before, after: its metrics, None without labels. unknown: images with answers but no scores.
    """

    decision: Decision
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    unknown: list[str]


def refit(unit: FinishedUnit, rule: Rule) -> Refit:
    """Fits the decisions of each fusion; writes decisions.json, labels and metrics."""
    answers, unknown = _found(unit, rule.answers)
    fusions = unit.states[0].moments
    decisions = {name: _decision(unit, name, rule, answers.get(name)) for name in fusions}
    reopen(unit.unit, DECIDING)  # if this is interrupted, the same command can be repeated
    agreement = _write_labels(unit, rule, decisions)
    told = rule.to_json(unit)
    write_decisions(unit.unit.decisions, decisions, unit.classes, unit.primary, told)
    labeler = replace(unit.labeler(), decisions=decisions, rule=told)
    write_any_labeler(unit.unit.labeler, labeler)
    before = unit.metrics[unit.primary].get("decisions")
    doubts = doubts_of(decisions[unit.primary].status, unit.classes)
    # With the gallery's hash, a report that shows other decisions is written again.
    shown = storage.sha256(unit.unit.gallery)
    metrics = unit.metrics | {"doubts": doubts, "gallery_sha256": shown}
    if metrics["labelled"]:
        metrics |= {name: _updated(metrics[name], agreement[name]) for name in fusions}
    storage.write_json(unit.unit.metrics, metrics)
    after = metrics[unit.primary].get("decisions")
    return Refit(decisions[unit.primary], before, after, unknown)


def label_free(unit: FinishedUnit) -> Decision:
    """Returns the rule of the method that decides, without any knowledge; writes nothing."""
    return _decision(unit, unit.primary, Rule(), None)


def _decision(unit: FinishedUnit, name: str, rule: Rule, answers: Answers | None) -> Decision:
    """Returns the rule of one method."""
    final, counts, _ = unit.states
    own = (final.moments[name], counts.counts[name])
    found = decide(*own, len(unit.classes), rule.knowledge, answers)
    return found if rule.threshold is None else found.at_probability(rule.threshold)


def _found(unit: FinishedUnit, given: GivenAnswers) -> tuple[dict[str, Answers], list[str]]:
    """Returns the answers for each method, and the images that have no scores."""
    missing = dict.fromkeys(given)
    parts: dict[str, list[Answers]] = {name: [] for name in unit.states[0].moments}
    for shard in range(len(unit.sizes)) if given else ():
        if given.keys().isdisjoint(unit.ids(shard)):
            continue
        ids, final = unit.final(shard)
        rows = np.flatnonzero([image_id in given for image_id in ids])
        table = np.full((len(rows), len(unit.classes)), UNKNOWN)
        for row, image in enumerate(rows.tolist()):
            for index, answer in given[ids[image]].items():
                table[row, index] = answer
            missing.pop(ids[image], None)
        for name, own in parts.items():
            total, after = final.columns(name)
            own.append(Answers.of(total[rows], after[rows], table))
    if given and len(missing) == len(given):
        raise UserError(
            f"--answers: none of its {len(given)} images is in the run; `image_id` must "
            "be as in the file that `sparc-dist ask` writes."
        )
    return {name: reduce(add, found) for name, found in parts.items() if found}, list(missing)


def _write_labels(
    unit: FinishedUnit, rule: Rule, decisions: Mapping[str, Decision]
) -> Mapping[str, Agreement]:
    """Writes all labels and the gallery; returns how well both methods agree with known labels."""
    shards = range(len(unit.sizes))
    labels, gallery = reduce(add, (_write_shard(unit, rule, decisions, i) for i in shards)).parts
    write_gallery(unit.unit, gallery)
    agreement: Mapping[str, Agreement] = labels.agreement
    return agreement


def _write_shard(
    unit: FinishedUnit, rule: Rule, decisions: Mapping[str, Decision], shard: int
) -> DecidedStatistics:
    """Writes the labels of a shard; returns its state."""
    ids, final = unit.final(shard)
    scores, decision = final.columns(unit.primary), decisions[unit.primary]
    judged = rule.judge(decision, scores)
    write_labels(unit.unit, shard, ids, unit.classes, judged)
    labelled, labels = truth = unit.reader.labels(shard, ids)
    known = final[labelled]
    found = {name: rule.judge(own, known.columns(name)) for name, own in decisions.items()}
    agreement = LabelStatistics.judged(found, labels[labelled])
    shown = GalleryStatistics.of(shard, ids, decision.standardise(*scores), judged[1], truth)
    return DecidedStatistics((agreement, shown))


def _updated(metrics: dict[str, Any], agreement: Agreement) -> dict[str, Any]:
    """Returns the metrics of a method with new decisions; those of the oracle remain."""
    old = metrics.get("decisions", {})
    oracle = {name: value for name, value in old.items() if name.startswith("oracle_")}
    return metrics | {"decisions": agreement.metrics() | oracle}
