"""The reduce phase: from stored scores to final scores and AP, in passes over the shards.

The state of each group is kept in storage; a second start resumes from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import ray

from sparc_dist import storage
from sparc_dist.core import (
    EmptyClass,
    Fusion,
    Method,
    Positives,
    PromptState,
    RankState,
    Reached,
    finish,
    needs_ranks,
    summarise,
)
from sparc_dist.core.average_precision import average_precision
from sparc_dist.pipeline.passes import Passes, ShardGroup, Watch, remote, total
from sparc_dist.pipeline.waiting import get_with_timeout
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import METHODS, STAGES, UnitShards, reduce_checkpoints
from sparc_dist.runs.fusion_file import write_fusion
from sparc_dist.runs.shards import final_table


@dataclass
class ReducePhase:
    """Reduces a unit.

    images: the number of scored images of each shard. key: a hash of all scores. limit: seconds
    without progress after which a pass fails.
    """

    shards: UnitShards
    bank: PromptBank
    method: Method
    images: Sequence[int]
    key: str
    limit: float

    def __post_init__(self) -> None:
        parts = [self.key, self.bank.sha256, asdict(self.method)]
        decisive = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        self.passes = Passes(self.images, self.limit, decisive)

    @property
    def retries(self) -> int:
        """The number of storage requests that had to be repeated."""
        return self.passes.retries

    def fit(self, watch: Watch) -> Any:
        """Passes 1 and 2: fits and saves the fusion; returns a reference to it."""
        mentions = self.bank.mentions
        prompts = self._merged(PROMPTS, watch, self.method)
        ranks = None
        if needs_ranks(self.method):
            ranks = self._merged(RANKS, watch, prompts, mentions, self.method)
        return remote(_finish).remote(prompts, ranks, self.bank, self.method, self.shards)

    def score(self, fusion: Any, watch: Watch) -> Any:
        """Pass 3: writes final scores; returns a reference to the scores of the positives."""
        return self._merged(FINAL, watch, fusion)

    def evaluate(self, positives: Any, empty_class: EmptyClass, watch: Watch) -> dict[str, Any]:
        """Pass 4: counts the images above each positive; returns AP per class and mAP."""
        reached = self._merged(REACHED, watch, positives)
        summary = remote(_summary).remote(positives, reached, self.bank.classes, empty_class)
        found: dict[str, Any] = get_with_timeout(summary, self.limit, "The last step of the mAP")
        return found

    def damaged(self) -> list[int]:
        """Returns the shards whose scores were changed after they were written."""
        parts = self.passes.each("comparing_hashes", _damaged, self.shards)
        return [shard for part in ray.get(parts) for shard in part]

    def _merged(self, step: Pass, watch: Watch, *arguments: Any) -> Any:
        """Runs a pass, or resumes it; returns a reference to the sum of its states."""
        return self.passes.merged(
            step.stage, watch, partial(_resumed, step, self.shards), *arguments
        )


@dataclass(frozen=True)
class Pass:
    """A pass over all shards: ``work`` returns a group's state and the hashes of its files."""

    stage: str
    kind: type[Any]
    work: Callable[..., tuple[Any, list[str]]]


def _resumed(step: Pass, shards: UnitShards, group: ShardGroup, *arguments: Any) -> Any:
    """Returns the state of a group: the one kept from an earlier start, or a new one."""
    url = shards.unit.state(step.stage, group.number)
    kept = reduce_checkpoints.load(url, group.key, step.kind)
    if kept is not None and _final_scores_intact(shards, group, kept[1]):
        return kept[0]
    state, hashes = step.work(shards, group, *arguments)
    reduce_checkpoints.save(url, group.key, state, hashes)
    return state


def _final_scores_intact(shards: UnitShards, group: ShardGroup, hashes: Sequence[str]) -> bool:
    """Whether the final scores that a pass wrote are unchanged."""
    return all(
        shards.has_final(shard, sha256) for shard, sha256 in zip(group.shards, hashes, strict=False)
    )


def _damaged(group: ShardGroup, shards: UnitShards) -> list[int]:
    return [shard for shard in group.shards if shards.damaged(shard)]


def _prompt_states(
    shards: UnitShards, group: ShardGroup, method: Method
) -> tuple[PromptState, list[str]]:
    return total(PromptState.of(shards.scores(i)[1], method) for i in group.shards), []


def _rank_states(
    shards: UnitShards, group: ShardGroup, prompts: PromptState, mentions: Any, method: Method
) -> tuple[RankState, list[str]]:
    parts = (
        RankState.of(shards.scores(i)[1], prompts.moments, mentions, method) for i in group.shards
    )
    return total(parts), []


def _finish(
    prompts: PromptState,
    ranks: RankState | None,
    bank: PromptBank,
    method: Method,
    shards: UnitShards,
) -> Fusion:
    fusion = finish(prompts, ranks, bank.mentions, method)
    write_fusion(shards.unit.fusion, fusion, bank.classes, bank.sha256)
    return fusion


def _final_scores(
    shards: UnitShards, group: ShardGroup, fusion: Fusion
) -> tuple[Positives, list[str]]:
    positives, hashes = [], []
    for shard in group.shards:
        ids, scores = shards.scores(shard)
        columns = [scores.singleton, *fusion.final(scores)]
        hashes.append(storage.write_table(shards.unit.final(shard), final_table(ids, columns)))
        # In float32, as stored: the AP is that of the files anyone can read.
        stored = np.concatenate(columns, axis=1).astype(np.float32)
        labelled, labels = shards.labels(shard, ids.to_pylist())
        tiled = np.tile(labels[labelled], (1, len(METHODS)))
        positives.append(Positives.of(stored[labelled], tiled))
    return total(positives), hashes


def _reached(
    shards: UnitShards, group: ShardGroup, positives: Positives
) -> tuple[Reached, list[str]]:
    written = reduce_checkpoints.load(
        shards.unit.state(FINAL.stage, group.number), group.key, FINAL.kind
    )
    hashes = written[1] if written else [""] * len(group.shards)

    def shard_state(shard: int, sha256: str) -> Reached:
        ids, scores = shards.final(shard, sha256)
        labelled, _ = shards.labels(shard, ids)
        return Reached.of(scores[labelled], positives)

    return total(map(shard_state, group.shards, hashes)), []


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
