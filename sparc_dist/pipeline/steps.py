"""The steps of the map phase, each on one row of a Ray data set: a shard.

A row is a whole shard from beginning to end. So a shard is decoded, scored, written and retried as
one thing whatever Ray does with blocks, and no row is ever grouped again. What a row asks for is
{shard, backbones}: those of a group under which this shard is still to be scored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import torch
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.backbones import Backbone, Scorer, TextEmbeddings
from sparc_dist.config import BackboneConfig
from sparc_dist.core.debias import Scores
from sparc_dist.errors import UserError
from sparc_dist.filesystems import retries
from sparc_dist.layout import DatasetLayout, UnitLayout
from sparc_dist.markers import Scoring
from sparc_dist.pixels import decode_shard
from sparc_dist.plan import Scorers
from sparc_dist.shards import ERRORS, scores_table, write_shard

#: What became of a shard under one backbone: four matrices, or a failure.
RESULT = pa.struct(
    [
        ("backbone", pa.string()),
        ("matrices", pa.list_(pa.large_binary())),
        ("widths", pa.list_(pa.int64())),
        ("seconds", pa.float64()),
        ("precision", pa.string()),
        ("failure", pa.string()),
    ]
)
FAILURE = pa.struct([("backbone", pa.string()), ("failure", pa.string())])


def device(scorers: Scorers) -> str:
    """On a worker: its GPU if it holds a share of one, else the CPU.

    Ray shows a worker only its own GPUs, so "cuda" is always the right one. A cluster may declare
    GPUs that torch cannot use; the metrics then say that the CPU did the work.
    """
    return "cuda" if scorers.gpus and torch.cuda.is_available() else "cpu"


def _telling(work: Callable[[Any, pa.Table], pa.Table]) -> Callable[[Any, pa.Table], pa.Table]:
    """A step whose UserErrors travel to the driver as rows {shard, backbones, failure}.

    Of what a step raises, Ray Data keeps neither the type nor the words.
    """

    @wraps(work)
    def step(self: Any, batch: pa.Table) -> pa.Table:
        if "failure" in batch.column_names:
            return batch
        try:
            return work(self, batch)
        except UserError as error:
            asked = {name: batch[name] for name in ("shard", "backbones")}
            return pa.table({**asked, "failure": [str(error)]})

    return step


@dataclass(frozen=True)
class DecodeShard:
    """Manifest → bytes → uint8 squares at the sizes that the row's backbones want."""

    dataset: DatasetLayout
    sizes: Mapping[str, int]

    @_telling
    def __call__(self, batch: pa.Table) -> pa.Table:
        """One row {shard, backbones} to the same with image_ids, pixels, errors and so on."""
        start, before = time.perf_counter(), retries()
        (row,) = batch.to_pylist()
        rows = storage.read_row_group(self.dataset.images, row["shard"], ["image_id", "uri"])
        sizes = sorted({self.sizes[name] for name in row["backbones"]})
        decoded = decode_shard(rows.to_pylist(), sizes)
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


class ScoreShard:
    """An actor that holds the models of a group and scores one shard after the other."""

    def __init__(
        self,
        backbones: Sequence[BackboneConfig],
        texts: Sequence[Any],
        batch_size: int,
        scorers: Scorers,
    ) -> None:
        """``texts``: references to TextEmbeddings by backbone, as embed_prompts gives them."""
        torch.set_num_threads(scorers.threads)
        self._batch_size = batch_size
        self._scorers: dict[str, Scorer] = {}
        self._failures: dict[str, str] = {}
        embedded: dict[str, TextEmbeddings] = {}
        for part in ray.get(list(texts)):
            embedded |= part
        for config in backbones:
            try:
                backbone = Backbone(config, device(scorers))
                self._scorers[config.name] = Scorer(backbone, embedded[config.name])
            except UserError as error:  # said with every shard: an actor's last words are lost
                self._failures[config.name] = str(error)

    @_telling
    def __call__(self, batch: pa.Table) -> pa.Table:
        """One row of DecodeShard to one row with results in place of pixels."""
        count = len(batch["image_ids"][0])
        buffers = [value.as_buffer() for value in batch["pixels"][0].values]
        pixels = {
            size: np.frombuffer(buffer, dtype=np.uint8).reshape(count, size, size, 3)
            for size, buffer in zip(batch["sizes"][0].as_py(), buffers, strict=True)
        }
        shard = batch["shard"][0].as_py()
        results = [self._result(name, shard, pixels) for name in batch["backbones"][0].as_py()]
        kept = ("shard", "backbones", "image_ids", "errors", "retries", "seconds")
        return pa.table(
            {
                **{name: batch[name] for name in kept},
                "results": pa.array([results], pa.list_(RESULT)),
            }
        )

    def _result(
        self, name: str, shard: int, pixels: Mapping[int, NDArray[np.uint8]]
    ) -> dict[str, Any]:
        """What one backbone makes of a shard; its failure is not the others'."""
        start = time.perf_counter()
        try:
            if name in self._failures:
                raise UserError(self._failures[name])
            scorer = self._scorers[name]
            own = pixels[scorer.backbone.image_size]
            parts = self._score(scorer, own)
            # One shard tells how far scores are from float32; the first, for every run has it.
            told = scorer.difference(own, self._batch_size) if shard == 0 else None
        except UserError as error:
            self._failures[name] = str(error)
            return {"backbone": name, "failure": str(error)}
        return {
            "backbone": name,
            "matrices": [part.tobytes() for part in parts],
            "widths": [part.shape[1] for part in parts],
            "seconds": time.perf_counter() - start,
            "precision": json.dumps(told),
        }

    def _score(self, scorer: Scorer, pixels: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        """Singleton, auxiliary and compound scores and embeddings, each (n, ·)."""
        if not len(pixels):
            # The widths of the tables must hold for a shard without one good image too.
            blank = np.zeros((1, *pixels.shape[1:]), dtype=np.uint8)
            return [part[:0] for part in self._score(scorer, blank)]
        scores, embedding = scorer.score(pixels, self._batch_size)
        return [scores.singleton, scores.auxiliary, scores.compound, embedding]


@dataclass(frozen=True)
class Target:
    """Where a unit's scores go, and by what they were made."""

    unit: UnitLayout
    scoring: Scoring


@dataclass(frozen=True)
class WriteShard:
    """A shard's scores and errors under each backbone to storage; their markers last."""

    targets: Mapping[str, Target]

    @_telling
    def __call__(self, batch: pa.Table) -> pa.Table:
        """One row of ScoreShard to one row {shard, done, failures, errors}."""
        (row,) = batch.to_pylist()
        done, failures = [], []
        for result in row["results"]:
            name = result["backbone"]
            try:
                if result["failure"] is not None:
                    raise UserError(result["failure"])
                self._write(row, result, self.targets[name])
                done.append(name)
            except UserError as error:
                failures.append({"backbone": name, "failure": str(error)})
        return pa.table(
            {
                "shard": batch["shard"],
                "done": pa.array([done], pa.list_(pa.string())),
                "failures": pa.array([failures], pa.list_(FAILURE)),
                "errors": [len(row["errors"])],
            }
        )

    def _write(self, row: dict[str, Any], result: dict[str, Any], target: Target) -> None:
        before = retries()
        ids = row["image_ids"]
        singleton, auxiliary, compound, embedding = (
            np.frombuffer(content, dtype=np.float32).reshape(len(ids), width)
            for content, width in zip(result["matrices"], result["widths"], strict=True)
        )
        table = scores_table(ids, Scores(singleton, auxiliary, compound), embedding)
        marker = write_shard(target.unit, row["shard"], table, row["errors"], target.scoring)
        replace(
            marker,
            # Of what reading the images took, each unit of a group counts all.
            retries=row["retries"] + retries() - before,
            seconds={"decode": row["seconds"], "score": result["seconds"]},
            precision=json.loads(result["precision"]),
        ).write(target.unit)
