"""Made-up scores in storage, as the map phase leaves them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist.core import Method, Scores
from sparc_dist.datasets import images_table, write_images
from sparc_dist.pipeline.executor import get
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.prompts import CompoundPrompt, PromptBank
from sparc_dist.runs import Provenance, RunLayout, Storing, UnitShards
from sparc_dist.runs.shards import scores_table, write_shard
from sparc_dist.runs.storing import ALL

SHARD = 256
WIDTH = 512  # of embeddings, as of a ViT-B/32
LIMIT = 600.0  # seconds without progress


def random_bank(rng: np.random.Generator, classes: int, prompts: int) -> PromptBank:
    """Returns prompts that mention two classes each."""
    names = tuple(f"class {index}" for index in range(classes))
    mentioned = [rng.choice(classes, size=min(2, classes), replace=False) for _ in range(prompts)]
    compound = tuple(
        CompoundPrompt(f"prompt {i}", tuple(sorted(map(int, pair))), "pair")
        for i, pair in enumerate(mentioned)
    )
    return PromptBank(names, compound)


def random_scores(rng: np.random.Generator, bank: PromptBank, images: int) -> Scores:
    """Returns random scores similar to CLIP's: a bias per image, a signal, and noise."""
    signal = 0.03 * (rng.random((images, len(bank.classes))) < 0.1)
    bias = 0.2 + 0.02 * rng.standard_normal((images, 1))

    def noisy(part: NDArray[np.floating]) -> NDArray[np.float32]:
        return (part + bias + 0.01 * rng.standard_normal(part.shape)).astype(np.float32)

    ends = ([prompt.class_ids[i] for prompt in bank.compound] for i in (0, -1))
    either = np.maximum.reduce([signal[:, end] for end in ends])
    return Scores(noisy(signal), noisy(signal), noisy(either))


def store_scores(
    bank: PromptBank,
    parts: Iterable[tuple[Scores, NDArray[np.float32]]],
    folder: str,
    storing: Storing = ALL,
) -> ReducePhase:
    """Stores scores and embeddings of shards as the map phase does; returns their reduce phase."""
    data = RunLayout(folder).dataset("bench")
    unit = data.unit("made-up")
    sizes: list[int] = []
    for shard, (part, embedding) in enumerate(parts):
        ids = [str(index) for index in range(sum(sizes), sum(sizes) + len(part))]
        table = scores_table(ids, part, embedding, bank.names, storing)
        write_shard(unit, shard, table, [], Provenance("", bank.sha256, "", "cpu")).write(unit)
        sizes.append(len(part))
    write_images(_images(sum(sizes), len(bank.classes)), data, SHARD)
    shards = UnitShards(data, unit, len(bank.classes), len(bank.compound))
    return ReducePhase(shards, bank, Method(), "sparc", sizes, "measured", LIMIT)


def _images(count: int, classes: int) -> Iterator[pa.Table]:
    """Yields images with two labels each."""
    ids = [str(index) for index in range(count)]
    labels = [sorted({index % classes, (index // classes) % classes}) for index in range(count)]
    yield images_table(ids, ids, labels)


def reduce_scores(phase: ReducePhase) -> None:
    """Computes final scores."""
    times = PassTimes()
    get(phase.score(phase.fit(times), times), LIMIT, "The reduce")


class PassTimes:
    """Progress that is not shown: when each pass started."""

    def __init__(self) -> None:
        self._starts: list[tuple[str, float]] = []

    def start(self, stage: str, images: int, done: int = 0) -> None:
        """Notes the time."""
        self._starts.append((stage, time.process_time()))

    def advance(self, stage: str, images: int) -> None:
        """Shows nothing."""

    def seconds(self) -> list[tuple[str, float]]:
        """Returns each pass with its seconds until the next one started."""
        pairs = itertools.pairwise(self._starts)
        return [(stage, end - start) for (stage, start), (_, end) in pairs]
