"""The passes of a unit after its fusions are fitted: final scores, decisions, labels, evaluation.

first    prompt and rank statistics, …   see ``fusions``: as many passes as the fusions need
then     final scores          and with them the positives' scores and the moments of final scores
         decision statistics   counts of standardised scores, images above each positive
         labels                and with them how well they agree with known ones, and the gallery

A pass is a state per shard, and states add up. Columns are the N classes, then B background
classes, which are scored like classes and never reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.average_precision import (
    EmptyClass,
    Positives,
    Reached,
    average_precision,
    summarise,
)
from sparc_dist.core.class_counts import ClassCounts
from sparc_dist.core.decision_metrics import Agreement, oracle
from sparc_dist.core.decisions import Decision
from sparc_dist.core.final_scores import (
    FinalScores,
    Float32,
    Labelled,
    ScoreCounts,
    ScoreMoments,
)
from sparc_dist.core.gallery import Gallery
from sparc_dist.core.moments import Floats, Moments
from sparc_dist.core.states import State, States

#: For each fusion, those whose totals its prevalences are estimated from.
TotalNames = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ScoredState(State):
    """What is gathered while final scores are written.

    positives: of each method. moments: of each fusion that can decide. every: of all scores side by
    side, for an ensemble of backbones.
    """

    positives: States[Positives]
    moments: States[ScoreMoments]
    every: Moments

    @classmethod
    def of(cls, shards: Iterable[Labelled], totals: TotalNames) -> ScoredState:
        """Returns the state of some shards.

        Positives are collected of all at once: many small arrays take longer than large ones.
        """
        known: list[tuple[dict[str, Float32], NDArray[np.bool_]]] = []

        def of(shard: Labelled) -> ScoredState:
            final, labelled, labels = shard
            known.append((_methods(final, labelled), labels[labelled]))
            moments = {
                name: ScoreMoments.of(_totals(final, used), final.columns(name)[1])
                for name, used in totals.items()
            }
            return cls(States(), States(moments), Moments.of(final.every))

        found = reduce(add, map(of, shards))
        labels = np.concatenate([own for _, own in known])
        scores = _joined([own for own, _ in known])
        positives = {name: Positives.of(own, labels) for name, own in scores.items()}
        return cls(States(positives), found.moments, found.every)


@dataclass(frozen=True)
class CountedState(State):
    """What decisions are fitted with: images above each positive, and counts of scores.

    reached: of each method. counts: of each fusion that can decide.
    """

    reached: States[Reached]
    counts: States[ScoreCounts]

    @classmethod
    def of(
        cls, shards: Iterable[Labelled], scored: ScoredState, totals: TotalNames
    ) -> CountedState:
        """Returns the state of some shards, which are compared with the positives all at once.

        scored: merged
        """
        known: list[dict[str, Float32]] = []
        standards = {name: state.standards for name, state in scored.moments.items()}

        def of(shard: Labelled) -> CountedState:
            final, labelled, _ = shard
            known.append(_methods(final, labelled))
            counts = {
                name: ScoreCounts.of(_totals(final, used), final.columns(name)[1], standards[name])
                for name, used in totals.items()
            }
            return cls(States(), States(counts))

        found = reduce(add, map(of, shards))
        reached = {
            name: Reached.of(scores, scored.positives[name])
            for name, scores in _joined(known).items()
        }
        return cls(States(reached), found.counts)


def _totals(final: FinalScores, used: Sequence[str]) -> list[Float32]:
    return [final.columns(name)[0] for name in used]


def _methods(final: FinalScores, rows: NDArray[np.bool_]) -> dict[str, Float32]:
    """Returns the scores of some images by method."""
    return {name: scores[rows] for name, scores in final.methods.items()}


def _joined(parts: Sequence[Mapping[str, Float32]]) -> dict[str, Float32]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True)
class ShownState(State):
    """What a report shows of each class: images, and the distribution of scores and positives."""

    gallery: Gallery
    counts: ClassCounts

    @classmethod
    def of(
        cls,
        shard: int,
        ids: Sequence[str],
        z: Floats,
        present: NDArray[np.bool_],
        truth: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    ) -> ShownState:
        """Returns the state of one shard.

        z: standardised scores, present: both (n, N). truth: which of the images have labels (n,),
        and their labels (n, N).
        """
        found = (z, present, *truth)
        return cls(Gallery.of(shard, ids, *found), ClassCounts.of(*found))


@dataclass(frozen=True)
class LabelledState(State):
    """What is gathered while labels are written.

    agreement: of each fusion's decisions with known labels. shown: what a report shows.
    """

    agreement: States[Agreement]
    shown: ShownState


def agreement_of(
    judged: Mapping[str, tuple[Floats, NDArray[np.bool_]]], labels: NDArray[np.bool_]
) -> States[Agreement]:
    """Returns how well decisions agree with labels (n, N), by fusion.

    judged: the probability of each class and whether it is present, both (n, N).
    """
    return States({name: Agreement.of(*found, labels) for name, found in judged.items()})


def judged_by(
    decisions: Mapping[str, Decision], final: FinalScores, most: int | None = None
) -> dict[str, tuple[Floats, NDArray[np.bool_]]]:
    """Returns what each fusion says about images: probability and present, both (n, N).

    most: so many classes of an image are present, whatever the thresholds.
    """
    return {name: rule.judge(*final.columns(name), most) for name, rule in decisions.items()}


def evaluate(
    scored: ScoredState,
    counted: CountedState,
    agreement: Mapping[str, Agreement],
    classes: Sequence[str],
    empty_class: EmptyClass,
) -> dict[str, Any]:
    """Returns the entries of metrics.json: AP and mAP of all methods, decisions of fusions."""
    found: dict[str, Any] = {}
    for name, positives in scored.positives.items():
        reached = counted.reached[name]
        aps = average_precision(positives, reached)
        found[name] = dict(summarise(aps, classes, empty_class))
        if name in agreement:
            best = oracle(positives, reached)
            found[name]["decisions"] = agreement[name].metrics() | best
    return found
