"""The reduce phase: from stored scores to final scores and AP, shard by shard on Ray.

Each pass is a task per group of neighbouring shards. Groups, and the tree in which their states
are merged, depend on the number of shards alone, so the result does not depend on who worked.
A group's state is kept in storage, and a second start goes on from it. The driver holds references
only; a worker holds one shard and one state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import ray

from sparc_dist import states, storage
from sparc_dist.core.average_precision import (
    EmptyClass,
    Positives,
    Reached,
    average_precision,
    summarise,
)
from sparc_dist.core.fusion import Fusion, Method
from sparc_dist.core.sparc import PromptState, RankState, finish, needs_ranks
from sparc_dist.filesystems import retries
from sparc_dist.fusion_file import write_fusion
from sparc_dist.layout import STAGES, shard_groups
from sparc_dist.pipeline.waiting import result, stalled
from sparc_dist.prompts.bank import PromptBank
from sparc_dist.shards import METHODS, UnitShards, final_table
from sparc_dist.states import State

FAN_IN = 16

#: Called with the name of a pass when it starts, and with the images of each finished group.
Watch = Callable[[str, int], None]


@dataclass
class ReducePhase:
    """What it takes to reduce a unit.

    images: the number of scored images of each shard. key: a hash of all scores. limit: seconds
    without progress after which it gives up. retries: how often a store had to be asked again.
    """

    shards: UnitShards
    bank: PromptBank
    method: Method
    images: Sequence[int]
    key: str
    limit: float
    retries: int = 0

    def fit(self, watch: Watch) -> Any:
        """Passes 1 and 2: the fitted fusion, saved; gives a reference to it."""
        mentions = self.bank.mentions
        prompts = self._merged(PROMPTS, watch, self.method)
        ranks = None
        if needs_ranks(self.method):
            ranks = self._merged(RANKS, watch, prompts, mentions, self.method)
        return _remote(_finish).remote(prompts, ranks, self.bank, self.method, self.shards)

    def score(self, fusion: Any, watch: Watch) -> Any:
        """Pass 3: final scores to storage; gives a reference to the positives' scores."""
        return self._merged(FINAL, watch, fusion)

    def evaluate(self, positives: Any, empty_class: EmptyClass, watch: Watch) -> dict[str, Any]:
        """Count what reaches the positives: AP per class and mAP of the three methods."""
        reached = self._merged(REACHED, watch, positives)
        summary = _remote(_summary).remote(positives, reached, self.bank.classes, empty_class)
        found: dict[str, Any] = result(summary, self.limit, "The last step of the mAP")
        return found

    def damaged(self) -> list[int]:
        """The shards whose scores are not those that were written."""
        groups = _groups(len(self.images), self._full_key())
        parts = [_remote(_damaged).remote(self.shards, group) for group in groups]
        found = [ray.get(part) for part in self._finished(parts, "comparing_hashes")]
        return [shard for part in found for shard in part]

    def _full_key(self) -> str:
        """A hash of all that decides a state."""
        parts = [self.key, self.bank.sha256, asdict(self.method)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _merged(self, step: Pass, watch: Watch, *arguments: Any) -> Any:
        """Do a pass over every group of shards and merge the states: a reference to the sum."""
        watch(step.stage, 0)
        task, merge = _remote(_do, returns=2), _remote(_merge)
        groups = _groups(len(self.images), self._full_key())
        jobs = [task.remote(step, self.shards, group, *arguments) for group in groups]
        sizes = {
            facts: sum(self.images[shard] for shard in group.shards)
            for (_, facts), group in zip(jobs, groups, strict=True)
        }
        for facts in self._finished([facts for _, facts in jobs], step.stage):
            self.retries += ray.get(facts)  # raises what the task raised
            if sizes[facts]:  # a group without one good image; 0 would begin the pass anew
                watch(step.stage, sizes[facts])
        merged = [state for state, _ in jobs]
        while len(merged) > 1:
            chunks = [merged[i : i + FAN_IN] for i in range(0, len(merged), FAN_IN)]
            merged = [merge.remote(*chunk) for chunk in chunks]
        # Here the sum is waited for without bringing it to the driver.
        result(_remote(_exists).remote(merged[0]), self.limit, f"Merging {step.stage}")
        return merged[0]

    def _finished(self, waiting: list[Any], stage: str) -> Iterator[Any]:
        """The references as they come to an end; none is left behind when one fails."""
        try:
            while waiting:
                done, waiting = ray.wait(waiting, timeout=self.limit)
                if not done:
                    raise stalled(f"The pass {stage.replace('_', ' ')}", self.limit)
                yield done[0]
        finally:
            for reference in waiting:
                ray.cancel(reference)


@dataclass(frozen=True)
class Group:
    """Neighbouring shards. key: a hash of all that decides its states."""

    number: int
    shards: range
    key: str


@dataclass(frozen=True)
class Pass:
    """A look at every shard: ``work`` gives the state of a group and the hashes of its files."""

    stage: str
    kind: type[Any]
    work: Callable[..., tuple[Any, list[str]]]


def _do(step: Pass, shards: UnitShards, group: Group, *arguments: Any) -> tuple[State, int]:
    """A pass over a group, or what is kept of an earlier one; and how often a store was retried."""
    before = retries()
    url = shards.unit.state(step.stage, group.number)
    kept = states.load(url, group.key, step.kind)
    if kept is not None and _are_there(shards, group, kept[1]):
        state = kept[0]
    else:
        state, hashes = step.work(shards, group, *arguments)
        states.save(url, group.key, state, hashes)
    return state, retries() - before


def _are_there(shards: UnitShards, group: Group, hashes: Sequence[str]) -> bool:
    """Whether the final scores that a pass wrote are still as it wrote them."""
    return all(
        shards.has_final(shard, sha256) for shard, sha256 in zip(group.shards, hashes, strict=False)
    )


def _remote(work: Callable[..., Any], returns: int = 1) -> Any:
    """A Ray task with one CPU, and so one BLAS thread: its sums are the same everywhere."""
    return ray.remote(num_cpus=1, num_returns=returns)(work)


def _groups(shards: int, key: str) -> list[Group]:
    """The groups of so many shards."""
    return [
        Group(number, part, f"{key}:{part.start}:{part.stop}")
        for number, part in enumerate(shard_groups(shards))
    ]


def _exists(state: Any) -> bool:
    return state is not None


def _merge(*states: Any) -> Any:
    return _total(states)


def _total(states: Iterable[Any]) -> Any:
    """The sum of states, each made only when the one before has been added."""
    return reduce(add, states)


def _damaged(shards: UnitShards, group: Group) -> list[int]:
    return [shard for shard in group.shards if shards.damaged(shard)]


def _prompt_states(
    shards: UnitShards, group: Group, method: Method
) -> tuple[PromptState, list[str]]:
    return _total(PromptState.of(shards.scores(i)[1], method) for i in group.shards), []


def _rank_states(
    shards: UnitShards, group: Group, prompts: PromptState, mentions: Any, method: Method
) -> tuple[RankState, list[str]]:
    parts = (
        RankState.of(shards.scores(i)[1], prompts.moments, mentions, method) for i in group.shards
    )
    return _total(parts), []


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


def _final_scores(shards: UnitShards, group: Group, fusion: Fusion) -> tuple[Positives, list[str]]:
    positives, hashes = [], []
    for shard in group.shards:
        ids, scores = shards.scores(shard)
        columns = [scores.singleton, *fusion.final(scores)]
        hashes.append(storage.write_table(shards.unit.final(shard), final_table(ids, columns)))
        # As float32, as they are stored: the AP is that of the files anyone can read.
        stored = np.concatenate(columns, axis=1).astype(np.float32)
        labelled, labels = shards.labels(shard, ids.to_pylist())
        tiled = np.tile(labels[labelled], (1, len(METHODS)))
        positives.append(Positives.of(stored[labelled], tiled))
    return _total(positives), hashes


def _reached(shards: UnitShards, group: Group, positives: Positives) -> tuple[Reached, list[str]]:
    made = states.load(shards.unit.state(FINAL.stage, group.number), group.key, FINAL.kind)
    hashes = made[1] if made else [""] * len(group.shards)

    def shard_state(shard: int, sha256: str) -> Reached:
        ids, scores = shards.final(shard, sha256)
        labelled, _ = shards.labels(shard, ids)
        return Reached.of(scores[labelled], positives)

    return _total(map(shard_state, group.shards, hashes)), []


def _summary(
    positives: Positives, reached: Reached, classes: Sequence[str], empty_class: EmptyClass
) -> dict[str, Any]:
    aps = average_precision(positives, reached)
    width = len(classes)
    return {
        name: summarise(aps[i * width : (i + 1) * width], classes, empty_class)
        for i, name in enumerate(METHODS)
    }


PROMPTS = Pass(STAGES[0], PromptState, _prompt_states)
RANKS = Pass(STAGES[1], RankState, _rank_states)
FINAL = Pass(STAGES[2], Positives, _final_scores)
REACHED = Pass(STAGES[3], Reached, _reached)
