"""The reduce phase, from and to storage, compared with plain NumPy in memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.bench.made_up_scores import (
    LIMIT,
    SHARD,
    WIDTH,
    PassTimes,
    random_bank,
    random_scores,
    reduce_scores,
    store_scores,
)
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import ResourcesConfig
from sparc_dist.core import Scores
from sparc_dist.pipeline.executor import capacity, executor, get, using
from sparc_dist.pipeline.in_process import in_process
from sparc_dist.pipeline.passes import ShardGroup
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.research.reference import reference_sparc
from sparc_dist.runs import UnitShards
from sparc_dist.runs.columns import matrix


def measure(setting: BenchSetting) -> str:
    """Returns the reduce compared with plain NumPy, and each of its passes with reading alone."""
    with executor(ResourcesConfig()):
        compared = _compared(setting)
    with in_process(ResourcesConfig()) as here, using(here):
        return f"{compared}\n\n{_passes(setting)}"


def _compared(setting: BenchSetting) -> str:
    """Reduces random scores both ways and compares the two."""
    images, classes, prompts = (300, 8, 30) if setting.quick else (2000, 80, 1500)
    rng = np.random.default_rng(0)
    bank = random_bank(rng, classes, prompts)
    scores = random_scores(rng, bank, images)
    shards = (scores[i : i + SHARD] for i in range(0, images, SHARD))
    with TemporaryDirectory() as folder:
        phase = store_scores(bank, _embedded(shards), folder)
        # A warm-up: starting workers is not part of the reduce. It has another key, so that the
        # second reduce reuses nothing of the first.
        reduce_scores(replace(phase, key="warm-up"))
        start = time.perf_counter()
        reduce_scores(phase)
        pipeline = time.perf_counter() - start
        start = time.perf_counter()
        expected = reference_sparc(scores, bank.mentions)
        plain = time.perf_counter() - start
        parts = [_sparc(phase, shard) for shard in range(len(phase.images))]
    difference = np.abs(np.concatenate(parts) - expected).max()
    megabytes = (2 * classes + prompts) * images * 4 / 1e6
    return block(
        f"reduce of {images:,} × ({classes} + {classes} + {prompts:,}) scores, {megabytes:.0f} MB: "
        f"on Ray with {capacity().cpus:g} CPUs, from and to storage, compared with plain NumPy in "
        "memory",
        {
            "time, pipeline / plain NumPy": f"{pipeline / plain:.2f}",
            "largest difference in a final score": f"{difference:.1e}",
        },
    )


def _passes(setting: BenchSetting) -> str:
    """Reduces scores of NUS-WIDE's size and compares each pass with only reading the shards.

    In CPU time of one process, because other processes must not decide which pass looks slow.
    """
    images, classes, prompts = (300, 8, 30) if setting.quick else (107_859, 81, 1480)
    rng = np.random.default_rng(0)
    bank = random_bank(rng, classes, prompts)
    with TemporaryDirectory() as folder:
        sizes = [min(SHARD, images - start) for start in range(0, images, SHARD)]
        shards = (random_scores(rng, bank, size) for size in sizes)
        phase = store_scores(bank, _embedded(shards), folder)
        _read(phase)  # a warm-up
        before, times = _read(phase), PassTimes()
        decisions, _ = phase.decide(phase.score(phase.fit(times), times), times)
        phase.label(decisions, times)
        times.start("", 0)
        read = (before + _read(phase)) / 2
    return block(
        f"passes of the reduce of {images:,} × ({classes} + {classes} + {prompts:,}) scores, "
        f"compared with reading and decoding the same shards, {1000 * read / len(sizes):.1f} ms of "
        "CPU time per shard",
        {f"{stage.replace('_', ' ')} / reading": f"{t / read:.2f}" for stage, t in times.seconds()},
    )


def _read(phase: ReducePhase) -> float:
    """Reads all shards as a pass does; returns the seconds of CPU time."""
    start = time.process_time()
    for part in phase.passes.each("reading", _read_group, phase.shards):
        get(part, LIMIT, "Reading")
    return time.process_time() - start


def _read_group(group: ShardGroup, shards: UnitShards) -> int:
    return sum(len(shards.scores(shard)[1]) for shard in group.shards)


def _embedded(parts: Iterable[Scores]) -> Iterator[tuple[Scores, NDArray[np.float32]]]:
    """Yields scores with embeddings that have nothing to do with them: nobody looks at these."""
    embedding = np.random.default_rng(0).standard_normal((SHARD, WIDTH)).astype(np.float32)
    yield from ((part, embedding[: len(part)]) for part in parts)


def _sparc(phase: ReducePhase, shard: int) -> NDArray[np.float32]:
    table = storage.read_table(phase.shards.unit.final(shard), ["sparc"])
    return matrix(table["sparc"], phase.shards.classes)
