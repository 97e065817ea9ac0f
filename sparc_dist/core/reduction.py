"""The reduction of a unit: SPARC, duo, average precision and decisions share every pass.

pass 1   prompt statistics     the moments of every prompt
pass 2   rank statistics       scatters of ranks (SPARC), products of views (duo)
pass 3   final scores          and with them the positives' scores and the moments of final scores
pass 4   decision statistics   counts of standardised scores, images above each positive
pass 5   labels                and with them how well they agree with known ones, and the gallery

A pass is a state per shard, and states add up. Columns are the N classes, then B background
classes, which are scored like classes and never reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.arrays import ScoresLike, as_scores, slices
from sparc_dist.core.average_precision import (
    EmptyClass,
    Positives,
    Reached,
    average_precision,
    summarise,
)
from sparc_dist.core.class_counts import ClassCounts
from sparc_dist.core.debias import Scores
from sparc_dist.core.decision_metrics import Agreement, oracle
from sparc_dist.core.decisions import Decision
from sparc_dist.core.duo import (
    Duo,
    DuoPromptState,
    DuoViewState,
    finish_duo,
)
from sparc_dist.core.final_scores import (
    CountState,
    FinalScores,
    FinalState,
    Float32,
    Labelled,
    methods_of,
)
from sparc_dist.core.fusion import DECIDING, UNRANKED, Fusion, Method
from sparc_dist.core.gallery import Gallery
from sparc_dist.core.joint import Joint, by_fusion, of_fusions
from sparc_dist.core.moments import Floats, Moments
from sparc_dist.core.order_statistics import Mentions, Ranking
from sparc_dist.core.sparc import PromptState, RankState, finish, needs_ranks


class PromptStatistics(Joint):
    """The state of pass 1: for SPARC, for duo."""

    kinds = (PromptState, DuoPromptState)

    @classmethod
    def of(cls, scores: Scores, method: Method) -> PromptStatistics:
        """Returns the state of one shard."""
        duo = DuoPromptState.of(scores, method.duo.scaling) if "duo" in method.fusions else None
        return cls((PromptState.of(scores, method), duo))


class RankStatistics(Joint):
    """The state of pass 2: for SPARC, for duo."""

    kinds = (RankState, DuoViewState)

    @classmethod
    def maker(
        cls, prompts: PromptStatistics, mentions: Mentions, method: Method
    ) -> Callable[[Scores], RankStatistics]:
        """Returns the function that makes the state of one shard; prepares what all shards share.

        A strategy that needs no scatters is not sorted for.
        """
        sparc, duo = prompts.parts
        ranking = Ranking.of(mentions) if needs_ranks(method) else Ranking(())
        views = None if duo is None else duo.views(mentions, method.duo)

        def of(scores: Scores) -> RankStatistics:
            ranks = RankState(())
            if ranking.blocks:
                ranks = RankState.of(scores, sparc.moments, ranking, method)
            return cls((ranks, None if views is None else DuoViewState.of(scores, views)))

        return of


@dataclass(frozen=True)
class Fusions:
    """The fitted models of N classes; they score N + B columns.

    sparc: without ranks if SPARC is not listed; debiased scores are its own. duo: None if not
    listed
    """

    sparc: Fusion
    duo: Duo | None
    classes: int

    @classmethod
    def fit(
        cls,
        prompts: PromptStatistics,
        ranks: RankStatistics,
        mentions: Mentions,
        classes: int,
        method: Method,
    ) -> Fusions:
        """Returns the models for the merged states of passes 1 and 2."""
        (sparc_prompts, duo_prompts), (sparc_ranks, duo_ranks) = prompts.parts, ranks.parts
        scatters = sparc_ranks if needs_ranks(method) else None
        ranked = method if "sparc" in method.fusions else replace(method, **UNRANKED)
        sparc = finish(sparc_prompts, scatters, mentions, ranked)
        if duo_prompts is None:
            return cls(sparc, None, classes)
        views = duo_prompts.views(mentions, method.duo)
        return cls(sparc, finish_duo(duo_prompts, duo_ranks, views, method.duo), classes)

    @property
    def names(self) -> tuple[str, ...]:
        """The fusions that are listed."""
        return self.sparc.method.fusions

    def fusion(self, name: str) -> Fusion | Duo:
        """Returns one of them; raises KeyError if it is not listed."""
        found = {"sparc": self.sparc, "duo": self.duo}[name] if name in self.names else None
        if found is None:
            raise KeyError(name)
        return found

    @property
    def notes(self) -> list[str]:
        """What a user should know about degenerate data, each once, and what is SPARC's alone."""
        if self.duo is None or "sparc" not in self.names:
            return list((self.duo or self.sparc).notes)
        alone = [note for note in self.sparc.notes if note not in self.duo.notes]
        return [*self.duo.notes, *(f"SPARC: {note}" for note in alone)]

    def final(self, scores: Scores) -> FinalScores:
        """Returns the final scores of n images."""
        n = self.classes
        sparc = total = duo = np.empty((len(scores), 0))
        if "sparc" in self.names:
            debiased, sparc = self.sparc.final(scores)
        else:
            debiased = self.sparc.debias_singletons(scores)
        if self.duo is not None:
            total, duo = self.duo.final(scores)
        parts = (scores.singleton[:, :n], debiased[:, :n], sparc[:, :n], duo[:, :n])
        return FinalScores(*(part.astype(np.float32) for part in (*parts, sparc[:, n:], total)))

    def transform(self, scores: ScoresLike, method: str = "duo") -> Float32:
        """Returns the final scores (n, N) of n images, which need not be those of the fit.

        scores: singleton (n, N + B), auxiliary (n, N + B) and compound (n, P), in any form that
        ``fit`` takes. method: duo, sparc, debiased or zsclip.

        Raises ValueError if the shapes are not those of the fit.
        """
        if method not in (known := methods_of(self.names)):
            raise ValueError(f"method is {method!r}; choose one of {', '.join(known)}")
        checked, columns = as_scores(scores), len(self.sparc.mentions)
        found = checked.singleton.shape[1], checked.compound.shape[1]
        expected = columns, len(self.sparc.moments.mean) - columns
        if found != expected:
            raise ValueError(
                f"singleton and compound have {found[0]} and {found[1]} columns; the fit had "
                f"{expected[0]} and {expected[1]}"
            )
        return np.concatenate([getattr(self.final(part), method) for part in slices(checked)()])


class FinalStatistics(Joint):
    """The state of pass 3: positives of all methods, moments for each fusion, and of all scores."""

    kinds = (Positives, FinalState, FinalState, Moments)

    @classmethod
    def of(cls, shards: Iterable[Labelled]) -> FinalStatistics:
        """Returns the state of some shards.

        Positives are collected of all at once: many small arrays take longer than large ones.
        """
        known: list[tuple[Float32, NDArray[np.bool_]]] = []

        def of(shard: Labelled) -> FinalStatistics:
            final, labelled, labels = shard
            known.append((final.methods[labelled], labels[labelled]))
            moments = of_fusions(final.fusions, lambda name: FinalState.of(*final.columns(name)))
            return cls((None, *moments, Moments.of(final.every)))

        found = reduce(add, map(of, shards))
        scores, labels = map(np.concatenate, zip(*known, strict=True))
        tiled = np.tile(labels, (1, len(methods_of(found.moments))))
        return cls((Positives.of(scores, tiled), *found.parts[1:]))

    @property
    def positives(self) -> Positives:
        """The scores of positives (methods · N columns)."""
        found: Positives = self.parts[0]
        return found

    @property
    def moments(self) -> Mapping[str, FinalState]:
        """The moments of each fusion."""
        return by_fusion(self.parts[1:3])

    @property
    def every(self) -> Moments:
        """The moments of all scores side by side, for an ensemble of backbones."""
        found: Moments = self.parts[3]
        return found


class DecisionStatistics(Joint):
    """The state of pass 4: images above each positive, and counts for each fusion."""

    kinds = (Reached, CountState, CountState)

    @classmethod
    def of(cls, shards: Iterable[Labelled], statistics: FinalStatistics) -> DecisionStatistics:
        """Returns the state of some shards, which are compared with the positives all at once.

        statistics: merged
        """
        known: list[Float32] = []
        standards = {name: state.standards for name, state in statistics.moments.items()}

        def of(shard: Labelled) -> DecisionStatistics:
            final, labelled, _ = shard
            known.append(final.methods[labelled])
            counts = of_fusions(
                standards, lambda name: CountState.of(*final.columns(name), standards[name])
            )
            return cls((None, *counts))

        found = reduce(add, map(of, shards))
        reached = Reached.of(np.concatenate(known), statistics.positives)
        return cls((reached, *found.parts[1:]))

    @property
    def reached(self) -> Reached:
        """How many images score at least as high as each positive (methods · N columns)."""
        found: Reached = self.parts[0]
        return found

    @property
    def counts(self) -> Mapping[str, CountState]:
        """The counts of each fusion."""
        return by_fusion(self.parts[1:])


class LabelStatistics(Joint):
    """A part of pass 5's state: how well the decisions of each fusion agree with known labels."""

    kinds = (Agreement, Agreement)

    @classmethod
    def of(
        cls, final: FinalScores, labels: NDArray[np.bool_], decisions: Mapping[str, Decision]
    ) -> LabelStatistics:
        """Returns the state of one shard, of whose images all have labels (n, N)."""
        return cls.judged(
            {name: rule.judge(*final.columns(name)) for name, rule in decisions.items()}, labels
        )

    @classmethod
    def judged(
        cls, judged: Mapping[str, tuple[Floats, NDArray[np.bool_]]], labels: NDArray[np.bool_]
    ) -> LabelStatistics:
        """Returns the state of what each fusion says: probability and present, both (n, N)."""
        return cls(of_fusions(judged, lambda name: Agreement.of(*judged[name], labels)))

    @property
    def agreement(self) -> Mapping[str, Agreement]:
        """The agreement of each fusion."""
        return by_fusion(self.parts)


class GalleryStatistics(Joint):
    """The other part: what a report shows of each class."""

    kinds = (Gallery, ClassCounts)

    @classmethod
    def of(
        cls,
        shard: int,
        ids: Sequence[str],
        z: Floats,
        present: NDArray[np.bool_],
        truth: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    ) -> GalleryStatistics:
        """Returns the state of one shard.

        z: standardised scores, present: both (n, N). truth: which of the images have labels (n,),
        and their labels (n, N).
        """
        found = (z, present, *truth)
        return cls((Gallery.of(shard, ids, *found), ClassCounts.of(*found)))

    @property
    def gallery(self) -> Gallery:
        """The images to show."""
        found: Gallery = self.parts[0]
        return found

    @property
    def counts(self) -> ClassCounts:
        """The distribution of scores, and of positives among them."""
        found: ClassCounts = self.parts[1]
        return found


class DecidedStatistics(Joint):
    """The state of pass 5."""

    kinds = (LabelStatistics, GalleryStatistics)


def fit_fusions(
    shards: Callable[[], Iterable[Scores]], mentions: Mentions, classes: int, method: Method
) -> Fusions:
    """Fits on shards in this process; ``shards`` returns a new iterator for each pass."""
    prompts = reduce(add, (PromptStatistics.of(shard, method) for shard in shards()))
    ranks = reduce(add, map(RankStatistics.maker(prompts, mentions, method), shards()))
    return Fusions.fit(prompts, ranks, mentions, classes, method)


def evaluate(
    statistics: FinalStatistics,
    counts: DecisionStatistics,
    agreement: LabelStatistics,
    classes: Sequence[str],
    empty_class: EmptyClass,
) -> dict[str, Any]:
    """Returns the entries of metrics.json: AP and mAP of all methods, decisions of fusions."""
    positives, reached, width = statistics.positives, counts.reached, len(classes)
    aps = average_precision(positives, reached)
    found: dict[str, Any] = {}
    for number, name in enumerate(methods_of(statistics.moments)):
        own = slice(number * width, (number + 1) * width)
        found[name] = dict(summarise(aps[own], classes, empty_class))
        if name in DECIDING:
            best = oracle(Positives(positives.scores[own]), Reached(reached.counts[own]))
            found[name]["decisions"] = agreement.agreement[name].metrics() | best
    return found
