"""What the reduce costs beside plain NumPy, and each of its passes beside reading the scores.

Stores made-up scores as the map phase does and reduces them on Ray, from and to storage. Compares
the time with that of plain NumPy on the same scores in memory, and the CPU time of each pass in one
process with that of reading and decoding the same shards.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from measuring import option, options_of, report
from sparc_dist import storage
from sparc_dist.config import ResourcesConfig
from sparc_dist.core import Method, Scores
from sparc_dist.datasets import images_table, write_images
from sparc_dist.pipeline.executor import executor, get, using
from sparc_dist.pipeline.in_process import in_process
from sparc_dist.pipeline.passes import ShardGroup
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.prompts import CompoundPrompt, PromptBank
from sparc_dist.research.paper import reference_sparc
from sparc_dist.runs import Provenance, RunLayout, UnitShards
from sparc_dist.runs.shards import scores_table, write_shard
from sparc_dist.runs.storing import matrix

SHARD = 256
WIDTH = 512  # of embeddings, as of a ViT-B/32
LIMIT = 600.0  # seconds without progress


@dataclass(frozen=True)
class Options:
    """The options."""

    images: int = option(16_384, "number of images")
    classes: int = option(80, "number of classes")
    prompts: int = option(1500, "number of compound prompts")


class PassTimes:
    """Progress that is not shown: when each pass started."""

    def __init__(self) -> None:
        self._starts: list[tuple[str, float]] = []

    def start(self, stage: str, images: int, done: int = 0) -> None:
        """Notes the CPU time."""
        self._starts.append((stage, time.process_time()))

    def advance(self, stage: str, images: int) -> None:
        """Shows nothing."""

    def seconds(self) -> list[tuple[str, float]]:
        """Returns each pass with its seconds until the next one started."""
        pairs = itertools.pairwise(self._starts)
        return [(stage, end - start) for (stage, start), (_, end) in pairs]


def main() -> None:
    """Reduces the same scores on Ray, in plain NumPy, and pass by pass in this process."""
    options = options_of(Options, __doc__)
    rng = np.random.default_rng(0)
    bank = _random_bank(rng, options)
    scores = _random_scores(rng, bank, options.images)
    with TemporaryDirectory() as folder:
        phase = _stored(bank, scores, folder)
        with executor(ResourcesConfig()):
            # A warm-up: starting workers is not part of the reduce. It has another key, so that the
            # second reduce reuses nothing of the first.
            _reduce_seconds(replace(phase, key="warm-up"))
            pipeline = _reduce_seconds(phase)
        final = np.concatenate([_sparc(phase, shard) for shard in range(len(phase.images))])
        start = time.perf_counter()
        expected = reference_sparc(scores, bank.mentions)
        plain = time.perf_counter() - start
        with in_process(ResourcesConfig()) as here, using(here):
            passes = _passes(replace(phase, key="passes"))
    classes = options.classes
    report(
        f"reduce of {options.images:,} × ({classes} + {classes} + {options.prompts:,}) scores",
        {
            "time, reduce on Ray from and to storage / plain NumPy": f"{pipeline / plain:.2f}",
            "largest difference in a final score": f"{np.abs(final - expected).max():.1e}",
            **{f"CPU time, {name} / reading": f"{ratio:.2f}" for name, ratio in passes.items()},
        },
    )


def _reduce_seconds(phase: ReducePhase) -> float:
    """Computes final scores; returns the seconds that it takes."""
    start, times = time.perf_counter(), PassTimes()
    get(phase.score(phase.fit(times), times), LIMIT, "The reduce")
    return time.perf_counter() - start


def _passes(phase: ReducePhase) -> dict[str, float]:
    """Returns the CPU time of each pass, as a multiple of only reading the shards.

    CPU time, because other processes must not decide which pass looks slow.
    """
    _read(phase)  # a warm-up
    before, times = _read(phase), PassTimes()
    decisions, _ = phase.decide(phase.score(phase.fit(times), times), times)
    phase.label(decisions, times)
    times.start("", 0)
    reading = (before + _read(phase)) / 2
    return {stage.replace("_", " "): seconds / reading for stage, seconds in times.seconds()}


def _read(phase: ReducePhase) -> float:
    """Reads all shards as a pass does; returns the seconds of CPU time."""
    start = time.process_time()
    for part in phase.passes.each("reading", _read_group, phase.shards):
        get(part, LIMIT, "Reading")
    return time.process_time() - start


def _read_group(group: ShardGroup, shards: UnitShards) -> int:
    return sum(len(shards.scores(shard)[1]) for shard in group.shards)


def _sparc(phase: ReducePhase, shard: int) -> NDArray[np.float32]:
    table = storage.read_table(phase.shards.unit.final(shard), ["sparc"])
    return matrix(table["sparc"], phase.shards.classes)


def _stored(bank: PromptBank, scores: Scores, folder: str) -> ReducePhase:
    """Stores scores as the map phase does; returns their reduce phase."""
    data = RunLayout(folder).dataset("made-up")
    unit = data.unit("made-up")
    # Embeddings have nothing to do with the scores: nobody looks at them.
    embedding = np.random.default_rng(0).standard_normal((SHARD, WIDTH)).astype(np.float32)
    parts = [scores[start : start + SHARD] for start in range(0, len(scores), SHARD)]
    for shard, part in enumerate(parts):
        ids = [str(shard * SHARD + index) for index in range(len(part))]
        table = scores_table(ids, part, embedding[: len(part)], bank.names)
        write_shard(unit, shard, table, [], Provenance("", bank.sha256, "", "cpu")).write(unit)
    write_images(_images(len(scores), len(bank.classes)), data, SHARD)
    shards = UnitShards(data, unit, len(bank.classes), len(bank.compound))
    sizes = [len(part) for part in parts]
    return ReducePhase(shards, bank, Method(), "sparc", sizes, "measured", LIMIT)


def _images(count: int, classes: int) -> Iterator[pa.Table]:
    """Yields images with two labels each."""
    ids = [str(index) for index in range(count)]
    labels = [sorted({index % classes, (index // classes) % classes}) for index in range(count)]
    yield images_table(ids, ids, labels)


def _random_bank(rng: np.random.Generator, options: Options) -> PromptBank:
    """Returns prompts that mention two classes each."""
    names = tuple(f"class {index}" for index in range(options.classes))
    pairs = [rng.choice(options.classes, size=2, replace=False) for _ in range(options.prompts)]
    compound = tuple(
        CompoundPrompt(f"prompt {i}", tuple(sorted(map(int, pair))), "pair")
        for i, pair in enumerate(pairs)
    )
    return PromptBank(names, compound)


def _random_scores(rng: np.random.Generator, bank: PromptBank, images: int) -> Scores:
    """Returns random scores similar to CLIP's: a bias per image, a signal, and noise."""
    signal = 0.03 * (rng.random((images, len(bank.classes))) < 0.1)
    bias = 0.2 + 0.02 * rng.standard_normal((images, 1))

    def noisy(part: NDArray[np.floating]) -> NDArray[np.float32]:
        return (part + bias + 0.01 * rng.standard_normal(part.shape)).astype(np.float32)

    one, other = ([prompt.class_ids[i] for prompt in bank.compound] for i in (0, 1))
    return Scores(noisy(signal), noisy(signal), noisy(np.maximum(signal[:, one], signal[:, other])))


if __name__ == "__main__":
    main()
