"""The reduce phase, from and to storage, compared with plain NumPy in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import ResourcesConfig
from sparc_dist.core import Method, Scores
from sparc_dist.core.reference import reference_sparc
from sparc_dist.datasets import images_table, write_images
from sparc_dist.pipeline.executor import capacity, executor, get
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.prompts import CompoundPrompt, PromptBank
from sparc_dist.runs import Provenance, RunLayout, UnitShards
from sparc_dist.runs.shards import matrix, scores_table, write_shard

SHARD = 256
LIMIT = 600.0  # seconds without progress


def measure(setting: BenchSetting) -> str:
    """Reduces random scores both ways and compares the two."""
    images, classes, prompts = (300, 8, 30) if setting.quick else (2000, 80, 1500)
    bank, scores = _random_scores(np.random.default_rng(0), images, classes, prompts)
    with executor(ResourcesConfig()), TemporaryDirectory() as folder:
        phase = _store(bank, scores, folder)
        # A warm-up: starting workers is not part of the reduce. It has another key, so that the
        # second reduce reuses nothing of the first.
        _reduce(replace(phase, key="warm-up"))
        start = time.perf_counter()
        _reduce(phase)
        pipeline = time.perf_counter() - start
        start = time.perf_counter()
        expected = reference_sparc(scores, bank.mentions)
        plain = time.perf_counter() - start
        parts = [_sparc(phase, shard) for shard in range(len(phase.images))]
        cpus = capacity().cpus
    difference = np.abs(np.concatenate(parts) - expected).max()
    megabytes = (2 * classes + prompts) * images * 4 / 1e6
    return block(
        f"reduce of {images:,} × ({classes} + {classes} + {prompts:,}) scores, {megabytes:.0f} MB: "
        f"on Ray with {cpus:g} CPUs, from and to storage, compared with plain NumPy in memory",
        {
            "time, pipeline / plain NumPy": f"{pipeline / plain:.2f}",
            "largest difference in a final score": f"{difference:.1e}",
        },
    )


def _random_scores(
    rng: np.random.Generator, images: int, classes: int, prompts: int
) -> tuple[PromptBank, Scores]:
    """Returns random scores similar to CLIP's: a bias per image, a signal, and noise."""
    names = tuple(f"class {index}" for index in range(classes))
    mentioned = [rng.choice(classes, size=min(2, classes), replace=False) for _ in range(prompts)]
    compound = tuple(
        CompoundPrompt(f"prompt {i}", tuple(sorted(map(int, pair))), "pair")
        for i, pair in enumerate(mentioned)
    )
    signal = 0.03 * (rng.random((images, classes)) < 0.1)
    bias = 0.2 + 0.02 * rng.standard_normal((images, 1))

    def noisy(part: NDArray[np.floating]) -> NDArray[np.float32]:
        return (part + bias + 0.01 * rng.standard_normal(part.shape)).astype(np.float32)

    either = np.maximum.reduce([signal[:, [pair[i] for pair in mentioned]] for i in (0, -1)])
    return PromptBank(names, compound), Scores(noisy(signal), noisy(signal), noisy(either))


def _store(bank: PromptBank, scores: Scores, folder: str) -> ReducePhase:
    """Stores the scores as the map phase does. Returns the reduce phase of them."""
    data = RunLayout(folder).dataset("bench")
    unit = data.unit("made-up")
    write_images(_images(len(scores)), data, SHARD)
    sizes = []
    for shard, start in enumerate(range(0, len(scores), SHARD)):
        part = scores[start : start + SHARD]
        ids = [str(index) for index in range(start, start + len(part))]
        embedding = np.zeros((len(part), 1), dtype=np.float32)
        table = scores_table(ids, part, embedding, bank.names)
        write_shard(unit, shard, table, [], Provenance("", bank.sha256, "", "cpu")).write(unit)
        sizes.append(len(part))
    shards = UnitShards(data, unit, len(bank.classes), len(bank.compound))
    return ReducePhase(shards, bank, Method(), "sparc", sizes, "measured", LIMIT)


def _sparc(phase: ReducePhase, shard: int) -> NDArray[np.float32]:
    table = storage.read_table(phase.shards.unit.final(shard), ["sparc"])
    return matrix(table["sparc"], phase.shards.classes)


def _images(count: int) -> Iterator[pa.Table]:
    ids = [str(index) for index in range(count)]
    yield images_table(ids, ids, [None] * count)


def _reduce(phase: ReducePhase) -> None:
    silent = _Silent()
    get(phase.score(phase.fit(silent), silent), LIMIT, "The reduce")


class _Silent:
    """Progress that is not shown: a benchmark prints only its result."""

    def start(self, stage: str, images: int, done: int = 0) -> None:
        pass

    def advance(self, stage: str, images: int) -> None:
        pass
