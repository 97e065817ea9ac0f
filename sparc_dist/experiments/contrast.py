"""The contrast of a class: how its scores set images that hold it apart from those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.debias import Scores
from sparc_dist.core.fusion import Fusion, merge
from sparc_dist.core.moments import Floats
from sparc_dist.pipeline.passes import ShardGroup, remote, total
from sparc_dist.pipeline.unit import Unit
from sparc_dist.pipeline.waiting import get_with_timeout
from sparc_dist.runs import UnitShards
from sparc_dist.runs.fusion_file import read_fusion

#: The columns of a contrast's values.
COLUMNS = ("singleton", "1st max", "2nd max", "singleton + 2nd max", "SPARC")
FIRST, SECOND = 1, 2


@dataclass(frozen=True)
class Histograms:
    """How many images fall where. edges: (bins + 1,), counts: (5, 2, bins), absent and present."""

    edges: Floats
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Example:
    """An image as a class sees it. values: (5,). top: the prompts of the first and second max."""

    shard: int
    image_id: str
    values: NDArray[np.float32]
    top: tuple[int, int]


@dataclass(frozen=True)
class Contrast:
    """One class in n images.

    ids: shard and id of each. present: (n,). values: (n, 5) as COLUMNS say, debiased. top: (n, 2),
    the compound prompts that give the first and the second max.
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
        """Of the class ``index``, which two compound prompts mention at least."""
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

    def only(self, rows: NDArray[np.bool_]) -> Contrast:
        """Some of the images (n,)."""
        ids = tuple(name for name, kept in zip(self.ids, rows, strict=True) if kept)
        return Contrast(ids, self.present[rows], self.values[rows], self.top[rows])

    def histograms(self, bins: int = 60) -> Histograms:
        """Of each column, over one range for all."""
        edges = np.histogram_bin_edges(self.values, bins)
        counts = [
            [np.histogram(column[self.present == side], edges)[0] for side in (False, True)]
            for column in self.values.T
        ]
        return Histograms(edges.astype(np.float64), np.array(counts, dtype=np.int64))

    def misordered(self) -> tuple[Example, Example] | None:
        """The pair (present, absent) that the first max misorders and the second max puts right.

        Of all such pairs the one where both are clearest; None where there is none.
        """
        first, second = self.values[:, FIRST], self.values[:, SECOND]
        holding = _front(np.flatnonzero(self.present), first, -second)
        lacking = _front(np.flatnonzero(~self.present), -first, second)
        if not len(holding) or not len(lacking):
            return None
        wrong = first[lacking] - first[holding, None]
        right = second[holding, None] - second[lacking]
        clearest = np.minimum(wrong, right)
        row, column = np.unravel_index(int(clearest.argmax()), clearest.shape)
        if clearest[row, column] <= 0:
            return None
        return self._example(int(holding[row])), self._example(int(lacking[column]))

    def _example(self, row: int) -> Example:
        first, second = self.top[row].tolist()
        return Example(*self.ids[row], self.values[row], (first, second))


def _front(
    rows: NDArray[np.intp], low: NDArray[np.float32], lower: NDArray[np.float32]
) -> NDArray[np.intp]:
    """Of ``rows`` those than which no other is as low in both: one of them is in the best pair."""
    rows = rows[np.lexsort((lower[rows], low[rows]))]
    least = np.minimum.accumulate(lower[rows])
    front: NDArray[np.intp] = rows[np.append(True, lower[rows][1:] < least[:-1])[: len(rows)]]
    return front


def contrast(unit: Unit, index: int) -> tuple[Histograms, tuple[Example, Example] | None]:
    """Of the class ``index``: histograms, and the pair that the first max misorders."""
    passes = unit.passes()
    whole = passes.merged("contrast", unit.stages, partial(_contrast, unit.shards, index))
    found: tuple[Histograms, tuple[Example, Example] | None] = get_with_timeout(
        remote(_sum_up).remote(whole), passes.limit, "The contrast of a class"
    )
    return found


def _contrast(shards: UnitShards, index: int, group: ShardGroup) -> Contrast:
    fusion = read_fusion(shards.unit.fusion)

    def of(shard: int) -> Contrast:
        ids, scores = shards.scores(shard)
        names = ids.to_pylist()
        labelled, labels = shards.labels(shard, names)
        places = [(shard, name) for name in names]
        return Contrast.of(places, scores, labels[:, index], index, fusion).only(labelled)

    found: Contrast = total(map(of, group.shards))
    return found


def _sum_up(whole: Contrast) -> Any:
    return whole.histograms(), whole.misordered()
