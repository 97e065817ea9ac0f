"""The reduce phase: from stored scores to final scores and AP, shard by shard on Ray.

Each pass is a task per group of neighbouring shards. Groups, and the tree in which their states
are merged, depend on the number of shards alone, so the result does not depend on who worked.
The driver holds references only; a worker holds one shard and one state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import ray

from sparc_dist import storage
from sparc_dist.core.average_precision import (
    EmptyClass,
    Positives,
    Reached,
    average_precision,
    summarise,
)
from sparc_dist.core.fusion import Fusion, Method
from sparc_dist.core.sparc import PromptState, RankState, finish, needs_ranks
from sparc_dist.fusion_file import write_fusion
from sparc_dist.prompts.bank import PromptBank
from sparc_dist.shards import METHODS, UnitShards, final_table

#: Enough to keep a cluster busy; their states are all held until they are merged.
MOST_GROUPS = 64
FAN_IN = 16

#: Called with the name of a pass when it starts, and with the images of each finished group.
Watch = Callable[[str, int], None]


@dataclass(frozen=True)
class ReducePhase:
    """What it takes to reduce a unit. ``images``: the number of scored images of each shard."""

    shards: UnitShards
    bank: PromptBank
    method: Method
    images: Sequence[int]

    def fit(self, watch: Watch) -> Any:
        """Passes 1 and 2: the fitted fusion, saved; gives a reference to it."""
        mentions = self.bank.mentions
        prompts = self._merged(_prompt_states, watch, "prompt_statistics", self.method)
        ranks = None
        if needs_ranks(self.method):
            arguments = (prompts, mentions, self.method)
            ranks = self._merged(_rank_states, watch, "rank_statistics", *arguments)
        return _remote(_finish).remote(prompts, ranks, self.bank, self.method, self.shards)

    def score(self, fusion: Any, watch: Watch) -> Any:
        """Pass 3: final scores to storage; gives a reference to the positives' scores."""
        return self._merged(_final_scores, watch, "final_scores", fusion)

    def evaluate(self, positives: Any, empty_class: EmptyClass, watch: Watch) -> dict[str, Any]:
        """Count what reaches the positives: AP per class and mAP of the three methods."""
        reached = self._merged(_reached, watch, "average_precision", positives)
        summary: dict[str, Any] = ray.get(
            _remote(_summary).remote(positives, reached, self.bank.classes, empty_class)
        )
        return summary

    def _merged(self, work: Callable[..., Any], watch: Watch, stage: str, *arguments: Any) -> Any:
        """Do ``work`` on every group of shards and merge the states: a reference to the sum."""
        watch(stage, 0)
        groups = _groups(len(self.images))
        task, merge = _remote(work), _remote(_merge)
        states = [task.remote(self.shards, group, *arguments) for group in groups]
        sizes = {
            state: sum(self.images[shard] for shard in group)
            for state, group in zip(states, groups, strict=True)
        }
        waiting = list(states)
        while waiting:
            (done, *_), waiting = ray.wait(waiting)
            watch(stage, sizes[done])
        while len(states) > 1:
            chunks = [states[i : i + FAN_IN] for i in range(0, len(states), FAN_IN)]
            states = [merge.remote(*chunk) for chunk in chunks]
        # A failed task counts as done above; the sum cannot be had without it, and here it is
        # asked for without bringing it to the driver.
        ray.get(_remote(_exists).remote(states[0]))
        return states[0]


def _remote(work: Callable[..., Any]) -> Any:
    """A Ray task with one CPU, and so one BLAS thread: its sums are the same everywhere."""
    return ray.remote(num_cpus=1)(work)


def _groups(shards: int) -> list[range]:
    """Neighbouring shards in at most MOST_GROUPS groups."""
    size = -(-shards // MOST_GROUPS)
    return [range(start, min(start + size, shards)) for start in range(0, shards, size)]


def _exists(state: Any) -> bool:
    return state is not None


def _merge(*states: Any) -> Any:
    return _total(states)


def _total(states: Iterable[Any]) -> Any:
    """The sum of states, each made only when the one before has been added."""
    return reduce(add, states)


def _prompt_states(shards: UnitShards, group: range, method: Method) -> PromptState:
    state: PromptState = _total(PromptState.of(shards.scores(i)[1], method) for i in group)
    return state


def _rank_states(
    shards: UnitShards, group: range, prompts: PromptState, mentions: Any, method: Method
) -> RankState:
    state: RankState = _total(
        RankState.of(shards.scores(i)[1], prompts.moments, mentions, method) for i in group
    )
    return state


def _finish(
    prompts: PromptState,
    ranks: RankState | None,
    bank: PromptBank,
    method: Method,
    shards: UnitShards,
) -> Fusion:
    fusion = finish(prompts, ranks, bank.mentions, method)
    write_fusion(shards.unit.fusion, fusion, bank)
    return fusion


def _final_scores(shards: UnitShards, group: range, fusion: Fusion) -> Positives:
    positives = []
    for shard in group:
        ids, scores = shards.scores(shard)
        columns = [scores.singleton, *fusion.final(scores)]
        storage.write_table(shards.unit.final(shard), final_table(ids, columns))
        # As float32, as they are stored: the AP is that of the files anyone can read.
        stored = np.concatenate(columns, axis=1).astype(np.float32)
        labelled, labels = shards.labels(shard, ids.to_pylist())
        tiled = np.tile(labels[labelled], (1, len(METHODS)))
        positives.append(Positives.of(stored[labelled], tiled))
    state: Positives = _total(positives)
    return state


def _reached(shards: UnitShards, group: range, positives: Positives) -> Reached:
    def shard_state(shard: int) -> Reached:
        ids, scores = shards.final(shard)
        labelled, _ = shards.labels(shard, ids)
        return Reached.of(scores[labelled], positives)

    state: Reached = _total(shard_state(shard) for shard in group)
    return state


def _summary(
    positives: Positives, reached: Reached, classes: Sequence[str], empty_class: EmptyClass
) -> dict[str, Any]:
    aps = average_precision(positives, reached)
    width = len(classes)
    return {
        name: summarise(aps[i * width : (i + 1) * width], classes, empty_class)
        for i, name in enumerate(METHODS)
    }
