"""Hugging Face: a Parquet file whose schema says what ``datasets.load_dataset`` makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sparc_dist.report.export.parquet import write_tables
from sparc_dist.runs.labels import float32_column
from sparc_dist.runs.run import FinishedUnit, ShardLabels


def write(unit: FinishedUnit, url: str) -> None:
    """Writes image_id, image (its path), labels (those present), probabilities (of all)."""
    write_tables(url, _tables(unit))


def _tables(unit: FinishedUnit) -> Iterator[pa.Table]:
    metadata = {"huggingface": json.dumps({"info": {"features": _features(unit.classes)}})}
    for shard in unit.labels():
        columns = {
            "image_id": pa.array(shard.ids, pa.string()),
            "image": pa.array(shard.uris, pa.string()),
            "labels": _labels(shard),
            "probabilities": _probabilities(shard),
        }
        yield pa.table(columns, metadata=metadata)


def _features(classes: Sequence[str]) -> dict[str, Any]:
    """Returns the features of the columns, in words that the library also knew before version 4."""
    text = {"dtype": "string", "_type": "Value"}
    label = {"names": list(classes), "_type": "ClassLabel"}
    probability = {"dtype": "float32", "_type": "Value"}
    return {
        "image_id": text,
        "image": text,
        "labels": {"feature": label, "_type": "Sequence"},
        "probabilities": {"feature": probability, "_type": "Sequence"},
    }


def _labels(shard: ShardLabels) -> pa.ListArray:
    offsets = np.concatenate([[0], shard.present.sum(axis=1).cumsum()]).astype(np.int32)
    indices = shard.present.nonzero()[1].astype(np.int64)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(indices))


def _probabilities(shard: ShardLabels) -> pa.ListArray:
    count, width = shard.probability.shape
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), float32_column(shard.probability.ravel()))
