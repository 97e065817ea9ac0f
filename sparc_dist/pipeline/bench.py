"""The benchmark: the pipeline's reduce beside straightforward NumPy, in the same run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import ray
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import ResourcesConfig
from sparc_dist.core.debias import Scores
from sparc_dist.core.fusion import Method
from sparc_dist.core.plain import plain_sparc
from sparc_dist.datasets.images import images_table, write_images
from sparc_dist.layout import RunLayout
from sparc_dist.markers import Scoring
from sparc_dist.pipeline.cluster import cluster
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.prompts.bank import PromptBank
from sparc_dist.prompts.compound import CompoundPrompt
from sparc_dist.shards import UnitShards, matrix, scores_table, write_shard

SHARD = 256


def bench_reduce(images: int, classes: int, prompts: int) -> str:
    """Make up scores, reduce them both ways, and say how the two compare."""
    rng = np.random.default_rng(0)
    bank, scores = _made_up(rng, images, classes, prompts)
    with cluster(ResourcesConfig()), tempfile.TemporaryDirectory() as folder:
        phase = _stored(bank, scores, folder)
        # Workers start once in a run's life; what they cost is not the reduce's. Another key, so
        # that nothing is taken over from the first time.
        _reduce(replace(phase, key="warm-up"))
        start = time.perf_counter()
        _reduce(phase)
        pipeline = time.perf_counter() - start
        start = time.perf_counter()
        expected = plain_sparc(scores, bank.mentions)
        plain = time.perf_counter() - start
        parts = [_sparc(phase, shard) for shard in range(len(phase.images))]
        cpus = ray.cluster_resources()["CPU"]
    difference = np.abs(np.concatenate(parts) - expected).max()
    megabytes = (2 * classes + prompts) * images * 4 / 1e6
    return (
        f"reduce of {images:,} × ({classes} + {classes} + {prompts:,}) scores, {megabytes:.0f} MB\n"
        f"  pipeline on Ray, {cpus:g} CPUs, from and to storage: {pipeline:8.2f} s\n"
        f"  plain NumPy, in memory, no storage:         {plain:8.2f} s\n"
        f"  ratio pipeline / plain:                     {pipeline / plain:8.2f}\n"
        f"  largest difference of a final score:        {difference:8.1e}"
    )


def _made_up(
    rng: np.random.Generator, images: int, classes: int, prompts: int
) -> tuple[PromptBank, Scores]:
    """Scores as CLIP gives them in kind: an image's bias, a prompt's bias, a signal, noise."""
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


def _stored(bank: PromptBank, scores: Scores, folder: str) -> ReducePhase:
    """The scores as the map phase would have left them."""
    data = RunLayout(folder).dataset("bench")
    unit = data.unit("made-up")
    write_images(_images(len(scores)), data.images, SHARD)
    sizes = []
    for shard, start in enumerate(range(0, len(scores), SHARD)):
        part = scores[start : start + SHARD]
        ids = [str(index) for index in range(start, start + len(part))]
        embedding = np.zeros((len(part), 1), dtype=np.float32)
        table = scores_table(ids, part, embedding)
        write_shard(unit, shard, table, [], Scoring("", bank.sha256, "", "cpu")).write(unit)
        sizes.append(len(part))
    shards = UnitShards(data, unit, len(bank.classes), len(bank.compound))
    return ReducePhase(shards, bank, Method(), sizes, "measured", limit=600)


def _sparc(phase: ReducePhase, shard: int) -> NDArray[np.float32]:
    table = storage.read_table(phase.shards.unit.final(shard), ["sparc"])
    return matrix(table["sparc"], phase.shards.classes)


def _images(count: int) -> Iterator[pa.Table]:
    ids = [str(index) for index in range(count)]
    yield images_table(ids, ids, [None] * count)


def _reduce(phase: ReducePhase) -> None:
    def silent(stage: str, images: int) -> None:
        """A benchmark shows its result, not its progress."""

    ray.get(phase.score(phase.fit(silent), silent))
