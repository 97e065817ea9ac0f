"""The reduction of a unit: SPARC, duo, average precision and decisions share every pass.

pass 1   prompt statistics     the moments of every prompt
pass 2   rank statistics       scatters of ranks (SPARC), products of views (duo)
pass 3   final scores          and with them the positives' scores and the moments of final scores
pass 4   decision statistics   counts of standardised scores, images above each positive
pass 5   labels                and with them how well they agree with known labels

A pass is a state per shard, and states add up. Columns are the N classes, then B background
classes, which are scored like classes and never reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.average_precision import (
    EmptyClass,
    Positives,
    Reached,
    average_precision,
    summarise,
)
from sparc_dist.core.debias import Scores
from sparc_dist.core.decision_metrics import Agreement, oracle
from sparc_dist.core.decisions import Decision
from sparc_dist.core.duo import (
    Duo,
    DuoOptions,
    DuoPromptState,
    DuoViewState,
    finish_duo,
)
from sparc_dist.core.final_scores import CountState, FinalState
from sparc_dist.core.fusion import Fusion, Method
from sparc_dist.core.order_statistics import Mentions
from sparc_dist.core.sparc import PromptState, RankState, finish, needs_ranks

#: The methods that are evaluated, and those of them that decide.
METHODS = ("zsclip", "debiased", "sparc", "duo")
DECIDING = ("sparc", "duo")

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Joint:
    """States that are gathered together. kinds: their types, in order."""

    parts: tuple[Any, ...]
    kinds: ClassVar[tuple[type[Any], ...]] = ()

    def arrays(self) -> list[NDArray[Any]]:
        """Returns the states as arrays, to be stored in a file."""
        parts = [part.arrays() for part in self.parts]
        return [np.array([len(part) for part in parts]), *(a for part in parts for a in part)]

    @classmethod
    def from_arrays(cls, arrays: Sequence[NDArray[Any]]) -> Self:
        """Restores states from what ``arrays`` returned."""
        lengths, *rest = arrays
        ends = np.cumsum(lengths).tolist()
        pieces = [rest[end - size : end] for end, size in zip(ends, lengths.tolist(), strict=True)]
        return cls(tuple(k.from_arrays(piece) for k, piece in zip(cls.kinds, pieces, strict=True)))

    def __add__(self, other: Self) -> Self:
        return type(self)(tuple(map(add, self.parts, other.parts)))


class PromptStatistics(Joint):
    """The state of pass 1: for SPARC, for duo."""

    kinds = (PromptState, DuoPromptState)

    @classmethod
    def of(cls, scores: Scores, method: Method) -> PromptStatistics:
        """Returns the state of one shard."""
        return cls((PromptState.of(scores, method), DuoPromptState.of(scores)))


class RankStatistics(Joint):
    """The state of pass 2: for SPARC, for duo."""

    kinds = (RankState, DuoViewState)

    @classmethod
    def of(
        cls, scores: Scores, prompts: PromptStatistics, mentions: Mentions, method: Method
    ) -> RankStatistics:
        """Returns the state of one shard; a strategy that needs no scatters is not sorted for."""
        sparc, duo = prompts.parts
        ranks = RankState(())
        if needs_ranks(method):
            ranks = RankState.of(scores, sparc.moments, mentions, method)
        views = duo.views(mentions, DuoOptions(method.shrinkage))
        return cls((ranks, DuoViewState.of(scores, views)))


@dataclass(frozen=True)
class Fusions:
    """Both fitted models of N classes; they score N + B columns."""

    sparc: Fusion
    duo: Duo
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
        options = DuoOptions(method.shrinkage)
        views = duo_prompts.views(mentions, options)
        return cls(
            finish(sparc_prompts, scatters, mentions, method),
            finish_duo(duo_prompts, duo_ranks, views, options),
            classes,
        )

    @property
    def notes(self) -> list[str]:
        """What a user should know about degenerate data, each once, and what is SPARC's alone."""
        alone = [note for note in self.sparc.notes if note not in self.duo.notes]
        return [*self.duo.notes, *(f"SPARC: {note}" for note in alone)]

    def final(self, scores: Scores) -> FinalScores:
        """Returns the final scores of n images."""
        n = self.classes
        debiased, sparc = self.sparc.final(scores)
        total, duo = self.duo.final(scores)
        parts = (scores.singleton[:, :n], debiased[:, :n], sparc[:, :n], duo[:, :n])
        return FinalScores(*(part.astype(np.float32) for part in (*parts, sparc[:, n:], total)))


@dataclass(frozen=True)
class FinalScores:
    """The final scores of n images, in float32 as they are stored.

    zsclip, debiased, sparc, duo: (n, N). Decisions also need sparc_background: (n, B), and
    duo_total: (n, N + B), duo before the rival is taken off.
    """

    zsclip: Float32
    debiased: Float32
    sparc: Float32
    duo: Float32
    sparc_background: Float32
    duo_total: Float32

    def __len__(self) -> int:
        return len(self.zsclip)

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> FinalScores:
        return FinalScores(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @property
    def methods(self) -> Float32:
        """The scores of all methods side by side (n, 4 N)."""
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
    """The state of pass 3: the positives of all methods, and moments for both that decide."""

    kinds = (Positives, FinalState, FinalState)

    @classmethod
    def of(
        cls, final: FinalScores, labelled: NDArray[np.bool_], labels: NDArray[np.bool_]
    ) -> FinalStatistics:
        """Returns the state of one shard. labelled: (n,), labels: (n, N)."""
        tiled = np.tile(labels[labelled], (1, len(METHODS)))
        positives = Positives.of(final[labelled].methods, tiled)
        return cls((positives, *(FinalState.of(*final.columns(name)) for name in DECIDING)))

    @property
    def positives(self) -> Positives:
        """The scores of positives (4 N columns)."""
        found: Positives = self.parts[0]
        return found

    @property
    def moments(self) -> Mapping[str, FinalState]:
        """The moments of each method that decides."""
        return dict(zip(DECIDING, self.parts[1:], strict=True))


class DecisionStatistics(Joint):
    """The state of pass 4: images above each positive, and counts for both that decide."""

    kinds = (Reached, CountState, CountState)

    @classmethod
    def of(
        cls, final: FinalScores, labelled: NDArray[np.bool_], statistics: FinalStatistics
    ) -> DecisionStatistics:
        """Returns the state of one shard. statistics: merged. labelled: (n,)."""
        moments = statistics.moments
        counts = (
            CountState.of(*final.columns(name), moments[name].standards()) for name in DECIDING
        )
        return cls((Reached.of(final[labelled].methods, statistics.positives), *counts))

    @property
    def reached(self) -> Reached:
        """How many images score at least as high as each positive (4 N columns)."""
        found: Reached = self.parts[0]
        return found

    @property
    def counts(self) -> Mapping[str, CountState]:
        """The counts of each method that decides."""
        return dict(zip(DECIDING, self.parts[1:], strict=True))


class LabelStatistics(Joint):
    """The state of pass 5: how well the decisions of both methods agree with known labels."""

    kinds = (Agreement, Agreement)

    @classmethod
    def of(
        cls, final: FinalScores, labels: NDArray[np.bool_], decisions: Mapping[str, Decision]
    ) -> LabelStatistics:
        """Returns the state of one shard, of whose images all have labels (n, N)."""
        judged = (decisions[name].judge(*final.columns(name)) for name in DECIDING)
        return cls(tuple(Agreement.of(*found, labels) for found in judged))

    @property
    def agreement(self) -> Mapping[str, Agreement]:
        """The agreement of each method that decides."""
        return dict(zip(DECIDING, self.parts, strict=True))


def fit_fusions(
    shards: Callable[[], Iterable[Scores]], mentions: Mentions, classes: int, method: Method
) -> Fusions:
    """Fits on shards in this process; ``shards`` returns a new iterator for each pass."""
    prompts = reduce(add, (PromptStatistics.of(shard, method) for shard in shards()))
    ranks = reduce(add, (RankStatistics.of(s, prompts, mentions, method) for s in shards()))
    return Fusions.fit(prompts, ranks, mentions, classes, method)


def evaluate(
    statistics: FinalStatistics,
    counts: DecisionStatistics,
    agreement: LabelStatistics,
    classes: Sequence[str],
    empty_class: EmptyClass,
) -> dict[str, Any]:
    """Returns the entries of metrics.json: AP and mAP of all methods, decisions of two."""
    positives, reached, width = statistics.positives, counts.reached, len(classes)
    aps = average_precision(positives, reached)
    found: dict[str, Any] = {}
    for number, name in enumerate(METHODS):
        own = slice(number * width, (number + 1) * width)
        found[name] = dict(summarise(aps[own], classes, empty_class))
        if name in DECIDING:
            best = oracle(Positives(positives.scores[own]), Reached(reached.counts[own]))
            found[name]["decisions"] = agreement.agreement[name].metrics() | best
    return found
