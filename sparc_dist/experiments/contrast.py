"""The contrast of a class: how well its scores separate images with it from images without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core import Floats, Fusion, Scores, merge
from sparc_dist.pipeline.executor import get, submit
from sparc_dist.pipeline.passes import ShardGroup, total
from sparc_dist.pipeline.unit import Unit
from sparc_dist.runs import UnitShards
from sparc_dist.runs.finished_unit import sparc_fusion

#: The columns of a contrast's values.
COLUMNS = ("singleton", "1st max", "2nd max", "singleton + 2nd max", "SPARC")
FIRST, SECOND = 1, 2


@dataclass(frozen=True)
class Histograms:
    """Images per bin. edges: (bins + 1,). counts: (5, 2, bins), by column, absent and present."""

    edges: Floats
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Example:
    """An image and its scores for a class. values: (5,). top: prompts of the first two maxima."""

    shard: int
    image_id: str
    values: NDArray[np.float32]
    top: tuple[int, int]


@dataclass(frozen=True)
class Contrast:
    """The debiased scores of one class on n images.

    ids: shard and id of each image. present: (n,), whether it has the class. values: (n, 5), one
    column per entry of COLUMNS. top: (n, 2), the compound prompts of the first and second max.
    """

    ids: tuple[tuple[int, str], ...]
    present: NDArray[np.bool_]
    values: NDArray[np.float32]
    top: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        ids: Sequence[tuple[int, str]],
        scores: Scores,
        present: NDArray[np.bool_],
        index: int,
        fusion: Fusion,
    ) -> Contrast:
        """Returns the contrast of class ``index``, which at least two compound prompts mention."""
        debiased, columns = fusion.debias(scores), fusion.mentions[index]
        singleton = debiased[:, index]
        compound = debiased[:, len(fusion.mentions) + columns]
        order = np.argsort(-compound, axis=1, kind="stable")
        ranked = np.take_along_axis(compound, order, axis=1)
        fused = np.column_stack([singleton, ranked]) @ fusion.weights[index]
        second = ranked[:, 1]
        final = merge(singleton, fused) if fusion.method.merge else fused
        values = np.stack([singleton, ranked[:, 0], second, merge(singleton, second), final], 1)
        return cls(tuple(ids), present, values.astype(np.float32), columns[order[:, :2]])

    def __add__(self, other: Contrast) -> Contrast:
        return Contrast(
            self.ids + other.ids,
            np.concatenate([self.present, other.present]),
            np.concatenate([self.values, other.values]),
            np.concatenate([self.top, other.top]),
        )

    def select(self, rows: NDArray[np.bool_]) -> Contrast:
        """Returns the images where ``rows`` (n,) is true."""
        ids = tuple(name for name, selected in zip(self.ids, rows, strict=True) if selected)
        return Contrast(ids, self.present[rows], self.values[rows], self.top[rows])

    def histograms(self, bins: int = 60) -> Histograms:
        """Returns the histograms of all columns, with the same edges."""
        edges = np.histogram_bin_edges(self.values, bins)
        counts = [
            [np.histogram(column[self.present == side], edges)[0] for side in (False, True)]
            for column in self.values.T
        ]
        return Histograms(edges.astype(np.float64), np.array(counts, dtype=np.int64))

    def misordered(self) -> tuple[Example, Example] | None:
        """Returns a pair (present, absent) that the first max misorders, but not the second max.

        Of all such pairs, the one whose smaller margin is largest; None if there is none.
        """
        first, second = self.values[:, FIRST], self.values[:, SECOND]
        present = _pareto_front(np.flatnonzero(self.present), first, -second)
        absent = _pareto_front(np.flatnonzero(~self.present), -first, second)
        if not len(present) or not len(absent):
            return None
        wrong_by = first[absent] - first[present, None]
        right_by = second[present, None] - second[absent]
        margin = np.minimum(wrong_by, right_by)
        row, column = np.unravel_index(int(margin.argmax()), margin.shape)
        if margin[row, column] <= 0:
            return None
        return self._example(int(present[row])), self._example(int(absent[column]))

    def _example(self, row: int) -> Example:
        first, second = self.top[row].tolist()
        return Example(*self.ids[row], self.values[row], (first, second))


def _pareto_front(
    rows: NDArray[np.intp], x: NDArray[np.float32], y: NDArray[np.float32]
) -> NDArray[np.intp]:
    """Returns the ``rows`` that no other row matches or undercuts in both x and y."""
    rows = rows[np.lexsort((y[rows], x[rows]))]
    lowest = np.minimum.accumulate(y[rows])
    front: NDArray[np.intp] = rows[np.append(True, y[rows][1:] < lowest[:-1])[: len(rows)]]
    return front


def contrast(unit: Unit, index: int) -> tuple[Histograms, tuple[Example, Example] | None]:
    """Returns the histograms of class ``index`` and the pair that the first max misorders."""
    passes = unit.passes()
    merged = passes.merged("contrast", unit.stages, partial(_contrast, unit.shards, index))
    found: tuple[Histograms, tuple[Example, Example] | None] = get(
        submit(_summarise, merged), passes.limit, "The contrast of a class"
    )
    return found


def _contrast(shards: UnitShards, index: int, group: ShardGroup) -> Contrast:
    fusion = sparc_fusion(shards.unit)

    def shard_contrast(shard: int) -> Contrast:
        column, scores = shards.scores(shard)
        image_ids = column.to_pylist()
        labelled, labels = shards.labels(shard, image_ids)
        ids = [(shard, image_id) for image_id in image_ids]
        return Contrast.of(ids, scores, labels[:, index], index, fusion).select(labelled)

    found: Contrast = total(map(shard_contrast, group.shards))
    return found


def _summarise(merged: Contrast) -> Any:
    return merged.histograms(), merged.misordered()
