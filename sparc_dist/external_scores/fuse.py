"""Fuses score matrices that already exist: the reduce without images, models or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from sparc_dist import storage
from sparc_dist.core import (
    Decision,
    DecisionStatistics,
    EmptyClass,
    FinalScores,
    FinalStatistics,
    LabelStatistics,
    Method,
    Scores,
    decide,
    evaluate,
    fit_fusions,
)
from sparc_dist.external_scores.matrices import Matrices
from sparc_dist.runs.decisions_file import write_decisions
from sparc_dist.runs.doubts import doubts_of
from sparc_dist.runs.fusion_file import write_fusions
from sparc_dist.runs.labels import long_table, wide_table
from sparc_dist.runs.shards import final_table

SLICE = 4096  # images at a time, so that float64 copies stay small beside the matrices


def fuse(
    matrices: Matrices, method: Method, out: str, empty_class: EmptyClass = "skip"
) -> dict[str, Any]:
    """Writes fusions, final scores, decisions, labels and, with labels, metrics.

    Returns the metrics; without labels, notes and doubts alone.
    """
    bank, count = matrices.bank, len(matrices.bank.classes)
    fusions = fit_fusions(slices(matrices.scores), bank.mentions, count, method)
    final = _concatenated([fusions.final(part) for part in slices(matrices.scores)()])
    write_fusions(storage.join(out, "fusion.json"), fusions, bank.columns, bank.sha256)
    table = final_table(pa.array(matrices.ids, pa.string()), final, bank.names)
    storage.write_table(storage.join(out, "final.parquet"), table)
    known = np.full(len(final), matrices.labels is not None)
    labels = np.zeros(final.duo.shape, dtype=bool) if matrices.labels is None else matrices.labels
    statistics = FinalStatistics.of(final, known, labels)
    counts = DecisionStatistics.of(final, known, statistics)
    decisions = {
        name: decide(moments, counts.counts[name], count)
        for name, moments in statistics.moments.items()
    }
    primary = "sparc" if method.primary == "sparc" else "duo"
    _write_decisions(matrices, final, decisions, primary, out)
    facts = {
        "images": len(matrices.ids),
        "errors": {"images": 0, "share": 0.0, "reasons": {}},
        "primary": primary,
        "notes": fusions.notes,
        "doubts": doubts_of(decisions[primary].status, bank.classes),
    }
    if matrices.labels is None:
        storage.delete(storage.join(out, "metrics.json"))  # from other scores fused here earlier
        return facts
    agreement = LabelStatistics.of(final, labels, decisions)
    metrics = evaluate(statistics, counts, agreement, bank.classes, empty_class) | facts
    storage.write_json(storage.join(out, "metrics.json"), metrics)
    return metrics


def _write_decisions(
    matrices: Matrices, final: FinalScores, decisions: dict[str, Decision], primary: str, out: str
) -> None:
    """Writes decisions.json, labels.parquet and labels-wide.parquet."""
    classes = matrices.bank.classes
    write_decisions(storage.join(out, "decisions.json"), decisions, classes, primary)
    judged = decisions[primary].judge(*final.columns(primary))
    for name, table in (("labels", long_table), ("labels-wide", wide_table)):
        url = storage.join(out, f"{name}.parquet")
        storage.write_table(url, table(matrices.ids, classes, *judged))


def _concatenated(parts: list[FinalScores]) -> FinalScores:
    names = [field.name for field in fields(FinalScores)]
    return FinalScores(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def slices(scores: Scores) -> Callable[[], Iterator[Scores]]:
    """Returns a function that iterates over the matrices in slices of images."""
    return lambda: (scores[start : start + SLICE] for start in range(0, len(scores), SLICE))
