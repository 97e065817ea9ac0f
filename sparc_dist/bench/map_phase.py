"""The map phase, from JPEG files to stored scores, beside a bare loop of the same model."""

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

from sparc_dist.backbones.counting import cost_of
from sparc_dist.backbones.models import Backbone
from sparc_dist.bench.decode import decode_seconds
from sparc_dist.bench.inputs import manifest_rows, photos
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import TINY, BackboneConfig, ResourcesConfig
from sparc_dist.datasets import images_table, write_images
from sparc_dist.errors import UserError
from sparc_dist.images.reading import decode_shard
from sparc_dist.pipeline.cluster import capacity, cluster
from sparc_dist.pipeline.map_phase import MapPhase
from sparc_dist.pipeline.passes import remote, share
from sparc_dist.pipeline.waiting import get_with_timeout
from sparc_dist.pipeline.write import Target
from sparc_dist.planning import Scorers
from sparc_dist.prompts import TextEmbeddings
from sparc_dist.runs import Provenance, RunLayout

LIMIT = 3600.0  # seconds without one finished shard
PHOTOS = 128  # that differ; more images are the same again


@dataclass(frozen=True)
class Sizes:
    """A shard is one batch, so that both ways see the same batches."""

    model: str
    batch: int
    shards: int
    classes: int
    compounds: int
    rounds: int

    @property
    def images(self) -> int:
        """Those of all shards."""
        return self.batch * self.shards


FULL = Sizes("ViT-B-32-quickgelu", 64, 9, 80, 1500, 3)
QUICK = Sizes(TINY, 8, 3, 8, 30, 1)


def measure(setting: BenchSetting) -> str:
    """The map phase and the bare loop in turn, with all cores of this machine each."""
    sizes = QUICK if setting.quick else FULL
    with cluster(ResourcesConfig()), TemporaryDirectory() as folder:
        cores = int(capacity().cpus)
        backbone = _backbone(sizes.model, Path(folder))
        rows = manifest_rows(photos(setting, PHOTOS, folder), sizes.images)
        phase = _phase(backbone, rows, sizes, folder)
        loops, mapped = [_bare(backbone, rows, sizes.batch, cores)], []
        for _ in range(sizes.rounds):
            mapped.append(_mapped(phase, sizes, Scorers(1, 0, cores)))
            loops.append(_bare(backbone, rows, sizes.batch, cores))
    # Beside the loops right before and after, for the machine may be another from minute to minute.
    pairs = [fmean((before.rate, after.rate)) for before, after in pairwise(loops)]
    ratios = sorted(each.rate / pair for each, pair in zip(mapped, pairs, strict=True))
    rate = median(each.rate for each in mapped)
    decoding = rate * median(each.decoding for each in loops) / cores
    lost = rate * median(each.start_up for each in mapped)
    gflops = cost_of(backbone).gflop * rate / cores
    return block(
        f"map phase of {sizes.images} photos under {sizes.model}, JPEG files to stored scores, one "
        f"scorer with {cores} threads on {cores} CPUs; a bare loop over the same pixels in memory",
        {
            "images/s of the map phase / of the loop": f"{median(ratios):.2f}",
            f"lowest of {sizes.rounds} rounds": f"{ratios[0]:.2f}",
            f"highest of {sizes.rounds} rounds": f"{ratios[-1]:.2f}",
            "with all decoding counted on top": f"{median(ratios) / (1 + decoding):.2f}",
            "images that a scorer's start costs": f"{lost:.0f}",
            "GFLOP/s of a core (plan --core-gflops)": f"{gflops:.3g}",
        },
    )


def _backbone(model: str, folder: Path) -> BackboneConfig:
    """A model with random weights, in a file as anyone's are; this package's has its own."""
    if model == TINY:
        return BackboneConfig(name="bench", model=model)
    path = folder / "random.pt"
    torch.save(open_clip.CLIP(**open_clip.get_model_config(model)).state_dict(), path)
    return BackboneConfig(name="bench", model=model, weights=str(path))


def _phase(
    backbone: BackboneConfig, rows: Sequence[Mapping[str, str]], sizes: Sizes, folder: str
) -> MapPhase:
    """The map phase on these images, with prompts as they may be and no text tower."""
    data = RunLayout(folder).dataset("bench")
    ids, uris = ([row[name] for row in rows] for name in ("image_id", "uri"))
    write_images([images_table(ids, uris, [None] * len(rows))], data.images, sizes.batch)
    cost = cost_of(backbone)
    counts = (sizes.classes, sizes.classes, sizes.compounds)
    texts = TextEmbeddings(*(_directions(count, cost.width) for count in counts))
    target = Target(data.unit(backbone.name), Provenance("", "", "", "cpu"))
    return MapPhase(
        data,
        (backbone,),
        {backbone.name: cost.image_size},
        {backbone.name: target},
        share({backbone.name: texts}),
        sizes.batch,
    )


def _directions(count: int, width: int) -> NDArray[np.float32]:
    """Random rows of length 1, (count, width)."""
    rows = np.random.default_rng(0).standard_normal((count, width)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


@dataclass(frozen=True)
class Mapped:
    """rate: images/s from the first finished shard to the last. start_up: seconds before them."""

    rate: float
    start_up: float


def _mapped(phase: MapPhase, sizes: Sizes, scorers: Scorers) -> Mapped:
    names = [backbone.name for backbone in phase.backbones]
    todo = dict.fromkeys(range(sizes.shards), names)
    start = time.perf_counter()
    ends = []
    for shard in phase.run(todo, scorers, scorers.threads, LIMIT):
        for told in shard.failures.values():
            raise UserError(told)
        ends.append(time.perf_counter() - start)
    each = (ends[-1] - ends[0]) / (sizes.shards - 1)
    return Mapped(sizes.batch / each, ends[0] - each)


@dataclass(frozen=True)
class Bare:
    """rate: images/s of the loop. decoding: what it was spared, in a core's seconds an image."""

    rate: float
    decoding: float


def _bare(
    backbone: BackboneConfig, rows: Sequence[Mapping[str, str]], batch: int, cores: int
) -> Bare:
    """The loop on a worker of the same Ray, with all cores."""
    task = remote(_loop, cpus=cores)
    found: Bare = get_with_timeout(
        task.remote(backbone, rows, batch, cores), LIMIT, "The bare loop"
    )
    return found


@torch.inference_mode()
def _loop(
    config: BackboneConfig, rows: Sequence[Mapping[str, str]], batch: int, cores: int
) -> Bare:
    """What anyone would write first: batch after batch through the model, and nothing else."""
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
        start = start or time.perf_counter()  # after the first, whose batch comes again
    return Bare(len(rows) / (time.perf_counter() - start), decoding)
