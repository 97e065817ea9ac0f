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

from sparc_dist.core.debias import Scores, debias_images, debias_prompts
from sparc_dist.core.fusion import Method, merge, rank_weights
from sparc_dist.core.moments import Floats, Moments, Scatter
from sparc_dist.core.order_statistics import Mentions, order_statistics
from sparc_dist.core.sparc import needs_ranks

#: The compound prompts that a run was scored with.
STORED = "stored"


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
        return self.method.image_debias if self.debias else "raw"


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
        """Pass 1: of every debiasing the moments of all N + P prompts."""
        return Each({mode: Moments.of(_by_image(scores, mode)) for mode in self._debiasings()})

    def scatters(self, scores: Scores, moments: Each) -> Each:
        """Pass 2: the scatter of each class's ranks, where a trial's weights come from it."""
        ranked = [trial for trial in self.trials if needs_ranks(trial.method)]
        found: dict[tuple[str, str, int], Scatter] = {}
        for (mode, prompts), _, ranks in self._ranks(scores, moments, ranked):
            found |= {(mode, prompts, i): Scatter.of(rows) for i, rows in enumerate(ranks)}
        return Each(found)

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
        for _, members, ranks in self._ranks(scores, moments, self.trials):
            merged = np.array([self.trials[index].method.merge for index in members])
            for i, rows in enumerate(ranks):
                fused = rows @ np.stack([weights[index][i] for index in members], axis=1)
                final[:, members, i] = np.where(merged, merge(rows[:, :1], fused), fused)
        return final

    def _debiasings(self) -> Iterator[str]:
        """Those that need moments."""
        yield from {trial.debiasing: None for trial in self.trials if trial.debias}

    def _ranks(
        self, scores: Scores, moments: Each, trials: Sequence[Trial]
    ) -> Iterator[tuple[tuple[str, str], list[int], Iterator[Floats]]]:
        """For each debiasing and set of prompts: its trials' numbers, each class's vectors."""
        members: dict[str, dict[str, list[int]]] = {}
        for trial in trials:
            sets = members.setdefault(trial.debiasing, {})
            sets.setdefault(trial.prompts, []).append(self.trials.index(trial))
        for mode, sets in members.items():
            debiased = _by_image(scores, mode)
            if mode != "raw":
                debiased = debias_prompts(debiased, moments[mode])
            for prompts, numbers in sets.items():
                yield (mode, prompts), numbers, order_statistics(debiased, self.mentions[prompts])


def _by_image(scores: Scores, mode: str) -> Floats:
    """Singleton and compound scores side by side (n, N + P), after the image-level step."""
    if mode == "raw":
        return np.concatenate([scores.singleton, scores.compound], axis=1, dtype=np.float64)
    return debias_images(scores, mode)  # type: ignore[arg-type]
