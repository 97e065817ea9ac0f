"""Local features beside global ones: time and memory of scoring, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
import torch

from sparc_dist.backbones import cost_of
from sparc_dist.backbones.models import Backbone, Scorer
from sparc_dist.bench.map_phase import random_backbone, random_directions
from sparc_dist.bench.memory import peak_so_far
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import TINY, BackboneConfig, Features
from sparc_dist.errors import UserError
from sparc_dist.prompts import TextEmbeddings

FEATURES = get_args(Features)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the benchmark. images: of one batch."""

    model: str
    images: int
    prompts: int
    rounds: int


FULL = Sizes("ViT-B-32-quickgelu", 64, 3200, 3)
QUICK = Sizes(TINY, 4, 30, 1)


def measure(setting: BenchSetting) -> str:
    """Scores the same batch with each kind of features, in turn."""
    sizes = QUICK if setting.quick else FULL
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in FEATURES}
    with TemporaryDirectory() as folder:
        plain = random_backbone(sizes.model, Path(folder))
        backbones = {name: plain.model_copy(update={"features": name}) for name in FEATURES}
        for _ in range(sizes.rounds):
            for name, backbone in backbones.items():
                found[name].append(_in_process(backbone, sizes))
        gflop = {
            name: cost_of(each).scoring_gflop(sizes.prompts) for name, each in backbones.items()
        }
    seconds, memory = (
        {name: median(each[i] for each in rounds) for name, rounds in found.items()} for i in (0, 1)
    )
    others = [name for name in FEATURES if name != "global"]
    return block(
        f"scoring of {sizes.images} images under {sizes.model} with {sizes.prompts:,} prompts, one "
        "thread, with local features, compared with global ones",
        {
            **{f"CPU time, {n} / global": f"{seconds[n] / seconds['global']:.2f}" for n in others},
            "FLOPs as plan counts them, local / global": f"{gflop['local'] / gflop['global']:.2f}",
            **{f"MB above the loaded model, {n}": f"{memory[n] / 1e6:.0f}" for n in FEATURES},
        },
    )


def _in_process(backbone: BackboneConfig, sizes: Sizes) -> tuple[float, float]:
    """Returns the CPU seconds and the bytes of memory that one batch takes."""
    given = {"backbone": backbone.model_dump(mode="json"), "sizes": vars(sizes)}
    done = subprocess.run(
        [sys.executable, "-m", "sparc_dist.bench.features"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise UserError(done.stderr.strip().splitlines()[-1])
    seconds, added = json.loads(done.stdout.splitlines()[-1])
    return seconds, added


def _score(given: dict[str, Any]) -> tuple[float, float]:
    """Scores a batch, after one image as a warm-up."""
    torch.set_num_threads(1)
    backbone, sizes = Backbone(BackboneConfig(**given["backbone"])), Sizes(**given["sizes"])
    # Most are compound prompts; which are which does not matter.
    width = cost_of(BackboneConfig(**given["backbone"])).width
    rows = random_directions(sizes.prompts, width)
    scorer = Scorer(backbone, TextEmbeddings(rows[:0], rows[:0], rows))
    shape = (sizes.images, backbone.image_size, backbone.image_size, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    scorer.score(pixels[:1], 1)
    with suppress(OSError):  # the peak so far is that of loading the model
        Path("/proc/self/clear_refs").write_text("5")
    before, start = peak_so_far(os.getpid()), time.process_time()
    scorer.score(pixels, sizes.images)
    return time.process_time() - start, peak_so_far(os.getpid()) - before


if __name__ == "__main__":
    print(json.dumps(_score(json.loads(sys.stdin.read()))))
