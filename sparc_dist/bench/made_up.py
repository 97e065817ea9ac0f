"""Made-up images: a run whose pixels nobody decodes and whose scorer costs nothing.

All else is real: the lists of images and prompts, Ray Data, storage, markers, resume and reduce.
As a program, it is the driver of such a run, and prints what it cost.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from sparc_dist.bench.memory import peak_so_far
from sparc_dist.config import ResourcesConfig, load_config
from sparc_dist.pipeline.decode import DecodeShard
from sparc_dist.pipeline.embed import WaitForTexts
from sparc_dist.pipeline.executor import executor, using
from sparc_dist.pipeline.map_phase import ShardSteps
from sparc_dist.pipeline.on_ray import OnRay
from sparc_dist.pipeline.score import RESULT
from sparc_dist.pipeline.steps import errors_as_rows
from sparc_dist.pipeline.todo import Row
from sparc_dist.runner import run
from sparc_dist.runs import DatasetLayout, Phase
from sparc_dist.runs.image_list import read_images
from sparc_dist.runs.shards import ERRORS

WIDTH = 8  # numbers of an embedding


@dataclass(frozen=True)
class MakeUpShard:
    """Takes the place of decoding: black squares for the images of a shard."""

    dataset: DatasetLayout
    size: int

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Turns one row {shard, backbones} into one with image_ids and pixels."""
        (row,) = batch.to_pylist()
        rows = read_images(self.dataset, row["shard"], ["image_id"])
        ids = rows["image_id"].to_pylist()
        pixels = bytes(len(ids) * self.size**2 * 3)
        return pa.table(
            {
                "shard": batch["shard"],
                "backbones": batch["backbones"],
                "image_ids": pa.array([ids], pa.list_(pa.string())),
                "pixels": pa.array([pixels], pa.large_binary()),
                "errors": pa.array([[]], pa.list_(pa.struct(ERRORS))),
                "retries": [0],
                "seconds": [0.0],
            }
        )


class FreeScorer:
    """Takes the place of the models: draws scores at random, the same ones for the same shard."""

    def __init__(self, size: int, texts: WaitForTexts) -> None:
        self._size = size
        self._texts = {name: own for name, own in texts({}).items() if not isinstance(own, str)}
        self._widths = {
            name: [len(own.singleton), len(own.auxiliary), len(own.compound), WIDTH]
            for name, (own, _) in self._texts.items()
        }

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Turns a row of MakeUpShard into one with results in place of pixels."""
        (row,) = batch.select(["shard", "backbones", "image_ids"]).to_pylist()
        rng = np.random.default_rng(row["shard"])
        results = []
        for name in row["backbones"]:
            shapes = [(len(row["image_ids"]), width) for width in self._widths[name]]
            drawn = [rng.standard_normal(shape, dtype=np.float32) / 8 for shape in shapes]
            result = {"backbone": name, "widths": self._widths[name], "seconds": 0.0}
            result |= {"matrices": [part.tobytes() for part in drawn], "precision": "null"}
            loaded = self._texts[name][1]
            result |= {"weights_sha256": loaded.weights_sha256, "device": loaded.device}
            result |= {"text_seconds": loaded.text_seconds}
            result |= {"input": json.dumps({"size": self._size}), "checkpoint": "null"}
            results.append(result)
        return batch.drop_columns("pixels").append_column(
            "results", pa.array([results], pa.list_(RESULT))
        )


class FreeRay(OnRay):
    """Ray, on which nothing is decoded and scoring costs nothing."""

    def score(
        self, steps: ShardSteps, segments: Iterable[list[Row]], limit: float
    ) -> Iterator[Mapping[str, Any]]:
        """Runs steps of which only writing is real."""
        real = steps.decode
        assert isinstance(real, DecodeShard)
        (size,) = {*real.sizes.values()}
        scorer = partial(FreeScorer, size)
        free = replace(steps, decode=MakeUpShard(real.dataset, size), scorer=scorer)
        return super().score(free, segments, limit)


@dataclass(frozen=True)
class DriverCost:
    """What a start of a run costs: seconds, CPU seconds of its driver, and its peak memory."""

    seconds: float
    cpu: float
    peak: int


def main(config: str, phase: str) -> int:
    """Runs a phase of a config; prints what it cost."""
    start, cpu = time.perf_counter(), time.process_time()
    only: Phase = "reduce" if phase == "reduce" else "score"
    with executor(ResourcesConfig(executor="ray")), using(FreeRay()):
        failures = run(load_config(config), phase=only).failures
    for reason in failures.values():
        print(reason, file=sys.stderr)
    spent = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps(asdict(DriverCost(*spent, peak_so_far(os.getpid())))))
    return len(failures)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
