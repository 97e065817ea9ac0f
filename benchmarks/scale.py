"""What a run of very many images needs of its driver and of storage.

Runs the real pipeline (lists of images and prompts, Ray Data, storage, markers, resume, reduce) on
images that do not exist: in place of decoding there are black squares, and the scorer draws its
scores. Each start has a driver of its own: a run, a start with nothing to score, the reduce.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

from made_up import write_config
from measuring import option, options_of, report
from sparc_dist.config import ResourcesConfig, load_config
from sparc_dist.errors import UserError
from sparc_dist.pipeline.embed import WaitForTexts
from sparc_dist.pipeline.executor import executor, using
from sparc_dist.pipeline.map_phase import Row, ShardSteps
from sparc_dist.pipeline.on_ray import OnRay
from sparc_dist.pipeline.score import RESULT
from sparc_dist.pipeline.steps import DecodeShard, errors_as_rows
from sparc_dist.runner import run
from sparc_dist.runs import DatasetLayout
from sparc_dist.runs.shards import ERRORS, read_images

MILLION = 2**20
ROW_GROUP = 2**16  # of the manifest
WIDTH = 8  # numbers of an embedding
SCHEMA = pa.schema([("image_id", pa.string()), ("uri", pa.string())])
#: The first argument of the processes that this script starts.
DRIVE = "drive"


@dataclass(frozen=True)
class Options:
    """The options."""

    shards: int = option(4096, "number of shards")
    shard: int = option(256, "images of a shard")


@dataclass(frozen=True)
class DriverCost:
    """What a start of a run costs: seconds, CPU seconds of its driver, and its peak memory."""

    seconds: float
    cpu: float
    peak: int


@dataclass(frozen=True)
class MakeUpShard:
    """Takes the place of decoding: black squares for the images of a shard."""

    dataset: DatasetLayout
    size: int

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Turns one row {shard, backbones} into one with image_ids and pixels."""
        (row,) = batch.to_pylist()
        ids = read_images(self.dataset, row["shard"], ["image_id"])["image_id"].to_pylist()
        return pa.table(
            {
                "shard": batch["shard"],
                "backbones": batch["backbones"],
                "image_ids": pa.array([ids], pa.list_(pa.string())),
                "pixels": pa.array([bytes(len(ids) * self.size**2 * 3)], pa.large_binary()),
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

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Turns a row of MakeUpShard into one with results in place of pixels."""
        (row,) = batch.select(["shard", "backbones", "image_ids"]).to_pylist()
        rng = np.random.default_rng(row["shard"])
        results = [self._result(name, len(row["image_ids"]), rng) for name in row["backbones"]]
        drawn = pa.array([results], pa.list_(RESULT))
        return batch.drop_columns("pixels").append_column("results", drawn)

    def _result(self, name: str, images: int, rng: np.random.Generator) -> dict[str, Any]:
        texts, loaded = self._texts[name]
        widths = [len(texts.singleton), len(texts.auxiliary), len(texts.compound), WIDTH]
        parts = [rng.standard_normal((images, width), dtype=np.float32) / 8 for width in widths]
        return {
            "backbone": name,
            "matrices": [part.tobytes() for part in parts],
            "widths": widths,
            "seconds": 0.0,
            "weights_sha256": loaded.weights_sha256,
            "text_seconds": loaded.text_seconds,
            "device": loaded.device,
            "input": json.dumps({"size": self._size}),
            "checkpoint": "null",
            "precision": "null",
        }


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


def main() -> None:
    """Scores, starts again and reduces a run; each start has a driver of its own."""
    options = options_of(Options, __doc__)
    images = options.shards * options.shard
    with executor(ResourcesConfig()), TemporaryDirectory() as folder:
        config = _config(Path(folder), options)
        scored, again, reduced = (_start(config, phase) for phase in ("score", "score", "reduce"))
        objects = sum(len(files) for _, _, files in os.walk(config.with_suffix("")))
    per_million = MILLION / images
    report(
        f"run of {images:,} made-up images in {options.shards:,} shards, scored at no cost",
        {
            "peak memory of the driver, scoring / nothing to score": (
                f"{scored.peak / again.peak:.2f}"
            ),
            "time, start with nothing to score / scoring": f"{again.seconds / scored.seconds:.3g}",
            "time, reduce / scoring": f"{reduced.seconds / scored.seconds:.3g}",
            "objects per million images": f"{objects * per_million:.0f}",
            "CPU of the driver per shard, ms": f"{1e3 * scored.cpu / options.shards:.2f}",
            "peak memory of the driver, MB": f"{scored.peak / 1e6:.0f}",
            "peak memory of the driver of the reduce, MB": f"{reduced.peak / 1e6:.0f}",
            "scoring per million images, s": f"{scored.seconds * per_million:.1f}",
            "start with nothing to score, s": f"{again.seconds:.2f}",
            "reduce per million images, s": f"{reduced.seconds * per_million:.1f}",
        },
    )


def _config(folder: Path, options: Options) -> Path:
    """Writes a manifest of images that do not exist, and a config; returns the config's path."""
    manifest, images = folder / "manifest.parquet", options.shards * options.shard
    with pq.ParquetWriter(manifest, SCHEMA) as out:
        for start in range(0, images, ROW_GROUP):
            end = min(start + ROW_GROUP, images)
            names = [f"{number:010d}.jpg" for number in range(start, end)]
            out.write_table(pa.table({"image_id": names, "uri": names}))
    return write_config(folder / "run.yaml", {"images": str(manifest)}, shard_size=options.shard)


def _start(config: Path, phase: str) -> DriverCost:
    """Runs a phase as its own process on this Ray; returns what it cost."""
    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, __file__, DRIVE, str(config), phase],
        env={**os.environ, "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(done.stderr.strip())
    return DriverCost(**json.loads(done.stdout.splitlines()[-1]))


def drive(config: str, phase: str) -> None:
    """Runs a phase of a config; prints what it cost."""
    start, cpu = time.perf_counter(), time.process_time()
    with executor(ResourcesConfig(executor="ray")), using(FreeRay()):
        outcome = run(load_config(config), phase="reduce" if phase == "reduce" else "score")
    for reason in outcome.failures.values():
        raise UserError(reason)
    spent = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps(asdict(DriverCost(*spent, _peak_memory()))))


def _peak_memory() -> int:
    """Returns the peak memory of this process in bytes, as Linux reports it.

    Does not use getrusage, which for a child includes the memory of its parent at the start.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(peak)


if __name__ == "__main__":
    if sys.argv[1:2] == [DRIVE]:
        drive(*sys.argv[2:])
    else:
        main()
