"""The last step: writes a shard's scores and errors to storage; with a labeler, also its labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sparc_dist.core import Scores
from sparc_dist.errors import UserError
from sparc_dist.pipeline.steps import errors_as_rows
from sparc_dist.runs import Provenance, Storing, UnitLayout
from sparc_dist.runs.labeler_file import FittedLabeler
from sparc_dist.runs.labels import write_labelled
from sparc_dist.runs.shards import ClassNames, scores_table, write_shard
from sparc_dist.runs.storing import ALL
from sparc_dist.storage import retries

FAILURE = pa.struct([("backbone", pa.string()), ("failure", pa.string())])


@dataclass(frozen=True)
class Target:
    """Where a unit's scores go, what they were made from, and the names of their columns.

    labeler: makes final scores and labels of them at once. storing: what is kept of them; None:
    nothing.
    """

    unit: UnitLayout
    prompts_sha256: str
    images_sha256: str
    names: ClassNames
    labeler: FittedLabeler | None = None
    storing: Storing | None = ALL

    def scoring(self, weights_sha256: str, device: str) -> Provenance:
        """Returns what scores are made with, by a model on a device."""
        return Provenance(weights_sha256, self.prompts_sha256, self.images_sha256, device)


@dataclass(frozen=True)
class WriteShard:
    """Writes a shard's scores and errors under each backbone, and then their markers."""

    targets: Mapping[str, Target]

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Turns a row of ScoreShard into one that ShardOutcome reads."""
        (row,) = batch.to_pylist()
        done, failures, text_seconds = [], [], []
        for result in row["results"]:
            name = result["backbone"]
            try:
                if result["failure"] is not None:
                    raise UserError(result["failure"])
                self._write(row, result, self.targets[name])
                done.append(name)
                text_seconds.append(result["text_seconds"])
            except UserError as error:
                failures.append({"backbone": name, "failure": str(error)})
        return pa.table(
            {
                "shard": batch["shard"],
                "done": pa.array([done], pa.list_(pa.string())),
                "failures": pa.array([failures], pa.list_(FAILURE)),
                "errors": [len(row["errors"])],
                "text_seconds": pa.array([text_seconds], pa.list_(pa.float64())),
            }
        )

    def _write(self, row: dict[str, Any], result: dict[str, Any], target: Target) -> None:
        before = retries()
        ids = row["image_ids"]
        singleton, auxiliary, compound, embedding = (
            np.frombuffer(content, dtype=np.float32).reshape(len(ids), width)
            for content, width in zip(result["matrices"], result["widths"], strict=True)
        )
        scores = Scores(singleton, auxiliary, compound, embedding)
        kept = None
        if target.storing is not None:
            storing = replace(target.storing, kept_sha256=result["kept_sha256"])
            kept = scores_table(ids, scores, embedding, target.names, storing)
        scoring = target.scoring(result["weights_sha256"], result["device"])
        marker = write_shard(target.unit, row["shard"], kept, row["errors"], scoring)
        if target.labeler is not None:
            marker = write_labelled(target.unit, marker, ids, target.labeler, scores)
        replace(
            marker,
            # Each unit of a group counts all retries of reading the images.
            retries=row["retries"] + retries() - before,
            seconds={"decode": row["seconds"], "score": result["seconds"]},
            input=json.loads(result["input"]),
            checkpoint=json.loads(result["checkpoint"]),
            precision=json.loads(result["precision"]),
        ).write(target.unit)
