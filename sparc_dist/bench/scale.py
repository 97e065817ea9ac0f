"""Scale: a run on millions of images, without images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from sparc_dist.bench.inputs import tiny_config
from sparc_dist.bench.made_up import DriverCost
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.pipeline.cluster import address
from sparc_dist.pipeline.executor import executor

MILLION = 2**20
CLASSES = 4
#: A run, a start with nothing to score, and the reduce.
STARTS = ("score", "score", "reduce")
SCHEMA = pa.schema([("image_id", pa.string()), ("uri", pa.string())])


@dataclass(frozen=True)
class Sizes:
    """The number of shards, and of the images of each."""

    shards: int
    shard: int

    @property
    def images(self) -> int:
        """The number of images in all shards."""
        return self.shards * self.shard


def measure(setting: BenchSetting) -> str:
    """Scores, starts again and reduces a run; each start has a driver of its own."""
    sizes = Sizes(128, 4) if setting.quick else Sizes(round(setting.millions * MILLION / 256), 256)
    with executor(ResourcesConfig()), TemporaryDirectory() as folder:
        config = _config(Path(folder), sizes)
        scored, restarted, reduced = (_start(config, phase) for phase in STARTS)
        objects = sum(len(files) for _, _, files in os.walk(Path(folder, "run")))
    per_million = MILLION / sizes.images
    return block(
        f"scale: {sizes.images:,} made-up images in {sizes.shards:,} shards, scored at no cost",
        {
            "peak memory of the driver, MB": f"{scored.peak / 1e6:.0f}",
            "peak memory of the driver of the reduce, MB": f"{reduced.peak / 1e6:.0f}",
            "objects per million images": f"{objects * per_million:.0f}",
            "CPU of the driver per shard, ms": f"{1e3 * scored.cpu / sizes.shards:.2f}",
            "scoring per million images, s": f"{scored.seconds * per_million:.1f}",
            "restart with nothing to score, s": f"{restarted.seconds:.2f}",
            "reduce per million images, s": f"{reduced.seconds * per_million:.1f}",
        },
    )


def _config(folder: Path, sizes: Sizes) -> Path:
    """Writes a manifest of images that do not exist, and a config; returns the config's path."""
    manifest = folder / "manifest.parquet"
    with pq.ParquetWriter(manifest, SCHEMA) as out:
        for names in _names(sizes.images):
            out.write_table(pa.table({"image_id": names, "uri": names}))
    path = folder / "config.yaml"
    path.write_text(tiny_config(manifest, 1, CLASSES, sizes.shard).model_dump_json())
    return path


def _names(images: int) -> Iterator[list[str]]:
    step = 2**16
    for start in range(0, images, step):
        yield [f"{number:010d}.jpg" for number in range(start, min(start + step, images))]


def _start(config: Path, phase: str) -> DriverCost:
    """Runs a phase as its own process on this Ray; returns what it cost."""
    done = subprocess.run(
        [sys.executable, "-m", "sparc_dist.bench.made_up", str(config), phase],
        env={**os.environ, "RAY_ADDRESS": address()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(done.stderr.strip())
    return DriverCost(**json.loads(done.stdout.splitlines()[-1]))
