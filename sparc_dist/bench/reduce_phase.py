"""The reduce phase, from and to storage, compared with plain NumPy in memory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
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
from sparc_dist.pipeline.executor import capacity, executor, get, using
from sparc_dist.pipeline.in_process import in_process
from sparc_dist.pipeline.passes import ShardGroup
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.prompts import CompoundPrompt, PromptBank
from sparc_dist.runs import Provenance, RunLayout, UnitShards
from sparc_dist.runs.columns import matrix
from sparc_dist.runs.shards import scores_table, write_shard

SHARD = 256
WIDTH = 512  # of embeddings, as of a ViT-B/32
LIMIT = 600.0  # seconds without progress


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
    bank = _random_bank(rng, classes, prompts)
    scores = _random_scores(rng, bank, images)
    with TemporaryDirectory() as folder:
        phase = _store(bank, [scores[i : i + SHARD] for i in range(0, images, SHARD)], folder)
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
    bank = _random_bank(rng, classes, prompts)
    with TemporaryDirectory() as folder:
        sizes = [min(SHARD, images - start) for start in range(0, images, SHARD)]
        phase = _store(bank, (_random_scores(rng, bank, size) for size in sizes), folder)
        _read(phase)  # a warm-up
        before, times = _read(phase), _Times()
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


def _random_bank(rng: np.random.Generator, classes: int, prompts: int) -> PromptBank:
    """Returns prompts that mention two classes each."""
    names = tuple(f"class {index}" for index in range(classes))
    mentioned = [rng.choice(classes, size=min(2, classes), replace=False) for _ in range(prompts)]
    compound = tuple(
        CompoundPrompt(f"prompt {i}", tuple(sorted(map(int, pair))), "pair")
        for i, pair in enumerate(mentioned)
    )
    return PromptBank(names, compound)


def _random_scores(rng: np.random.Generator, bank: PromptBank, images: int) -> Scores:
    """Returns random scores similar to CLIP's: a bias per image, a signal, and noise."""
    signal = 0.03 * (rng.random((images, len(bank.classes))) < 0.1)
    bias = 0.2 + 0.02 * rng.standard_normal((images, 1))

    def noisy(part: NDArray[np.floating]) -> NDArray[np.float32]:
        return (part + bias + 0.01 * rng.standard_normal(part.shape)).astype(np.float32)

    ends = ([prompt.class_ids[i] for prompt in bank.compound] for i in (0, -1))
    either = np.maximum.reduce([signal[:, end] for end in ends])
    return Scores(noisy(signal), noisy(signal), noisy(either))


def _store(bank: PromptBank, parts: Iterable[Scores], folder: str) -> ReducePhase:
    """Stores the scores of shards as the map phase does. Returns the reduce phase of them."""
    data = RunLayout(folder).dataset("bench")
    unit = data.unit("made-up")
    embedding = np.random.default_rng(0).standard_normal((SHARD, WIDTH)).astype(np.float32)
    sizes: list[int] = []
    for shard, part in enumerate(parts):
        ids = [str(index) for index in range(sum(sizes), sum(sizes) + len(part))]
        table = scores_table(ids, part, embedding[: len(part)], bank.names)
        write_shard(unit, shard, table, [], Provenance("", bank.sha256, "", "cpu")).write(unit)
        sizes.append(len(part))
    write_images(_images(sum(sizes), len(bank.classes)), data, SHARD)
    shards = UnitShards(data, unit, len(bank.classes), len(bank.compound))
    return ReducePhase(shards, bank, Method(), "sparc", sizes, "measured", LIMIT)


def _sparc(phase: ReducePhase, shard: int) -> NDArray[np.float32]:
    table = storage.read_table(phase.shards.unit.final(shard), ["sparc"])
    return matrix(table["sparc"], phase.shards.classes)


def _images(count: int, classes: int) -> Iterator[pa.Table]:
    """Yields images with two labels each."""
    ids = [str(index) for index in range(count)]
    labels = [sorted({index % classes, (index // classes) % classes}) for index in range(count)]
    yield images_table(ids, ids, labels)


def _reduce(phase: ReducePhase) -> None:
    times = _Times()
    get(phase.score(phase.fit(times), times), LIMIT, "The reduce")


class _Times:
    """Progress that is not shown: when each pass started."""

    def __init__(self) -> None:
        self._starts: list[tuple[str, float]] = []

    def start(self, stage: str, images: int, done: int = 0) -> None:
        self._starts.append((stage, time.process_time()))

    def advance(self, stage: str, images: int) -> None:
        pass

    def seconds(self) -> list[tuple[str, float]]:
        """Returns each pass with its seconds until the next one started."""
        pairs = itertools.pairwise(self._starts)
        return [(stage, end - start) for (stage, start), (_, end) in pairs]
