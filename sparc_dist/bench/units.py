"""Units: backbones that go through the images together, beside one after the other."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from sparc_dist import storage
from sparc_dist.bench.inputs import manifest_rows, photos, tiny_config, write_manifest
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import Config, ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.pipeline.cluster import cluster
from sparc_dist.runner import run
from sparc_dist.runs import RunLayout

CLASSES = 8
PHOTOS = 128  # that differ; more images are the same again


def measure(setting: BenchSetting) -> str:
    """The same run twice on one Ray: as it is planned, and with one backbone a scorer."""
    count, images, shard = (2, 16, 8) if setting.quick else (9, 2048, 128)
    with cluster(ResourcesConfig()), TemporaryDirectory() as folder:
        manifest = Path(folder, "manifest.parquet")
        write_manifest(manifest_rows(photos(setting, PHOTOS, folder), images), None, manifest)
        config = tiny_config(manifest, count, CLASSES, shard)
        together, apart = _with(config, "together", None), _with(config, "apart", 1)
        if not setting.quick:  # workers start once in a Ray's life
            _seconds(_with(config, "warm-up", None))
        ratio = _seconds(together) / _seconds(apart)
        pairs = list(zip(_final_scores(together), _final_scores(apart), strict=True))
    return block(
        f"{count} units of a small model on {images:,} photos, all together and one after the "
        "other on the same Ray, from images to final scores",
        {
            "time of together / of one after the other": f"{ratio:.2f}",
            f"of {len(pairs)} files of final scores differ": f"{sum(a != b for a, b in pairs)}",
        },
    )


def _with(config: Config, output: str, most: int | None) -> Config:
    """The same run into another folder, with at most so many backbones a scorer."""
    resources = config.resources.model_copy(update={"backbones_per_scorer": most})
    output = storage.join(config.output, output)
    return config.model_copy(update={"output": output, "resources": resources})


def _seconds(config: Config) -> float:
    start = time.perf_counter()
    for told in run(config).failures.values():
        raise UserError(told)
    return time.perf_counter() - start


def _final_scores(config: Config) -> list[bytes]:
    """The files of every shard of every unit."""
    data = RunLayout(config.output).dataset(config.datasets[0].name)
    shards = range(len(storage.row_group_sizes(data.images)))
    units = [data.unit(backbone.name) for backbone in config.backbones]
    return [storage.read_bytes(unit.final(shard)) for unit in units for shard in shards]
