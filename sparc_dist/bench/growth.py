"""Growth: a run compared with the same run on four times the images."""

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
from sparc_dist.pipeline.cluster import address
from sparc_dist.pipeline.executor import executor
from sparc_dist.runs import STAGES, RunLayout, UnitLayout

TIMES = 4
CLASSES = 28
SCENES = 64  # distinct ones; more images repeat them
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class RunCost:
    """Seconds per image of each phase of a run. driver: peak memory of the driver in bytes."""

    map: float
    reduce: float
    driver: int


def measure(setting: BenchSetting) -> str:
    """Makes a small, a large and again the small run on one Ray, each with its own driver."""
    images, shard = (16, 4) if setting.quick else (16384, 64)
    with executor(ResourcesConfig()), TemporaryDirectory() as folder:
        if not setting.quick:  # the first run also starts Ray's workers
            _run(Path(folder, "warm-up"), 8 * shard, shard)
        few = [_run(Path(folder, "before"), images, shard)]
        many = _run(Path(folder, "many"), TIMES * images, shard)
        if not setting.quick:  # the machine's speed may change from minute to minute
            few.append(_run(Path(folder, "after"), images, shard))
    driver = max(each.driver for each in few)
    added = (TIMES - 1) * images // shard
    ratios = {
        "seconds per image, map phase": many.map / fmean(each.map for each in few),
        "seconds per image, reduce": many.reduce / fmean(each.reduce for each in few),
        "peak memory of the driver": many.driver / driver,
    }
    return block(
        f"growth: a small model on {images:,} images, compared with {TIMES} times as many",
        {
            **{f"{name}, {TIMES} × / 1 ×": f"{ratio:.2f}" for name, ratio in ratios.items()},
            "KB of driver memory per added shard": f"{(many.driver - driver) / 1e3 / added:.1f}",
        },
    )


def _run(folder: Path, images: int, shard: int) -> RunCost:
    """Runs a config on this number of images, which repeat a few files."""
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
    driver = _driver_peak(path)
    unit = RunLayout(config.output).dataset("bench").unit(config.backbones[0].name)
    stages = storage.read_json(unit.metrics)["stages"]
    reduce = sum(stages[stage]["seconds"] for stage in STAGES)
    return RunCost(_map_seconds(unit, images, shard), reduce / images, driver)


def _map_seconds(unit: UnitLayout, images: int, shard: int) -> float:
    """Returns the seconds per image of the map phase, from the times of its markers.

    Uses the second half only: images of the first were decoded while the scorer started.
    """
    shards = range(images // shard)
    ends = sorted(os.stat(unit.marker(number)).st_mtime for number in shards)
    half = ends[len(ends) // 2 - 1 :]
    return (half[-1] - half[0]) / (shard * (len(half) - 1))


def _driver_peak(config: Path) -> int:
    """Runs a config as a user would, on this Ray. Returns the peak memory of its process."""
    env = {**os.environ, "RAY_ADDRESS": address()}
    command = [sys.executable, "-m", "sparc_dist", "run", str(config)]
    log = config.with_name("log.txt")
    peak = 0
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=env) as process,
    ):
        while process.poll() is None:
            peak = max(peak, peak_so_far(process.pid))
            time.sleep(POLL_SECONDS)
    if process.returncode:
        raise UserError(log.read_text().strip())
    return peak


def peak_so_far(pid: int) -> int:
    """Returns the peak memory of a process in bytes, as Linux reports it; 0 if it has ended.

    Does not use getrusage, which for a child includes the memory of its parent at the start.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    lines = (line.split() for line in status.splitlines())
    return 1024 * int(next((line[1] for line in lines if line[0] == "VmHWM:"), 0))
