"""Made-up inputs: photos, a manifest that repeats them, a config, weights and embeddings."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sparc_dist.config import TINY, BackboneConfig
from sparc_dist.demo.objects import CLASSES
from sparc_dist.demo.scenes import SPLITS, draw_scene
from sparc_dist.images import SUFFIXES

#: As in VOC and COCO.
PHOTO_SIZES = ((500, 375), (640, 480))
#: SD of the noise, in grey levels, that makes a JPEG as large as those of VOC and COCO.
GRAIN = 12.0


def photos(own: str, count: int, folder: str) -> list[str]:
    """Returns the paths of at most ``count`` photos: those below ``own``, or drawn ones if empty.

    folder: where photos are drawn.
    """
    if not own:
        seeds = SPLITS["validation"][:count]
        return [_write_photo(Path(folder, f"{seed}.jpg"), seed) for seed in seeds]
    below = sorted(path for path in Path(own).rglob("*") if path.suffix.lower() in SUFFIXES)
    if not below:
        sys.exit(f"There is no image below {own}; name a folder of photos.")
    return [str(path.resolve()) for path in below[:count]]


def _write_photo(path: Path, seed: int) -> str:
    """Writes a drawn scene at a photo's size, with grain because smooth JPEGs decode faster."""
    size = PHOTO_SIZES[seed % len(PHOTO_SIZES)]
    scene = draw_scene(seed).image.resize(size, Image.Resampling.BICUBIC)
    grain = np.random.default_rng(seed).normal(0, GRAIN, (scene.height, scene.width, 1))
    pixels = np.clip(np.asarray(scene) + grain, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(path, quality=90)
    return str(path)


def manifest_rows(files: Sequence[str], images: int) -> list[dict[str, str]]:
    """Returns ``images`` rows of image_id and uri that repeat the files under new ids."""
    return [
        {"image_id": f"{number:08d}", "uri": uri}
        for number, uri in enumerate(islice(cycle(files), images))
    ]


def write_config(path: Path, dataset: Mapping[str, Any], **fields: Any) -> Path:
    """Writes a config of one data set, by default with the bundled model; returns its path.

    Its run has the config's name without the suffix. fields: of the config.
    """
    config = {
        "output": str(path.with_suffix("")),
        "datasets": [{"name": "made-up", "classes": CLASSES[:4], **dataset}],
        "backbones": [{"name": "tiny", "model": TINY}],
        "resources": {"scorers": 1, "gpus_per_scorer": 0},
    }
    path.write_text(json.dumps(config | fields))
    return path


def random_backbone(model: str, folder: str) -> BackboneConfig:
    """Returns a backbone with random weights in a file; the bundled model has its own weights."""
    if model == TINY:
        return BackboneConfig(name="made-up", model=model)
    import open_clip
    import torch

    path = Path(folder, "random.pt")
    torch.save(open_clip.CLIP(**open_clip.get_model_config(model)).state_dict(), path)
    return BackboneConfig(name="made-up", model=model, weights=str(path))


def random_directions(count: int, width: int) -> NDArray[np.float32]:
    """Returns random rows of length 1, (count, width)."""
    rows = np.random.default_rng(0).standard_normal((count, width)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows
