"""Fuses score matrices that already exist: the reduce without images, models or a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sparc_dist import storage
from sparc_dist.config import DECIDES
from sparc_dist.core import (
    CountedState,
    Decision,
    EmptyClass,
    FinalScores,
    Method,
    ScoredState,
    agreement_of,
    decide,
    evaluate,
    fit_fusions,
    judged_by,
    slices,
)
from sparc_dist.external_scores.matrices import Matrices
from sparc_dist.runs.decisions import doubts_of, write_decisions
from sparc_dist.runs.labeler_file import FittedLabeler, write_labeler
from sparc_dist.runs.labels import long_table, wide_table
from sparc_dist.runs.shards import final_table


def fuse(
    matrices: Matrices, method: Method, out: str, empty_class: EmptyClass = "skip"
) -> dict[str, Any]:
    """Writes fusions, final scores, decisions, labels and, with labels, metrics.

    Returns the metrics; without labels, notes and doubts alone.
    """
    bank, count = matrices.bank, len(matrices.bank.classes)
    method = method.with_scores_alone()  # matrices have no embeddings of images
    fusions = fit_fusions(slices(matrices.scores), bank.mentions, count, method)
    final = _concatenated([fusions.final(part) for part in slices(matrices.scores)()])
    table = final_table(pa.array(matrices.ids, pa.string()), final, bank.names)
    storage.write_table(storage.join(out, "final.parquet"), table)
    known = np.full(len(final), matrices.labels is not None)
    labels = matrices.labels
    if labels is None:
        labels = np.zeros(final.similarity.shape, dtype=bool)
    every = [(final, known, labels)]
    scored = ScoredState.of(every, fusions.totals)
    counted = CountedState.of(every, scored, fusions.totals)
    decisions = {
        name: decide(moments, counted.counts[name], count)
        for name, moments in scored.moments.items()
    }
    primary = method.deciding(DECIDES["own"])
    _write_decisions(matrices, final, decisions, primary, out)
    labeler = FittedLabeler(fusions, decisions, primary, bank.to_table(), bank.names)
    write_labeler(storage.join(out, "labeler.safetensors"), labeler)
    facts = {
        "images": len(matrices.ids),
        "errors": {"images": 0, "share": 0.0, "passing": 0, "reasons": {}},
        "primary": primary,
        "notes": fusions.notes,
        "doubts": doubts_of(decisions[primary].status, bank.classes),
    }
    if matrices.labels is None:
        storage.delete(storage.join(out, "metrics.json"))  # from other scores fused here earlier
        return facts
    agreement = agreement_of(judged_by(decisions, final), labels)
    metrics = evaluate(scored, counted, agreement, bank.classes, empty_class) | facts
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
    tables = [part.by_name for part in parts]
    return FinalScores.of({n: np.concatenate([table[n] for table in tables]) for n in tables[0]})
