"""The demo's input: drawn scenes as JPEG files, their labels, and a config to run on them."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from sparc_dist.config import TINY
from sparc_dist.demo.objects import CLASSES
from sparc_dist.demo.scenes import SPLITS, draw_scene

#: Number of scenes per scored scene whose labels determine the prompts.
OTHERS = 2
#: So many scenes are drawn sooner than another process starts.
FEW = 100
JPEG_QUALITY = 90


def write_demo(out: str, images: int) -> str:
    """Writes the demo's input below ``out``/input, and its config. Returns the config's path."""
    folder = Path(out) / "input"
    folder.mkdir(parents=True, exist_ok=True)
    test = SPLITS["test"][:images]
    manifest = folder / f"test-{len(test)}.parquet"
    others = SPLITS["cooccurrence"][: OTHERS * images]
    labels = folder / f"cooccurrence-{len(others)}.parquet"
    if not manifest.exists():
        print(f"drawing {len(test):,} test scenes", file=sys.stderr, flush=True)
        paths = [folder / "scenes" / f"{seed}.jpg" for seed in test]
        paths[0].parent.mkdir(exist_ok=True)
        names = [path.name for path in paths]
        uris = [f"scenes/{name}" for name in names]
        _write(manifest, {"image_id": names, "uri": uris, "labels": _draw(test, paths)})
    if not labels.exists():
        print(f"drawing {len(others):,} scenes for co-occurrence", file=sys.stderr, flush=True)
        _write(labels, {"labels": _draw(others, [None] * len(others))})
    config = Path(out) / "demo.yaml"
    config.write_text(yaml.safe_dump(_config(manifest, labels), sort_keys=False))
    return str(config)


def _config(manifest: Path, labels: Path) -> dict[str, object]:
    """Returns the demo's config as a user would write it; paths are relative to the config."""
    return {
        "output": ".",
        "datasets": [
            {
                "name": "scenes",
                "kind": "manifest",
                "images": f"input/{manifest.name}",
                "classes": list(CLASSES),
                "templates": "openai",  # the paper's, so that the demo's figures are comparable
                "prompts": {"source": "labels", "labels": f"input/{labels.name}"},
            }
        ],
        "backbones": [{"name": TINY, "model": TINY}],
    }


def _draw(seeds: Sequence[int], paths: Sequence[Path | None]) -> list[list[int]]:
    """Draws scenes, many of them on all cores. Saves those with a path. Returns their labels."""
    if len(seeds) <= FEW:
        return list(map(_draw_one, seeds, paths))
    # Not forked: the fork of a process with threads, such as those of torch and Arrow, may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as workers:
        return list(workers.map(_draw_one, seeds, paths, chunksize=FEW))


def _draw_one(seed: int, path: Path | None) -> list[int]:
    scene = draw_scene(seed)
    if path is not None:
        scene.image.save(path, "JPEG", quality=JPEG_QUALITY)
    return list(scene.labels)


def _write(path: Path, columns: Mapping[str, object]) -> None:
    """Writes a table; the file appears only when it is complete."""
    temporary = path.with_suffix(".tmp")
    pq.write_table(pa.table(columns), temporary)
    temporary.rename(path)
