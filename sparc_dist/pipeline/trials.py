"""Trials on Ray: every way to fuse a unit's scores in the same four passes over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from sparc_dist.core.average_precision import Positives, Reached, average_precision
from sparc_dist.core.debias import Scores
from sparc_dist.core.moments import Floats
from sparc_dist.core.trials import Each, Trial, Trials
from sparc_dist.datasets.images import chunks
from sparc_dist.pipeline.looks import Looks
from sparc_dist.pipeline.passes import Group, remote, total
from sparc_dist.pipeline.unit import Unit
from sparc_dist.pipeline.waiting import result
from sparc_dist.shards import UnitShards

#: Images at a time: all trials together make many final scores of each.
ROWS = 512
#: Slices whose final scores, and nothing else, are kept to be ranked together.
SLICES = 8


def try_all(unit: Unit, trials: Trials, looks: Any) -> dict[Trial, list[float | None]]:
    """The AP of every class under every trial. looks: a reference to ``Looks``.

    A worker holds the scores of all positives under all trials: 4 bytes × labels × trials.
    """
    passes, watch, shards = unit.passes(), unit.stages.watch, unit.shards
    shared = (ray.put(trials), looks)  # once, and not with every task
    moments = passes.merged("trials_moments", watch, partial(_moments, shards), *shared)
    scatters = passes.merged("trials_scatters", watch, partial(_scatters, shards), *shared, moments)
    fitted = (*shared, moments, remote(Trials.weights).remote(shared[0], scatters))
    positives = passes.merged("trials_positives", watch, partial(_positives, shards), *fitted)
    counted = (*fitted, positives)
    reached = passes.merged("trials_reached", watch, partial(_reached, shards), *counted)
    job = remote(average_precision).remote(positives, reached)
    aps = result(job, passes.limit, "The last step of the trials")
    width = len(unit.data.bank.classes)
    return {trial: aps[i * width : (i + 1) * width] for i, trial in enumerate(trials.trials)}


def _moments(shards: UnitShards, group: Group, trials: Trials, looks: Looks) -> Each:
    found: Each = total(trials.moments(scores) for _, _, scores in _slices(shards, group, looks))
    return found


def _scatters(
    shards: UnitShards, group: Group, trials: Trials, looks: Looks, moments: Each
) -> Each:
    parts = _slices(shards, group, looks)
    found: Each = total(trials.scatters(scores, moments) for _, _, scores in parts)
    return found


@dataclass(frozen=True)
class _Fitted:
    """What it takes to give the labelled images of a group their final scores."""

    shards: UnitShards
    trials: Trials
    looks: Looks
    moments: Each
    weights: list[list[Floats]]

    def final(self, group: Group) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """Final scores and labels (n, trials · N), of many slices at a time.

        What is then done with them takes as long for few images as for many.
        """
        for parts in chunks(self._slices(group), SLICES):
            scores, labels = zip(*parts, strict=True)
            yield np.concatenate(scores), np.concatenate(labels)

    def _slices(self, group: Group) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        for shard, ids, scores in _slices(self.shards, group, self.looks):
            labelled, labels = self.shards.labels(shard, ids)
            final = self.trials.final(scores, self.moments, self.weights)[labelled]
            tiled = np.tile(labels[labelled], (1, len(self.trials.trials)))
            yield final.reshape(tiled.shape), tiled


def _positives(shards: UnitShards, group: Group, *fitted: Any) -> Positives:
    final = _Fitted(shards, *fitted).final(group)
    found: Positives = total(Positives.of(scores, labels) for scores, labels in final)
    return found


def _reached(shards: UnitShards, group: Group, *counted: Any) -> Reached:
    *fitted, positives = counted
    final = _Fitted(shards, *fitted).final(group)
    found: Reached = total(Reached.of(scores, positives) for scores, _ in final)
    return found


def _slices(
    shards: UnitShards, group: Group, looks: Looks
) -> Iterator[tuple[int, list[str], Scores]]:
    """(shard, ids, scores) of some images at a time."""
    for shard in group.shards:
        for ids, scores in looks.slices(shards, shard, ROWS):
            yield shard, ids, scores
