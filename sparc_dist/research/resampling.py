"""Resampled mAP: the paired bootstrap over a unit's images, one task per group of classes.

A task reads the scores of its classes shard by shard and sorts each class once; the driver sees
only the AP of each class in each draw. Weights belong to images of the data set, so mAPs of
different units of a data set are paired too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core import Floats
from sparc_dist.core.bootstrap import (
    DRAWS,
    LEVEL,
    TOGETHER,
    Ranking,
    columns_of,
    interval,
    resampled_mean,
    resampling_weights,
)
from sparc_dist.pipeline.executor import current, get, share, submit
from sparc_dist.pipeline.unit import Unit
from sparc_dist.runs import UnitShards
from sparc_dist.runs.shards import read_images, shard_sizes
from sparc_dist.runs.storing import matrix

#: Classes are divided among so many tasks, and into more where memory demands it. Each task reads
#: all images, and may compute their scores, so there are few.
TASKS = 4
#: Bytes of a task's rankings, and bytes that an image's score takes there.
TASK_BYTES, SCORE_BYTES = 256 * 2**20, 12

REMARK = (
    f"Intervals: {LEVEL:.0%} of {DRAWS:,} paired bootstrap draws over images, each with Poisson(1) "
    "resampling weights that all methods share."
)

Float32 = NDArray[np.float32]
#: Returns a shard's image ids and the final scores of some classes (n, methods, classes).
ScoreReader = Callable[[int, range], tuple[list[str], Float32]]


@dataclass(frozen=True)
class ResampledMean:
    """The mAP of a method in percent, of all images and in each draw (draws,)."""

    observed: float
    draws: Floats

    def minus(self, other: ResampledMean) -> tuple[float, float, float]:
        """Returns the difference, and the bounds of its interval."""
        return (self.observed - other.observed, *interval(self.draws - other.draws))


def stored_scores(
    shards: UnitShards, methods: Sequence[str], shard: int, classes: range
) -> tuple[list[str], Float32]:
    """Reads the final scores that a unit has stored; with its first arguments, a ScoreReader."""
    table = storage.read_table(shards.unit.final(shard), ["image_id", *methods])
    cut = slice(classes.start, classes.stop)
    parts = [matrix(table[name], shards.classes)[:, cut] for name in methods]
    return table["image_id"].to_pylist(), np.stack(parts, axis=1)


def resampled_means(
    unit: Unit, methods: Sequence[str], read: ScoreReader
) -> dict[str, ResampledMean]:
    """Returns the mAP of each of the methods on the unit's data set; read: their final scores."""
    limit, stage = unit.config.resources.no_progress_seconds, "resampling"
    images = shard_sizes(unit.shards.dataset)
    groups = _class_groups(unit.shards.classes, sum(images), len(methods))
    shared = (unit.shards, images, share(read))
    jobs = [submit(_resampled_aps, group, *shared) for group in groups]
    unit.stages.start(stage, sum(images) * len(jobs))  # each task reads all images
    for _ in current().finished(jobs, limit, "Resampling"):
        unit.stages.advance(stage, sum(images))
    aps = np.concatenate([get(job, limit, "Resampling") for job in jobs], axis=1)
    means = resampled_mean(aps, unit.config.empty_class)
    return {
        name: ResampledMean(float(row[0]), row[1:])
        for name, row in zip(methods, means, strict=True)
    }


def _class_groups(classes: int, images: int, methods: int) -> list[range]:
    """Returns neighbouring classes whose rankings fit into a task's memory together."""
    fitting = TASK_BYTES // (SCORE_BYTES * max(images, 1) * max(methods, 1))
    size = max(1, min(fitting, -(-classes // TASKS)))
    return [range(i, min(i + size, classes)) for i in range(0, classes, size)]


def _resampled_aps(
    classes: range, shards: UnitShards, images: Sequence[int], read: ScoreReader
) -> Floats:
    """Returns the AP of all images, then of each draw (methods, classes, 1 + draws)."""
    scores, labels, positions = _columns(classes, shards, images, read)
    rankings = [
        [Ranking.of(scores[:, i, j], labels[:, j]) for j in range(len(classes))]
        for i in range(scores.shape[1])
    ]
    del scores
    every = np.ones((len(positions), 1), np.float32)
    parts = [_aps(rankings, every)]
    for start in range(0, DRAWS, TOGETHER):
        draws = range(start, min(start + TOGETHER, DRAWS))
        weights = resampling_weights(sum(images), draws)
        parts.append(_aps(rankings, columns_of(weights[:, positions])))
    return np.concatenate(parts, axis=2)


def _aps(rankings: Sequence[Sequence[Ranking]], weights: Float32) -> Floats:
    return np.array([[ranking.average_precision(weights) for ranking in row] for row in rankings])


def _columns(
    classes: range, shards: UnitShards, images: Sequence[int], read: ScoreReader
) -> tuple[Float32, NDArray[np.bool_], NDArray[np.int64]]:
    """Returns the scores (n, methods, classes), labels (n, classes) and positions (n,) of images.

    They are the n labelled images of all shards that have scores.
    """
    parts: list[tuple[Any, Any, Any]] = []
    for shard, first in enumerate(np.cumsum([0, *images[:-1]]).tolist()):
        ids, scores = read(shard, classes)
        rows, labels = _truth(shards, shard, ids)
        known = rows >= 0
        cut = slice(classes.start, classes.stop)
        parts.append((scores[known], labels[rows[known], cut], first + rows[known]))
    scores, labels, positions = (np.concatenate(part) for part in zip(*parts, strict=True))
    return scores, labels, positions


def _truth(
    shards: UnitShards, shard: int, ids: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the row of each image in its shard, −1 if it has no labels (n,).

    Also returns the labels of all rows of the shard (rows, N).
    """
    table = read_images(shards.dataset, shard, ["image_id", "labels"])
    lists = table["labels"].combine_chunks()
    labels = np.zeros((len(table), shards.classes), dtype=bool)
    labels[np.asarray(pc.list_parent_indices(lists)), np.asarray(pc.list_flatten(lists))] = True
    places = zip(table["image_id"].to_pylist(), lists.is_valid().to_pylist(), strict=True)
    rows = {image_id: row if known else -1 for row, (image_id, known) in enumerate(places)}
    return np.array([rows[image_id] for image_id in ids], dtype=np.int64), labels
