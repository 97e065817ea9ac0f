"""The map phase, from JPEG files to stored scores, compared with a bare loop of the model."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray

from sparc_dist.backbones import cost_of
from sparc_dist.backbones.models import Backbone
from sparc_dist.bench.decode import decode_seconds
from sparc_dist.bench.inputs import manifest_rows, photos
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import MAX_IMAGE_BYTES, TINY, BackboneConfig, ResourcesConfig
from sparc_dist.datasets import images_table, write_images
from sparc_dist.errors import UserError
from sparc_dist.images.reading import decode_shard
from sparc_dist.pipeline.embed import Loaded
from sparc_dist.pipeline.executor import capacity, executor, get, share, submit
from sparc_dist.pipeline.map_phase import MapPhase
from sparc_dist.pipeline.todo import Todo
from sparc_dist.pipeline.write import Target
from sparc_dist.planning import Scorers
from sparc_dist.prompts import TextEmbeddings
from sparc_dist.runs import RunLayout
from sparc_dist.runs.shards import ClassNames

LIMIT = 3600.0  # seconds without one finished shard
PHOTOS = 128  # distinct ones; more images repeat them


@dataclass(frozen=True)
class Sizes:
    """Sizes of the benchmark. A shard is one batch, so that both ways see the same batches."""

    model: str
    batch: int
    shards: int
    classes: int
    compounds: int
    rounds: int

    @property
    def images(self) -> int:
        """The number of images in all shards."""
        return self.batch * self.shards


FULL = Sizes("ViT-B-32-quickgelu", 64, 9, 80, 1500, 3)
QUICK = Sizes(TINY, 8, 3, 8, 30, 1)


def measure(setting: BenchSetting) -> str:
    """Runs the map phase and the bare loop alternately, each with all cores of this machine."""
    sizes = QUICK if setting.quick else FULL
    with executor(ResourcesConfig()), TemporaryDirectory() as folder:
        cores = int(capacity().cpus)
        backbone = random_backbone(sizes.model, Path(folder))
        rows = manifest_rows(photos(setting, PHOTOS, folder), sizes.images)
        phase = _phase(backbone, rows, sizes, folder)
        loops, mapped = [_time_loop(backbone, rows, sizes.batch, cores)], []
        for _ in range(sizes.rounds):
            mapped.append(_time_map_phase(phase, sizes, Scorers(1, 0, cores)))
            loops.append(_time_loop(backbone, rows, sizes.batch, cores))
    # Compare with the loops just before and after, because the machine's speed may change.
    pairs = [fmean((before.rate, after.rate)) for before, after in pairwise(loops)]
    ratios = sorted(each.rate / pair for each, pair in zip(mapped, pairs, strict=True))
    rate = median(each.rate for each in mapped)
    decoding = rate * median(each.decoding for each in loops) / cores
    start_up = rate * median(each.start_up for each in mapped)
    gflops = cost_of(backbone).gflop * rate / cores
    return block(
        f"map phase of {sizes.images} photos under {sizes.model}, JPEG files to stored scores, one "
        f"scorer with {cores} threads on {cores} CPUs, compared with a bare loop over pixels in "
        "memory",
        {
            "images/s, map phase / loop": f"{median(ratios):.2f}",
            f"lowest of {sizes.rounds} rounds": f"{ratios[0]:.2f}",
            f"highest of {sizes.rounds} rounds": f"{ratios[-1]:.2f}",
            "if decoding took extra time": f"{median(ratios) / (1 + decoding):.2f}",
            "start-up of a scorer, in images": f"{start_up:.0f}",
            "GFLOP/s per core (plan --core-gflops)": f"{gflops:.3g}",
        },
    )


def random_backbone(model: str, folder: Path) -> BackboneConfig:
    """Returns a backbone with random weights in a file; the bundled model has its own weights."""
    if model == TINY:
        return BackboneConfig(name="bench", model=model)
    path = folder / "random.pt"
    torch.save(open_clip.CLIP(**open_clip.get_model_config(model)).state_dict(), path)
    return BackboneConfig(name="bench", model=model, weights=str(path))


def _phase(
    backbone: BackboneConfig, rows: Sequence[Mapping[str, str]], sizes: Sizes, folder: str
) -> MapPhase:
    """Returns the map phase on these images, with random prompt embeddings."""
    data = RunLayout(folder).dataset("bench")
    ids, uris = ([row[name] for row in rows] for name in ("image_id", "uri"))
    write_images([images_table(ids, uris, [None] * len(rows))], data, sizes.batch)
    cost = cost_of(backbone)
    counts = (sizes.classes, sizes.classes, sizes.compounds)
    texts = TextEmbeddings(*(random_directions(count, cost.width) for count in counts))
    target = Target(data.unit(backbone.name), "", "", ClassNames(()))
    weights = Backbone(backbone).weights_sha256
    return MapPhase(
        data,
        (backbone,),
        {backbone.name: cost.image_size},
        {backbone.name: target},
        [share({backbone.name: (texts, Loaded({}, weights, "cpu", 0.0))})],
        sizes.batch,
        jpeg_scaling=True,
        max_image_bytes=MAX_IMAGE_BYTES,
    )


def random_directions(count: int, width: int) -> NDArray[np.float32]:
    """Returns random rows of length 1, (count, width)."""
    rows = np.random.default_rng(0).standard_normal((count, width)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


@dataclass(frozen=True)
class MapTime:
    """rate: images/s from the first finished shard to the last. start_up: seconds before that."""

    rate: float
    start_up: float


def _time_map_phase(phase: MapPhase, sizes: Sizes, scorers: Scorers) -> MapTime:
    todo = Todo({backbone.name: np.arange(sizes.shards) for backbone in phase.backbones})
    start = time.perf_counter()
    ends = []
    for shard in phase.run(todo, scorers, scorers.threads, LIMIT):
        for reason in shard.failures.values():
            raise UserError(reason)
        ends.append(time.perf_counter() - start)
    each = (ends[-1] - ends[0]) / (sizes.shards - 1)
    return MapTime(sizes.batch / each, ends[0] - each)


@dataclass(frozen=True)
class LoopTime:
    """rate: images/s of the loop. decoding: CPU seconds per image, not part of the rate."""

    rate: float
    decoding: float


def _time_loop(
    backbone: BackboneConfig, rows: Sequence[Mapping[str, str]], batch: int, cores: int
) -> LoopTime:
    """Runs the loop on a worker of the same Ray, with all cores."""
    found: LoopTime = get(
        submit(_loop, backbone, rows, batch, cores, cpus=cores), LIMIT, "The bare loop"
    )
    return found


@torch.inference_mode()
def _loop(
    config: BackboneConfig, rows: Sequence[Mapping[str, str]], batch: int, cores: int
) -> LoopTime:
    """Encodes batch after batch and does nothing else, like a minimal script."""
    torch.set_num_threads(cores)
    backbone = Backbone(config)
    model, side = backbone.model, backbone.image_size
    decoding = decode_seconds(rows[:batch], [side]) / batch
    pixels = torch.tensor(decode_shard(rows, [side]).squares[side])
    mean, std = (
        255 * torch.tensor(values).view(1, 3, 1, 1)
        for values in (model.visual.image_mean, model.visual.image_std)
    )
    start = 0.0
    for part in (pixels[:batch], *torch.split(pixels, batch)):
        model.encode_image((part.permute(0, 3, 1, 2).float() - mean) / std)
        start = start or time.perf_counter()  # after the first batch, a warm-up that is repeated
    return LoopTime(len(rows) / (time.perf_counter() - start), decoding)
