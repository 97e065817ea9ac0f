"""Refits the decisions of a finished unit in seconds, from states in storage and what is known.

Final scores and states stay as they are, so every refit starts from the label-free fit, and a refit
without any knowledge restores it. What is known is kept in knowledge.json, by the names of classes
and images, so that a run whose images or prompts change can apply it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from sparc_dist import storage
from sparc_dist.core import (
    Agreement,
    Answers,
    Decision,
    Knowledge,
    LabelledState,
    ShownState,
    agreement_of,
    decide,
    judged_by,
)
from sparc_dist.core.answers import UNKNOWN
from sparc_dist.errors import UserError
from sparc_dist.runs.decisions import doubts_of, write_decisions
from sparc_dist.runs.ensemble_file import write_any_labeler
from sparc_dist.runs.gallery_file import write_gallery
from sparc_dist.runs.labels import write_labels
from sparc_dist.runs.layout import UnitLayout
from sparc_dist.runs.results import DECIDING, reopen
from sparc_dist.runs.run import FinishedUnit

#: Yes or no by the id of an image and the index of a class.
GivenAnswers = Mapping[str, Mapping[int, bool]]
#: The content of knowledge.json.
Told = Mapping[str, Any]
#: What it tells about the list of classes as a whole.
OF_ALL_CLASSES = ("per_image", "top")
#: How the note about knowledge begins that was applied again.
AGAIN = "Applied again"


@dataclass(frozen=True)
class Rule:
    """How to decide. threshold: a probability for all classes. top: so many classes per image."""

    knowledge: Knowledge = field(default_factory=Knowledge)
    answers: GivenAnswers = field(default_factory=dict)
    threshold: float | None = None
    top: int | None = None

    @classmethod
    def of(cls, told: Told, classes: Sequence[str]) -> Rule:
        """Returns the rule that a knowledge.json tells, all of whose classes are ``classes``."""
        index = {name: number for number, name in enumerate(classes)}
        given = {index[name]: share for name, share in told.get("prevalence", {}).items()}
        answers = {
            image_id: {index[name]: answer for name, answer in row.items()}
            for image_id, row in told.get("answers", {}).items()
        }
        knowledge = Knowledge(given, per_image=told.get("per_image"))
        return cls(knowledge, answers, told.get("threshold"), told.get("top"))

    def to_json(self, classes: Sequence[str]) -> dict[str, Any]:
        """Returns what knowledge.json keeps of it; nothing for the label-free fit."""
        answers = {
            image_id: {classes[index]: bool(answer) for index, answer in row.items()}
            for image_id, row in self.answers.items()
        }
        told = {
            "prevalence": {classes[i]: share for i, share in self.knowledge.prevalence.items()},
            "per_image": self.knowledge.per_image,
            "answers": answers,
            "threshold": self.threshold,
            "top": self.top,
        }
        return {name: value for name, value in told.items() if value not in (None, {})}


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
    """Fits the decisions of each fusion; writes knowledge, decisions.json, labels and metrics."""
    answers, unknown = _found(unit, rule.answers)
    if rule.answers and len(unknown) == len(rule.answers):
        raise UserError(
            f"--answers: none of its {len(unknown)} images is in the run; `image_id` must "
            "be as in the file that `sparc-dist ask` writes."
        )
    decisions = _decisions(unit, rule, answers)
    told, kept = rule.to_json(unit.classes), unit.unit.knowledge
    if told or not storage.is_missing(kept):
        # Emptied, not deleted: a run needs no right to delete.
        storage.write_json(kept, told and {"classes": [*unit.classes], **told})
    # If this is interrupted, the same command can be repeated, and so can that of the run.
    reopen(unit.unit, DECIDING)
    metrics = _write_results(unit, rule, decisions)
    storage.write_json(unit.unit.metrics, metrics)
    before, after = (own[unit.primary].get("decisions") for own in (unit.metrics, metrics))
    return Refit(decisions[unit.primary], before, after, unknown)


def apply_again(unit: FinishedUnit, source: UnitLayout | None = None) -> dict[str, Any]:
    """Applies what people told a unit that was just fitted; returns its metrics, to be written.

    source: the unit whose embeddings it uses, and whose knowledge it takes over if it has none.
    """
    own = _told(unit.unit)
    told = _told(source) if own is None and source is not None else own
    if not told:
        return unit.metrics
    names = {*unit.classes}
    lists = (OF_ALL_CLASSES, ()) if {*told["classes"]} == names else ((), OF_ALL_CLASSES)
    usable = _part(told, lambda name: name in names, ("threshold", *lists[0]))
    if own is None and usable:
        storage.write_json(unit.unit.knowledge, {"classes": [*unit.classes], **usable})
    rule = Rule.of(usable, unit.classes)
    answers, unknown = _found(unit, rule.answers)
    gone = {image_id: rule.answers[image_id] for image_id in unknown}
    there = {image_id: row for image_id, row in rule.answers.items() if image_id not in gone}
    rule = replace(rule, answers=there)
    applied = rule.to_json(unit.classes)
    metrics = unit.metrics
    if applied:
        metrics = _write_results(unit, rule, _decisions(unit, rule, answers))
    other = _part(told, lambda name: name not in names, lists[1])
    origin = "" if own is not None or source is None else source.root
    note = _note(applied, {"answers": gone}, other, storage.without_secrets(origin))
    return metrics | {"notes": [*metrics["notes"], note]}


def _told(unit: UnitLayout) -> Told | None:
    """Returns what people told a unit; None if it was never told anything."""
    if storage.is_missing(unit.knowledge):
        return None
    try:
        found: Told = storage.read_json(unit.knowledge)
    except ValueError:
        raise UserError(
            f"{unit.knowledge} is damaged; restore it, or delete it and run `sparc-dist decide` "
            "with your answers afterwards."
        ) from None
    return found


def _part(told: Told, about: Callable[[str], bool], options: Sequence[str]) -> dict[str, Any]:
    """Returns what was told about some classes, and some options that concern all of them."""
    rows = (
        (image_id, {name: answer for name, answer in row.items() if about(name)})
        for image_id, row in told.get("answers", {}).items()
    )
    shares = told.get("prevalence", {}).items()
    found = {
        "prevalence": {name: share for name, share in shares if about(name)},
        "answers": {image_id: row for image_id, row in rows if row},
        **{name: told.get(name) for name in options},
    }
    return {name: value for name, value in found.items() if value not in (None, {})}


def _note(applied: Told, gone: Told, other: Told, source: str) -> str:
    """Returns what was applied again, and what was left out. source: where it is from."""
    origin = f" from {source}" if source else ""
    note = f"{AGAIN}{origin}: {_in_words(applied) or 'nothing that was told'}."
    if lost := _in_words(gone):
        note += f" Left out: {lost} about images that are gone or unreadable."
    if lost := _in_words(other):
        note += f" Left out, because the classes have changed: {lost}."
    return note


def _in_words(told: Told) -> str:
    """Returns what was told in a few words, such as "60 answers, 1 given prevalence"."""
    answers = sum(map(len, told.get("answers", {}).values()))
    counts = {"answer": answers, "given prevalence": len(told.get("prevalence", {}))}
    words = [f"{count} {what}{'s' * (count > 1)}" for what, count in counts.items() if count]
    options = (name for name in ("per_image", "threshold", "top") if name in told)
    return ", ".join(words + [f"--{name.replace('_', '-')} {told[name]:g}" for name in options])


def _decisions(
    unit: FinishedUnit, rule: Rule, answers: Mapping[str, Answers]
) -> dict[str, Decision]:
    """Returns the rule of each method."""
    return {name: _decision(unit, name, rule, answers.get(name)) for name in unit.states[0].moments}


def _write_results(
    unit: FinishedUnit, rule: Rule, decisions: Mapping[str, Decision]
) -> dict[str, Any]:
    """Writes decisions.json, labels, gallery and labeler; returns the metrics."""
    agreement = _write_labels(unit, rule, decisions)
    told = rule.to_json(unit.classes)
    if rule.answers:
        told["answers"] = sum(map(len, rule.answers.values()))
    write_decisions(unit.unit.decisions, decisions, unit.classes, unit.primary, told)
    labeler = replace(unit.labeler(), decisions=decisions, rule=told)
    write_any_labeler(unit.unit.labeler, labeler)
    metrics = unit.metrics | {
        "doubts": doubts_of(decisions[unit.primary].status, unit.classes),
        # With the gallery's hash, a report that shows other decisions is written again.
        "gallery_sha256": storage.sha256(unit.unit.gallery),
        "notes": [note for note in unit.metrics["notes"] if not note.startswith(AGAIN)],
    }
    if metrics["labelled"]:
        metrics |= {name: _updated(metrics[name], agreement[name]) for name in decisions}
    return metrics


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
    return {name: reduce(add, found) for name, found in parts.items() if found}, list(missing)


def _write_labels(
    unit: FinishedUnit, rule: Rule, decisions: Mapping[str, Decision]
) -> Mapping[str, Agreement]:
    """Writes all labels and the gallery; returns how well both methods agree with known labels."""
    shards = range(len(unit.sizes))
    found = reduce(add, (_write_shard(unit, rule, decisions, i) for i in shards))
    write_gallery(unit.unit, found.shown)
    return found.agreement


def _write_shard(
    unit: FinishedUnit, rule: Rule, decisions: Mapping[str, Decision], shard: int
) -> LabelledState:
    """Writes the labels of a shard; returns its state."""
    ids, final = unit.final(shard)
    scores, decision = final.columns(unit.primary), decisions[unit.primary]
    judged = decision.judge(*scores, rule.top)
    write_labels(unit.unit, shard, ids, unit.classes, judged)
    labelled, labels = truth = unit.reader.labels(shard, ids)
    known = judged_by(decisions, final[labelled], rule.top)
    shown = ShownState.of(shard, ids, decision.standardise(*scores), judged[1], truth)
    return LabelledState(agreement_of(known, labels[labelled]), shown)


def _updated(metrics: dict[str, Any], agreement: Agreement) -> dict[str, Any]:
    """Returns the metrics of a method with new decisions; those of the oracle remain."""
    old = metrics["decisions"].items()
    oracle = {name: value for name, value in old if name.startswith("oracle_")}
    return metrics | {"decisions": agreement.metrics() | oracle}
