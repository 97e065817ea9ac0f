"""The inputs of benchmarks: photos, a manifest that repeats them, and a config."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from sparc_dist.bench.setting import BenchSetting
from sparc_dist.config import TINY, Config
from sparc_dist.demo.objects import CLASSES
from sparc_dist.demo.scenes import SPLITS, draw_scene
from sparc_dist.errors import UserError
from sparc_dist.images import SUFFIXES
from sparc_dist.images.decoding import BadImage, decode

#: As in VOC and COCO.
PHOTO_SIZES = ((500, 375), (640, 480))
#: SD of the noise, in grey levels, that makes a JPEG as large as those of VOC and COCO.
GRAIN = 12.0
QUALITY = 90


def photos(setting: BenchSetting, count: int, folder: str) -> list[str]:
    """Returns the paths of at most ``count`` photos: the user's, or ones drawn in ``folder``."""
    if setting.photos is None:
        seeds = SPLITS["validation"][:count]
        shapes = [PHOTO_SIZES[seed % len(PHOTO_SIZES)] for seed in seeds]
        return [write_photo(Path(folder), *of) for of in zip(seeds, shapes, strict=True)]
    below = sorted(Path(setting.photos).rglob("*"))
    found = [str(path) for path in islice(filter(_is_photo, below), count)]
    if not found:
        raise UserError(f"There is no image below {setting.photos}; name a folder of photos.")
    return [os.path.abspath(path) for path in found]


def _is_photo(path: Path) -> bool:
    """Whether a file is a readable image; others would be counted but cost nothing."""
    try:
        return path.suffix.lower() in SUFFIXES and bool(decode(path.read_bytes(), 8).size)
    except (BadImage, OSError):
        return False


def write_photo(folder: Path, seed: int, size: tuple[int, int], noise: float = GRAIN) -> str:
    """Writes a drawn scene at a photo's size, with grain because smooth JPEGs decode faster."""
    scene = draw_scene(seed).image.resize(size, Image.Resampling.BICUBIC)
    grain = np.random.default_rng(seed).normal(0, noise, (scene.height, scene.width, 1))
    pixels = np.clip(np.asarray(scene) + grain, 0, 255).astype(np.uint8)
    path = folder / f"{seed}.jpg"
    Image.fromarray(pixels).save(path, quality=QUALITY)
    return str(path)


def manifest_rows(files: Sequence[str], images: int) -> list[dict[str, str]]:
    """Returns ``images`` rows of image_id and uri that repeat the files under new ids."""
    return [
        {"image_id": f"{number:08d}", "uri": uri}
        for number, uri in enumerate(islice(cycle(files), images))
    ]


def write_manifest(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Writes the rows as a manifest."""
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def tiny_config(manifest: Path, backbones: int, classes: int, shard_size: int) -> Config:
    """Returns a config of the bundled model under several names, with one scorer on the CPU."""
    return Config.model_validate(
        {
            "output": str(manifest.with_name("run")),
            "datasets": [{"name": "bench", "images": str(manifest), "classes": CLASSES[:classes]}],
            "backbones": [{"name": f"tiny-{number}", "model": TINY} for number in range(backbones)],
            "shard_size": shard_size,
            "resources": {"scorers": 1, "gpus_per_scorer": 0},
        }
    )
