"""How much of the speed of a model, and of decoding, the map phase reaches.

Runs the map phase, from JPEG files to stored scores, on Ray with one scorer on all CPUs. Compares
it with a bare loop of the same model over pixels in memory and with decoding alone. A large model
shows what the phase costs beside encoding; with --model sparc-tiny, decoding is the limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from tempfile import TemporaryDirectory

import numpy as np
import torch

from made_up import manifest_rows, photos, random_backbone, random_directions
from measuring import option, options_of, report
from sparc_dist.backbones import cost_of
from sparc_dist.backbones.models import Backbone
from sparc_dist.config import MAX_IMAGE_BYTES, BackboneConfig, ResourcesConfig
from sparc_dist.datasets import images_table, write_images
from sparc_dist.errors import UserError
from sparc_dist.images.reading import decode_shard
from sparc_dist.pipeline.embed import Loaded
from sparc_dist.pipeline.executor import capacity, executor, get, share, submit
from sparc_dist.pipeline.map_phase import MapPhase, Todo
from sparc_dist.pipeline.steps import Target
from sparc_dist.planning import Scorers
from sparc_dist.prompts import TextEmbeddings
from sparc_dist.runs import RunLayout
from sparc_dist.runs.shards import ClassNames

LIMIT = 3600.0  # seconds without one finished shard
PHOTOS = 128  # distinct ones; more images repeat them
PROMPTS = (80, 80, 1500)  # singleton, auxiliary and compound, as on COCO

Rows = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Options:
    """The options. A shard is one batch, so that both ways see the same batches."""

    model: str = option("ViT-B-32-quickgelu", "of open_clip, with random weights, or sparc-tiny")
    batch: int = option(64, "images of a batch, which is a shard")
    shards: int = option(9, "number of shards")
    rounds: int = option(3, "how often the phase runs between two loops")
    photos: str = option("", "folder of your own photos (default: drawn ones)")


@dataclass(frozen=True)
class LoopTime:
    """rate: images/s of the loop. decoding: CPU seconds per image, not part of the rate."""

    rate: float
    decoding: float


@dataclass(frozen=True)
class MapTime:
    """rate: images/s from the first finished shard to the last. start_up: seconds before that."""

    rate: float
    start_up: float


def main() -> None:
    """Runs the map phase and the bare loop alternately, each with all CPUs of this machine."""
    options = options_of(Options, __doc__)
    images = options.batch * options.shards
    with executor(ResourcesConfig()), TemporaryDirectory() as folder:
        # A Ray may declare more CPUs than there are; threads without a core slow a model down.
        cores = min(int(capacity().cpus), os.cpu_count() or 1)
        backbone = random_backbone(options.model, folder)
        rows = manifest_rows(photos(options.photos, min(PHOTOS, images), folder), images)
        phase = _phase(backbone, rows, options.batch, folder)
        loops, mapped = [_time_loop(backbone, rows, options.batch, cores)], []
        for _ in range(options.rounds):
            mapped.append(_time_map_phase(phase, options, Scorers(1, 0, cores)))
            loops.append(_time_loop(backbone, rows, options.batch, cores))
    report(
        f"map phase of {images} photos under {options.model}, one scorer with {cores} threads on "
        f"{cores} CPUs",
        _figures(mapped, loops, cores, cost_of(backbone).gflop),
    )


def _figures(
    mapped: Sequence[MapTime], loops: Sequence[LoopTime], cores: int, gflop: float
) -> dict[str, str]:
    # Compare with the loops just before and after, because the machine's speed may change.
    pairs = [fmean((before.rate, after.rate)) for before, after in pairwise(loops)]
    ratios = sorted(each.rate / pair for each, pair in zip(mapped, pairs, strict=True))
    rate = median(each.rate for each in mapped)
    decoding = median(each.decoding for each in loops)
    start_up = rate * median(each.start_up for each in mapped)
    return {
        "images/s, map phase / bare loop": f"{median(ratios):.3g}",
        f"lowest of {len(ratios)} rounds": f"{ratios[0]:.3g}",
        f"highest of {len(ratios)} rounds": f"{ratios[-1]:.3g}",
        "images/s, map phase / decoding alone on all cores": f"{rate * decoding / cores:.3g}",
        "start of a scorer, in images": f"{start_up:.0f}",
        "GFLOP/s per core (plan --core-gflops)": f"{gflop * rate / cores:.3g}",
        "photos decoded per second and core (plan --decodes)": f"{1 / decoding:.3g}",
    }


def _phase(backbone: BackboneConfig, rows: Rows, batch: int, folder: str) -> MapPhase:
    """Returns the map phase on these images, with random prompt embeddings."""
    data = RunLayout(folder).dataset("made-up")
    ids, uris = ([row[name] for row in rows] for name in ("image_id", "uri"))
    write_images([images_table(ids, uris, [None] * len(rows))], data, batch)
    cost, name = cost_of(backbone), backbone.name
    texts = TextEmbeddings(*(random_directions(count, cost.width) for count in PROMPTS))
    weights = Backbone(backbone).weights_sha256
    return MapPhase(
        data,
        (backbone,),
        {name: cost.image_size},
        {name: Target(data.unit(name), "", "", ClassNames(()))},
        [share({name: (texts, Loaded({}, weights, "cpu", 0.0))})],
        batch,
        jpeg_scaling=True,
        max_image_bytes=MAX_IMAGE_BYTES,
    )


def _time_map_phase(phase: MapPhase, options: Options, scorers: Scorers) -> MapTime:
    todo = Todo({backbone.name: np.arange(options.shards) for backbone in phase.backbones})
    start = time.perf_counter()
    ends = []
    for shard in phase.run(todo, scorers, scorers.threads, LIMIT):
        for reason in shard.failures.values():
            raise UserError(reason)
        ends.append(time.perf_counter() - start)
    each = (ends[-1] - ends[0]) / (options.shards - 1)
    return MapTime(options.batch / each, ends[0] - each)


def _time_loop(backbone: BackboneConfig, rows: Rows, batch: int, cores: int) -> LoopTime:
    """Runs the loop on a worker of the same Ray, with all cores."""
    loop = submit(_loop, backbone, rows, batch, cores, cpus=cores)
    found: LoopTime = get(loop, LIMIT, "The bare loop")
    return found


@torch.inference_mode()
def _loop(config: BackboneConfig, rows: Rows, batch: int, cores: int) -> LoopTime:
    """Encodes batch after batch and does nothing else, like a minimal script."""
    torch.set_num_threads(cores)
    backbone = Backbone(config)
    model, side = backbone.model, backbone.image_size
    before = time.process_time()
    pixels = torch.tensor(decode_shard(rows, [side]).squares[side])
    decoding = (time.process_time() - before) / len(rows)
    mean, std = (
        255 * torch.tensor(values).view(1, 3, 1, 1)
        for values in (model.visual.image_mean, model.visual.image_std)
    )
    start = 0.0
    for part in (pixels[:batch], *torch.split(pixels, batch)):
        model.encode_image((part.permute(0, 3, 1, 2).float() - mean) / std)
        start = start or time.perf_counter()  # after the first batch, a warm-up that is repeated
    return LoopTime(len(rows) / (time.perf_counter() - start), decoding)


if __name__ == "__main__":
    main()
