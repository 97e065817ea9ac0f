"""What a run keeps: the bytes and the time of each choice of ``store`` and ``stored_precision``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from sparc_dist.bench.made_up_scores import SHARD, random_bank, reduce_scores, store_scores
from sparc_dist.bench.setting import BenchSetting
from sparc_dist.config import ResourcesConfig, Store, StoredPrecision
from sparc_dist.core import Scores
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import in_process
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import RunLayout, Storing
from sparc_dist.runs.storing import keep_prompts, similarities
from sparc_dist.runs.tables import aligned

Float32 = NDArray[np.float32]
HEAD = ("store", "precision", "bytes/image", "writing", "reading", "reduce", "moved by, SDs")


@dataclass(frozen=True)
class Kept:
    """A choice: its bytes on disk, CPU seconds to write, read and reduce, and SPARC's scores."""

    size: int
    writing: float
    reading: float
    reduce: float
    sparc: Float32


@dataclass(frozen=True)
class MadeUpEmbeddings:
    """Embeddings of images (n, d) and of each kind of prompt (·, d)."""

    bank: PromptBank
    images: Float32
    prompts: Sequence[Float32]

    def shards(self) -> Iterator[tuple[Scores, Float32]]:
        """Yields the scores and embeddings of each shard."""
        for start in range(0, len(self.images), SHARD):
            part = self.images[start : start + SHARD]
            yield similarities(part, self.prompts), part


def measure(setting: BenchSetting) -> str:
    """Writes, reads and reduces the same scores under each choice, in this process."""
    images, classes, prompts, width = (300, 8, 30, 16) if setting.quick else (8192, 80, 1500, 512)
    inputs = _made_up(images, classes, prompts, width)
    choices = [Storing(*each) for each in product(get_args(Store), get_args(StoredPrecision))]
    with in_process(ResourcesConfig()) as here, using(here):
        _kept(inputs, choices[0])  # a warm-up
        found = [_kept(inputs, storing) for storing in choices]
    first = found[0]
    rows: list[tuple[str, ...]] = [HEAD]
    for storing, kept in zip(choices, found, strict=True):
        times = [
            f"{getattr(kept, name) / getattr(first, name):.2f} ×"
            for name in ("writing", "reading", "reduce")
        ]
        moved = np.abs(kept.sparc - first.sparc).max() / first.sparc.std()
        size = f"{kept.size / images:,.0f}"
        rows.append((storing.store, storing.precision, size, *times, f"{moved:.1g}"))
    return (
        f"store: {images:,} images × ({classes} + {classes} + {prompts:,}) scores and {width} "
        "numbers of an embedding; CPU time beside that of the default, the first row\n"
        + aligned(rows, "llrrrrr")
    )


def _made_up(images: int, classes: int, prompts: int, width: int) -> MadeUpEmbeddings:
    """Returns embeddings of length 1: an image is near the prompts of one of the classes."""
    rng = np.random.default_rng(0)
    bank = random_bank(rng, classes, prompts)
    names = rng.standard_normal((classes, width))
    compound = np.stack([names[[*prompt.class_ids]].mean(axis=0) for prompt in bank.compound])
    noisy = [rows + rng.standard_normal(rows.shape) for rows in (names, names, compound)]
    shown = names[rng.integers(classes, size=images)] + 2 * rng.standard_normal((images, width))
    return MadeUpEmbeddings(bank, _length_1(shown), [_length_1(rows) for rows in noisy])


def _length_1(rows: NDArray[np.floating]) -> Float32:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def _kept(inputs: MadeUpEmbeddings, storing: Storing) -> Kept:
    with TemporaryDirectory() as folder:
        unit = RunLayout(folder).dataset("bench").unit("made-up")
        if storing.store == "embeddings":
            storing = replace(storing, kept_sha256=keep_prompts(unit, inputs.prompts))
        shards = list(inputs.shards())  # the map phase has computed them
        start = time.process_time()
        phase = store_scores(inputs.bank, shards, folder, storing)
        written = time.process_time()
        count = len(shards)
        for shard in range(count):
            phase.shards.scores(shard)
        read = time.process_time()
        reduce_scores(phase)
        reduced = time.process_time()
        files = [*Path(unit.root, "scores").iterdir(), *Path(unit.root).glob("prompt-*")]
        size = sum(os.path.getsize(file) for file in files)
        sparc = np.concatenate([phase.shards.final(shard)[1].sparc for shard in range(count)])
    return Kept(size, written - start, read - written, reduced - read, sparc)
