"""The tables that hold a shard: what the map phase writes and the reduce phase reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core.debias import Scores
from sparc_dist.layout import DatasetLayout, UnitLayout

ERRORS = pa.schema([("image_id", pa.string()), ("uri", pa.string()), ("error", pa.string())])
METHODS = ("zsclip", "debiased", "sparc")


def list_column(rows: NDArray[np.floating]) -> pa.ListArray:
    """A matrix (n, d) as a column of n lists of d float32."""
    count, width = rows.shape
    values = pa.array(np.ascontiguousarray(rows, dtype=np.float32).reshape(-1))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * width), values)


def matrix(column: pa.ChunkedArray, width: int) -> NDArray[np.float32]:
    """The matrix (n, width) that ``list_column`` wrote."""
    values = np.asarray(column.combine_chunks().flatten(), dtype=np.float32)
    return values.reshape(len(column), width)


def scores_table(ids: Sequence[str], scores: Scores, embedding: NDArray[np.float32]) -> pa.Table:
    """A shard's scores and embeddings, one row an image."""
    return pa.table(
        {
            "image_id": pa.array(ids, pa.string()),
            "singleton": list_column(scores.singleton),
            "auxiliary": list_column(scores.auxiliary),
            "compound": list_column(scores.compound),
            "embedding": list_column(embedding),
        }
    )


def final_table(ids: pa.ChunkedArray, columns: Sequence[NDArray[np.floating]]) -> pa.Table:
    """A shard's final scores: ZSCLIP, debiased and SPARC, each (n, N)."""
    lists = {name: list_column(rows) for name, rows in zip(METHODS, columns, strict=True)}
    return pa.table({"image_id": ids, **lists})


@dataclass(frozen=True)
class UnitShards:
    """Reads a unit's shards, one at a time."""

    dataset: DatasetLayout
    unit: UnitLayout
    classes: int
    compounds: int

    def scores(self, shard: int) -> tuple[pa.ChunkedArray, Scores]:
        """A shard's image ids and scores."""
        columns = ["image_id", "singleton", "auxiliary", "compound"]
        table = storage.read_table(self.unit.scores(shard), columns)
        widths = (self.classes, self.classes, self.compounds)
        parts = [matrix(table[name], w) for name, w in zip(columns[1:], widths, strict=True)]
        return table["image_id"], Scores(*parts)

    def final(self, shard: int) -> tuple[list[str], NDArray[np.float32]]:
        """A shard's image ids and final scores, the three methods side by side (n, 3 N)."""
        table = storage.read_table(self.unit.final(shard))
        parts = [matrix(table[name], self.classes) for name in METHODS]
        return table["image_id"].to_pylist(), np.concatenate(parts, axis=1)

    def labels(self, shard: int, ids: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of the images have labels (n,), and their labels (n, N)."""
        rows = storage.read_row_group(self.dataset.images, shard, ["image_id", "labels"])
        known = dict(zip(rows["image_id"].to_pylist(), rows["labels"].to_pylist(), strict=True))
        labelled = np.array([known[image_id] is not None for image_id in ids], dtype=bool)
        present = np.zeros((len(ids), self.classes), dtype=bool)
        for row, image_id in zip(present, ids, strict=True):
            row[known[image_id] or []] = True
        return labelled, present
