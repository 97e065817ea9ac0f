"""Growth: a run beside the same one with four times the images."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from sparc_dist import storage
from sparc_dist.bench.inputs import manifest_rows, tiny_config, write_manifest
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import ResourcesConfig
from sparc_dist.demo.scenes import SPLITS, draw_scene
from sparc_dist.errors import UserError
from sparc_dist.pipeline.cluster import address, cluster
from sparc_dist.runs import STAGES, RunLayout, UnitLayout

TIMES = 4
CLASSES = 28
SCENES = 64  # that differ; more images are the same again
SECONDS_BETWEEN_LOOKS = 0.05


@dataclass(frozen=True)
class Taken:
    """What a run takes: seconds an image of each phase, and its driver's bytes at their peak."""

    map: float
    reduce: float
    driver: int


def measure(setting: BenchSetting) -> str:
    """Runs on one Ray, each with a driver of its own: a small, a large, and the small again."""
    images, shard = (16, 4) if setting.quick else (16384, 64)
    with cluster(ResourcesConfig()), TemporaryDirectory() as folder:
        if not setting.quick:  # workers start once in a Ray's life
            _run(Path(folder, "warm-up"), 8 * shard, shard)
        few = [_run(Path(folder, "before"), images, shard)]
        many = _run(Path(folder, "many"), TIMES * images, shard)
        if not setting.quick:  # the machine may be another from minute to minute
            few.append(_run(Path(folder, "after"), images, shard))
    driver = max(each.driver for each in few)
    added = (TIMES - 1) * images // shard
    ratios = {
        "seconds an image of the map phase": many.map / fmean(each.map for each in few),
        "seconds an image of the reduce": many.reduce / fmean(each.reduce for each in few),
        "memory of the driver at its peak": many.driver / driver,
    }
    return block(
        f"growth: a small model on {images:,} images, and on {TIMES} times as many",
        {
            **{f"{name}, {TIMES} × / 1 ×": f"{ratio:.2f}" for name, ratio in ratios.items()},
            "KB of it that each shard adds": f"{(many.driver - driver) / 1e3 / added:.1f}",
        },
    )


def _run(folder: Path, images: int, shard: int) -> Taken:
    """A run of so many images: few files, named again and again."""
    folder.mkdir()
    files, labels = [], []
    for seed in SPLITS["test"][: min(SCENES, images)]:
        scene = draw_scene(seed)
        files.append(str(folder / f"{seed}.jpg"))
        labels.append(scene.labels)
        scene.image.save(files[-1])
    manifest = folder / "manifest.parquet"
    write_manifest(manifest_rows(files, images), labels, manifest)
    config = tiny_config(manifest, 1, CLASSES, shard)
    path = folder / "config.yaml"
    path.write_text(config.model_dump_json())
    driver = _peak_of_driver(path)
    unit = RunLayout(config.output).dataset("bench").unit(config.backbones[0].name)
    stages = storage.read_json(unit.metrics)["stages"]
    reduce = sum(stages[stage]["seconds"] for stage in STAGES)
    return Taken(_steady(unit, images, shard), reduce / images, driver)


def _steady(unit: UnitLayout, images: int, shard: int) -> float:
    """Seconds an image of the map phase, by the times of its markers.

    Of the second half: while the scorer started, others decoded for the first.
    """
    shards = range(images // shard)
    ends = sorted(os.stat(unit.marker(number)).st_mtime for number in shards)
    half = ends[len(ends) // 2 - 1 :]
    return (half[-1] - half[0]) / (shard * (len(half) - 1))


def _peak_of_driver(config: Path) -> int:
    """Run a config as a user would, on this Ray; gives the bytes its process took at most."""
    env = {**os.environ, "RAY_ADDRESS": address()}
    command = [sys.executable, "-m", "sparc_dist", "run", str(config)]
    told = config.with_name("told.txt")
    peak = 0
    with (
        told.open("w") as to,
        subprocess.Popen(command, stdout=to, stderr=to, env=env) as process,
    ):
        while process.poll() is None:
            peak = max(peak, _high_water(process.pid))
            time.sleep(SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        raise UserError(told.read_text().strip())
    return peak


def _high_water(pid: int) -> int:
    """The most bytes of memory that a process has had so far, as Linux tells; 0 when it is gone.

    Not what getrusage says of a child: that counts what its parent had when it was started.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    lines = (line.split() for line in status.splitlines())
    return 1024 * int(next((line[1] for line in lines if line[0] == "VmHWM:"), 0))
