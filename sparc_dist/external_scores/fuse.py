"""Fuses existing score matrices: the reduce phase without images, models or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from sparc_dist import storage
from sparc_dist.core import EmptyClass, Method, Positives, Reached, Scores, fit, summarise
from sparc_dist.core.average_precision import average_precision
from sparc_dist.external_scores.matrices import Matrices
from sparc_dist.runs import METHODS
from sparc_dist.runs.fusion_file import write_fusion
from sparc_dist.runs.shards import final_table

SLICE = 4096  # images at a time, so that float64 copies stay small


def fuse(
    matrices: Matrices, method: Method, out: str, empty_class: EmptyClass = "skip"
) -> dict[str, Any] | None:
    """Writes fusion.json, final.parquet and, with labels, metrics.json; returns the metrics."""
    fusion = fit(slices(matrices.scores), matrices.bank.mentions, method)
    parts = [(part.singleton, *fusion.final(part)) for part in slices(matrices.scores)()]
    columns = [np.concatenate(rows).astype(np.float32) for rows in zip(*parts, strict=True)]
    table = final_table(pa.array(matrices.ids, pa.string()), columns)
    bank = matrices.bank
    write_fusion(storage.join(out, "fusion.json"), fusion, bank.classes, bank.sha256)
    storage.write_table(storage.join(out, "final.parquet"), table)
    if matrices.labels is None:
        storage.delete(storage.join(out, "metrics.json"))  # from other scores fused here earlier
        return None
    metrics: dict[str, Any] = {}
    for name, scores in zip(METHODS, columns, strict=True):
        positives = Positives.of(scores, matrices.labels)
        aps = average_precision(positives, Reached.of(scores, positives))
        metrics[name] = summarise(aps, matrices.bank.classes, empty_class)
    metrics |= {
        "images": len(matrices.ids),
        "errors": {"images": 0, "share": 0.0, "reasons": {}},
        "notes": list(fusion.notes),
    }
    storage.write_json(storage.join(out, "metrics.json"), metrics)
    return metrics


def slices(scores: Scores) -> Callable[[], Iterator[Scores]]:
    """Returns a function that iterates over the matrices in slices of images."""
    return lambda: (scores[start : start + SLICE] for start in range(0, len(scores), SLICE))
