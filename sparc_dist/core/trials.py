"""Trials: many ways to debias and fuse the same scores, all of them in the same passes.

The passes are SPARC's own (see ``core.sparc``). What two trials have in common is computed once:
the debiased scores of an image, the sorted scores of a class, the scatter of its ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.debias import Scores, debias_compound, debias_prompts, debias_singleton
from sparc_dist.core.fusion import Method, merge, rank_weights
from sparc_dist.core.moments import Floats, Moments, Scatter
from sparc_dist.core.order_statistics import Mentions, falling
from sparc_dist.core.sparc import needs_ranks

#: The compound prompts that a run was scored with.
STORED = "stored"
#: Of scores that are not debiased, and of the moments of compound prompts.
RAW, COMPOUND = "raw", "compound"


@dataclass(frozen=True)
class Trial:
    """One way to come to final scores.

    prompts: the name of a set of compound prompts. debias: whether scores are debiased at all, or
    fused raw.
    """

    method: Method = field(default_factory=Method)
    prompts: str = STORED
    debias: bool = True

    @property
    def debiasing(self) -> str:
        """Of trials with the same one the debiased scores are the same."""
        return self.method.image_debias if self.debias else RAW


#: The three columns of every report.
ZSCLIP = Trial(Method("singleton", merge=False), debias=False)
DEBIASED = Trial(Method("singleton", merge=False))
SPARC = Trial()


@dataclass(frozen=True)
class Each:
    """States by name, each merged with its like."""

    states: Mapping[Any, Any]

    def __add__(self, other: Each) -> Each:
        return Each({name: add(own, other.states[name]) for name, own in self.states.items()})

    def __getitem__(self, name: Any) -> Any:
        return self.states[name]


@dataclass(frozen=True)
class Trials:
    """Trials on the same scores.

    mentions: for each set of prompts, for each class the columns of the compound scores that are
    of that set and mention the class.
    """

    trials: tuple[Trial, ...]
    mentions: Mapping[str, Mentions]

    def moments(self, scores: Scores) -> Each:
        """Pass 1: the moments of compound prompts, and of singletons under every debiasing."""
        modes = {trial.debiasing for trial in self.trials if trial.debias}
        found = {mode: Moments.of(_singleton(scores, mode)) for mode in sorted(modes)}
        return Each({**found, COMPOUND: Moments.of(debias_compound(scores))} if found else {})

    def scatters(self, scores: Scores, moments: Each) -> Each:
        """Pass 2: the scatter of each class's ranks, where a trial's weights come from it."""
        ranked = [trial for trial in self.trials if needs_ranks(trial.method)]
        return Each(
            {
                (trials[0].debiasing, trials[0].prompts, index): Scatter.of(rows)
                for trials, index, rows in self._ranks(scores, moments, ranked)
            }
        )

    def weights(self, scatters: Each) -> list[list[Floats]]:
        """The weights of each trial: for each class (1 + m_i,)."""
        return [
            [
                rank_weights(
                    trial.method,
                    len(columns),
                    scatters[trial.debiasing, trial.prompts, index]
                    if needs_ranks(trial.method)
                    else None,
                )
                for index, columns in enumerate(self.mentions[trial.prompts])
            ]
            for trial in self.trials
        ]

    def final(
        self, scores: Scores, moments: Each, weights: list[list[Floats]]
    ) -> NDArray[np.float32]:
        """Pass 3: the final scores of every trial (n, trials, N), as float32 like stored ones."""
        final = np.empty((len(scores), len(self.trials), scores.singleton.shape[1]), np.float32)
        number = {trial: number for number, trial in enumerate(self.trials)}
        for trials, index, rows in self._ranks(scores, moments, self.trials):
            own = [number[trial] for trial in trials]
            fused = rows @ np.stack([weights[member][index] for member in own], axis=1)
            merged = np.array([trial.method.merge for trial in trials])
            final[:, own, index] = np.where(merged, merge(rows[:, :1], fused), fused)
        return final

    def _ranks(
        self, scores: Scores, moments: Each, trials: Sequence[Trial]
    ) -> Iterator[tuple[list[Trial], int, Floats]]:
        """For trials that share them, and for each class: its vectors (n, 1 + m_i).

        Sorting is most of the work, and the same however the singleton is debiased.
        """
        members: dict[tuple[bool, str], dict[str, list[Trial]]] = {}
        for trial in trials:
            modes = members.setdefault((trial.debias, trial.prompts), {})
            modes.setdefault(trial.debiasing, []).append(trial)
        singleton = {
            mode: _standardised(_singleton(scores, mode), mode, moments)
            for mode in {trial.debiasing for trial in trials}
        }
        compound = {False: scores.compound}
        if any(trial.debias for trial in trials):
            compound[True] = _standardised(debias_compound(scores), COMPOUND, moments)
        for (debias, prompts), modes in members.items():
            for index, columns in enumerate(self.mentions[prompts]):
                ranked = falling(compound[debias], columns)
                for mode, sharing in modes.items():
                    yield sharing, index, np.column_stack([singleton[mode][:, index], ranked])


def _singleton(scores: Scores, mode: str) -> Floats:
    """Singleton scores (n, N) after the image-level step."""
    return debias_singleton(scores, "none" if mode == RAW else mode)  # type: ignore[arg-type]


def _standardised(values: Floats, name: str, moments: Each) -> Floats:
    """After the prompt-level step too, unless they are to stay raw."""
    return values if name == RAW else debias_prompts(values, moments[name])
