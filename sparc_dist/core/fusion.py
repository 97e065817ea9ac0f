"""What a fusion is: a model from the scores of images to their final scores, fitted in passes.

To add one, derive from ``Fusion`` in a module of its own and list the class in ``core.fusions``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.debias import Scores
from sparc_dist.core.method import Method
from sparc_dist.core.moments import Floats
from sparc_dist.core.order_statistics import Mentions
from sparc_dist.core.states import State

_Float = TypeVar("_Float", bound=np.floating[Any])

#: Scores of images before and after the rival is taken off, both (n, N + B).
Totals = tuple[NDArray[np.floating], NDArray[np.floating]]
#: The stage and the type of state of each pass.
Passes = tuple[tuple[str, type[State]], ...]
#: What a labeler stores of a fusion, by name: as tensors, and as JSON.
Arrays = dict[str, NDArray[Any]]
Facts = dict[str, Any]
#: For a fusion whose final scores need those of no other.
NO_BASE: Mapping[str, Totals] = MappingProxyType({})


@dataclass(frozen=True)
class Given:
    """What a fusion is fitted with.

    mentions: the compound prompts of each of the N + B columns. classes: N. base: the fitted
    fusions that it builds on. states: the merged states of its passes so far.
    """

    method: Method
    mentions: Mentions
    classes: int
    base: Mapping[str, Fusion] = field(default_factory=dict)
    states: Sequence[Any] = ()


@dataclass(frozen=True)
class Fusion(ABC):
    """A fusion: the class says what it needs, an instance is the fitted model.

    name: in files and configs. title: in tables.
    part: what final scores keep beside the N columns that are reported, because decisions need it:
    the ``background`` columns, or the ``total`` of all columns before the rival is taken off. None:
    it is a baseline, which every unit has, and which is evaluated and never decides.
    builds_on: the fusions that are fitted before it. needs_embeddings: whether its passes and
    ``final`` use the embeddings of images.
    passes: the stage and the type of state of each of its own passes. Those of several fusions
    share the reading of shards; the first of them in the dictionary names the stage.
    totals: the fusions whose totals prevalences are estimated from, their mean if there are
    several; by default its own.
    prefix: of its arrays in a labeler. weight_names: of its column weights; without names, they
    belong to the singleton and the ranks of compounds.

    Of a model, mentions: the compound prompts of each column. notes: what a user should know about
    degenerate data.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    part: ClassVar[Literal["background", "total"] | None] = None
    builds_on: ClassVar[tuple[str, ...]] = ()
    needs_embeddings: ClassVar[bool] = False
    passes: ClassVar[Passes] = ()
    totals: ClassVar[tuple[str, ...]] = ()
    prefix: ClassVar[str] = ""
    weight_names: ClassVar[tuple[str, ...]] = ()

    mentions: Mentions
    notes: Sequence[str]

    @classmethod
    def gather(cls, given: Given) -> Callable[[Scores], State] | None:
        """Returns the function that makes the state of a shard in its next pass.

        What all shards share is prepared once. None: it has nothing to gather.
        """
        raise TypeError(f"{cls.name} has passes and does not gather")

    @classmethod
    def fit(cls, given: Given) -> Self:
        """Returns the fitted model for the merged states; by default there is nothing to fit."""
        return cls(given.mentions, ())

    @abstractmethod
    def final(self, scores: Scores, base: Mapping[str, Totals] = NO_BASE) -> Totals:
        """Returns the scores before and after the rival is taken off, both (n, N + B).

        base: those of the fusions that it builds on.
        """

    def arrays(self) -> Arrays:
        """Returns what a labeler stores of it."""
        return {}

    def facts(self) -> Facts:
        """Returns what a labeler stores of it as JSON, beside options and notes."""
        return {}

    @classmethod
    def restored(cls, given: Given, arrays: Arrays, facts: Facts) -> Self:
        """Returns the model of what ``arrays`` and ``facts`` returned.

        facts: also has ``notes``, and ``images``, the number of images of the fit.
        """
        return cls(given.mentions, facts["notes"])

    def debiased(self, scores: Scores) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Returns the singleton (n, N + B) and compound scores (n, P) that its weights are for."""
        return scores.singleton, scores.compound

    def prompt_weights(self, compound: NDArray[np.floating], column: int) -> Floats:
        """Returns the weights (n, m_i) of a column's prompts in images; compound: debiased (n, P).

        A weight times a debiased score is what the prompt adds to the final score; by default 0.
        """
        return np.zeros((len(compound), len(self.mentions[column])))

    def column_weights(self, column: int) -> Floats:
        """Returns the weights of a column; the first is that of its debiased singleton."""
        return np.ones(1)

    def contributions(self, scores: Scores, columns: Iterable[int]) -> list[Floats]:
        """Returns, per column, what each of its m_i prompts adds to its final score (n, m_i).

        The rest of a score is the column's singleton, and the rival if there is one.
        """
        compound = self.debiased(scores)[1]
        return [
            compound[:, self.mentions[column]] * self.prompt_weights(compound, column)
            for column in columns
        ]


def without_rival(total: NDArray[_Float], share: float) -> NDArray[_Float]:
    """Returns scores (n, N + B) without a share of the highest score of their image."""
    return np.asarray(total - share * total.max(axis=1, keepdims=True))
