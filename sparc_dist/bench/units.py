"""Units: backbones that process the images together, compared with one after the other."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from sparc_dist import storage
from sparc_dist.bench.inputs import manifest_rows, photos, tiny_config, write_manifest
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import Config, ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import executor
from sparc_dist.runner import run
from sparc_dist.runs import RunLayout
from sparc_dist.runs.image_list import shard_sizes

CLASSES = 8
PHOTOS = 128  # distinct ones; more images repeat them


def measure(setting: BenchSetting) -> str:
    """Makes the same run twice on one Ray: as planned, and with one backbone per scorer."""
    count, images, shard = (2, 16, 8) if setting.quick else (9, 2048, 128)
    with executor(ResourcesConfig()), TemporaryDirectory() as folder:
        manifest = Path(folder, "manifest.parquet")
        write_manifest(manifest_rows(photos(setting, PHOTOS, folder), images), manifest)
        config = tiny_config(manifest, count, CLASSES, shard)
        together, apart = _with(config, "together", None), _with(config, "apart", 1)
        if not setting.quick:  # the first run also starts Ray's workers
            _seconds(_with(config, "warm-up", None))
        ratio = _seconds(together) / _seconds(apart)
        pairs = list(zip(_final_scores(together), _final_scores(apart), strict=True))
    return block(
        f"{count} units of a small model on {images:,} photos, all together compared with one "
        "after the other on the same Ray, from images to final scores",
        {
            "time, together / one after the other": f"{ratio:.2f}",
            f"different files of final scores, of {len(pairs)}": f"{sum(a != b for a, b in pairs)}",
        },
    )


def _with(config: Config, output: str, limit: int | None) -> Config:
    """Returns the same run in another folder, with at most ``limit`` backbones per scorer."""
    resources = config.resources.model_copy(update={"backbones_per_scorer": limit})
    output = storage.join(config.output, output)
    return config.model_copy(update={"output": output, "resources": resources})


def _seconds(config: Config) -> float:
    start = time.perf_counter()
    for reason in run(config).failures.values():
        raise UserError(reason)
    return time.perf_counter() - start


def _final_scores(config: Config) -> list[bytes]:
    """Returns the content of the files of final scores of all units."""
    data = RunLayout(config.output).dataset(config.datasets[0].name)
    shards = range(len(shard_sizes(data)))
    units = [data.unit(backbone.name) for backbone in config.backbones]
    return [storage.read_bytes(unit.final(shard)) for unit in units for shard in shards]
