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
from sparc_dist.core.final_scores import CountState, FinalState
from sparc_dist.core.fusion import DECIDING, UNRANKED, Fusion, Method
from sparc_dist.core.gallery import Gallery
from sparc_dist.core.joint import Joint, by_fusion, of_fusions
from sparc_dist.core.moments import Floats, Moments
from sparc_dist.core.order_statistics import Mentions, Ranking
from sparc_dist.core.sparc import PromptState, RankState, finish, needs_ranks

#: The methods that are evaluated; those of them that decide are the fusions.
METHODS = ("zsclip", "debiased", *DECIDING)

Float32 = NDArray[np.float32]


def methods_of(fusions: Iterable[str]) -> list[str]:
    """Returns the methods of a unit that has these fusions."""
    listed = {*fusions}
    return [name for name in METHODS if name not in DECIDING or name in listed]


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


@dataclass(frozen=True)
class FinalScores:
    """The final scores of n images, in float32 as they are stored.

    zsclip, debiased, sparc, duo: (n, N). Decisions also need sparc_background: (n, B), and
    duo_total: (n, N + B), duo before the rival is taken off. The matrices of a fusion that is not
    listed have no columns.
    """

    zsclip: Float32
    debiased: Float32
    sparc: Float32
    duo: Float32
    sparc_background: Float32
    duo_total: Float32

    def __len__(self) -> int:
        return len(self.zsclip)

    def __getitem__(self, rows: slice | list[int] | NDArray[np.bool_]) -> FinalScores:
        return FinalScores(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @property
    def every(self) -> Float32:
        """All scores side by side (n, d); d is 5 N + 2 B with both fusions."""
        return np.concatenate([getattr(self, name) for name in self.__dataclass_fields__], axis=1)

    def split(self, every: NDArray[np.floating]) -> FinalScores:
        """Returns scores that are side by side (n, d) as final scores like these."""
        widths = [getattr(self, name).shape[1] for name in self.__dataclass_fields__]
        parts = np.split(every.astype(np.float32), np.cumsum(widths[:-1]), axis=1)
        return FinalScores(*parts)

    @property
    def fusions(self) -> list[str]:
        """The names of the fusions."""
        return [name for name in DECIDING if getattr(self, name).shape[1]]

    @property
    def methods(self) -> Float32:
        """The scores of all methods side by side (n, methods · N)."""
        return np.concatenate([getattr(self, name) for name in METHODS], axis=1)

    def columns(self, method: str) -> tuple[Float32, Float32]:
        """Returns a method's scores of all columns, before and after the rival: both (n, N + B)."""
        if method == "sparc":
            every = np.concatenate([self.sparc, self.sparc_background], axis=1)
            return every, every
        total, n = self.duo_total, self.duo.shape[1]
        rival = total[:, :1] - self.duo[:, :1]
        return total, np.concatenate([self.duo, total[:, n:] - rival], axis=1)


class FinalStatistics(Joint):
    """The state of pass 3: positives of all methods, moments for each fusion, and of all scores."""

    kinds = (Positives, FinalState, FinalState, Moments)

    @classmethod
    def of(
        cls, final: FinalScores, labelled: NDArray[np.bool_], labels: NDArray[np.bool_]
    ) -> FinalStatistics:
        """Returns the state of one shard. labelled: (n,), labels: (n, N)."""
        tiled = np.tile(labels[labelled], (1, len(methods_of(final.fusions))))
        positives = Positives.of(final[labelled].methods, tiled)
        moments = of_fusions(final.fusions, lambda name: FinalState.of(*final.columns(name)))
        return cls((positives, *moments, Moments.of(final.every)))

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
    def of(
        cls, final: FinalScores, labelled: NDArray[np.bool_], statistics: FinalStatistics
    ) -> DecisionStatistics:
        """Returns the state of one shard. statistics: merged. labelled: (n,)."""
        moments = statistics.moments
        counts = of_fusions(
            moments, lambda name: CountState.of(*final.columns(name), moments[name].standards)
        )
        return cls((Reached.of(final[labelled].methods, statistics.positives), *counts))

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
