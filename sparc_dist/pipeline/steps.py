"""The steps of the map phase on CPUs: reading and decoding a shard, and writing its scores."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
import pyarrow as pa

from sparc_dist.core import Scores
from sparc_dist.errors import UserError
from sparc_dist.images.reading import decode_shard
from sparc_dist.runs import DatasetLayout, Provenance, Storing, UnitLayout
from sparc_dist.runs.labeler_file import FittedLabeler
from sparc_dist.runs.labels import write_labelled
from sparc_dist.runs.shards import ERRORS, ClassNames, read_images, scores_table, write_shard
from sparc_dist.runs.storing import ALL
from sparc_dist.storage import retries


def errors_as_rows(
    work: Callable[[Any, pa.Table], pa.Table],
) -> Callable[[Any, pa.Table], pa.Table]:
    """Makes a step return a UserError as a row {shard, backbones, failure}.

    Ray Data keeps neither the type nor the message of what a step raises.
    """

    @wraps(work)
    def step(self: Any, batch: pa.Table) -> pa.Table:
        if "failure" in batch.column_names:
            return batch
        try:
            return work(self, batch)
        except UserError as error:
            request = {name: batch[name] for name in ("shard", "backbones")}
            return pa.table({**request, "failure": [str(error)]})

    return step


@dataclass(frozen=True)
class DecodeShard:
    """Reads and decodes a shard's images to uint8 squares at the sizes its backbones need.

    jpeg_scaling: whether large JPEGs are decoded at a smaller scale. max_image_bytes: of a file.
    """

    dataset: DatasetLayout
    sizes: Mapping[str, int]
    jpeg_scaling: bool
    max_image_bytes: int

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Turns one row {shard, backbones} into one with image_ids, pixels and errors."""
        start, before = time.perf_counter(), retries()
        (row,) = batch.to_pylist()
        rows = read_images(self.dataset, row["shard"], ["image_id", "uri"])
        sizes = sorted({self.sizes[name] for name in row["backbones"]})
        decoded = decode_shard(rows.to_pylist(), sizes, self.jpeg_scaling, self.max_image_bytes)
        pixels = [decoded.squares[size].reshape(-1).data for size in sizes]
        return pa.table(
            {
                "shard": batch["shard"],
                "backbones": batch["backbones"],
                "image_ids": pa.array([decoded.ids], pa.list_(pa.string())),
                "sizes": pa.array([sizes]),
                "pixels": pa.array([pixels], pa.list_(pa.large_binary())),
                "errors": pa.array([decoded.errors], pa.list_(pa.struct(ERRORS))),
                "retries": [retries() - before],
                "seconds": [time.perf_counter() - start],
            }
        )


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
