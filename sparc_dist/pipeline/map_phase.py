"""The map phase: images in, scores in storage. Decode on CPU tasks, encode and score on actors.

A row of the Ray data set is a whole shard from beginning to end. So a shard is decoded, scored,
written and retried as one thing whatever Ray does with blocks, and no row is ever grouped again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import ray.data
import torch

from sparc_dist import storage
from sparc_dist.backbones import Backbone, Scorer, TextEmbeddings
from sparc_dist.config import BackboneConfig, ResourcesConfig
from sparc_dist.core.debias import Scores
from sparc_dist.errors import UserError
from sparc_dist.filesystems import (
    BadUrl,
    NoBucket,
    StorageError,
    is_remote,
    is_web,
    retries,
    without_secrets,
)
from sparc_dist.images import BadImage, decode
from sparc_dist.layout import DatasetLayout, UnitLayout
from sparc_dist.markers import Scoring
from sparc_dist.pipeline.cluster import ScorerPlan
from sparc_dist.pipeline.waiting import result
from sparc_dist.prompts.bank import PromptBank
from sparc_dist.shards import ERRORS, scores_table, write_shard

READERS = 8  # threads that wait for the bytes of a shard's images


@dataclass(frozen=True)
class EmbeddedPrompts:
    """The prompt bank in a backbone's space: the embeddings stay in Ray's object store."""

    texts: Any  # ray.ObjectRef of TextEmbeddings
    image_size: int
    weights_sha256: str
    device: str


def embed_prompts(
    backbone: BackboneConfig, bank: PromptBank, plan: ScorerPlan, limit: float
) -> EmbeddedPrompts:
    """Run the text tower once, on a worker with the same device as the scorers."""
    # Declared with its GPUs, not by options(): only so does Ray end the worker after the task
    # and with it the memory that the model held on the GPU.
    task = ray.remote(num_cpus=1, num_gpus=plan.gpus, num_returns=2)(_embed_prompts)
    texts, facts = task.remote(backbone, bank, plan)
    what = f"Loading {backbone.name} and embedding the prompts"
    return EmbeddedPrompts(texts, *result(facts, limit, what))


def _embed_prompts(
    config: BackboneConfig, bank: PromptBank, plan: ScorerPlan
) -> tuple[TextEmbeddings, tuple[int, str, str]]:
    torch.set_num_threads(plan.threads)
    backbone = Backbone(config, plan.device())
    facts = (backbone.image_size, backbone.weights_sha256(), backbone.device.type)
    return backbone.embed(bank), facts


@dataclass(frozen=True)
class MapPhase:
    """What it takes to score a unit's shards."""

    dataset: DatasetLayout
    unit: UnitLayout
    backbone: BackboneConfig
    prompts: EmbeddedPrompts
    scoring: Scoring
    batch_size: int

    def run(
        self, shards: Sequence[int], plan: ScorerPlan, resources: ResourcesConfig
    ) -> Iterator[dict[str, Any]]:
        """Score the shards; yields {shard} of each as its marker is written."""
        _configure(resources)
        data = ray.data.from_items(
            [{"shard": shard} for shard in shards], override_num_blocks=len(shards)
        )
        size = self.prompts.image_size
        scored = data.map_batches(
            DecodeShard(self.dataset, size),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=1,
        ).map_batches(
            ScoreShard,
            fn_constructor_args=(self.backbone, self.prompts.texts, self.batch_size, plan),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=plan.actors),
            # A scorer's threads are its own affair: reserving CPUs for it as well would leave
            # none for decoding on small machines, and the pipeline would stand still.
            num_cpus=0,
            num_gpus=plan.gpus,
        )
        written = scored.map_batches(
            WriteShard(self.unit, self.scoring),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=0.5,
        )
        for row in written.iter_rows():
            if row.get("failure"):
                raise UserError(row["failure"])
            yield row


def _telling(work: Callable[[Any, pa.Table], pa.Table]) -> Callable[[Any, pa.Table], pa.Table]:
    """A step whose UserErrors travel to the driver as rows {shard, failure}.

    Of what a step raises, Ray Data keeps neither the type nor the words.
    """

    @wraps(work)
    def step(self: Any, batch: pa.Table) -> pa.Table:
        if "failure" in batch.column_names:
            return batch
        try:
            return work(self, batch)
        except UserError as error:
            return pa.table({"shard": batch["shard"], "failure": [str(error)]})

    return step


@dataclass(frozen=True)
class DecodeShard:
    """Manifest → bytes → uint8 squares; an image that cannot be read becomes an error."""

    dataset: DatasetLayout
    image_size: int

    @_telling
    def __call__(self, batch: pa.Table) -> pa.Table:
        """One row {shard} to one row {shard, image_ids, pixels, errors, retries, seconds}."""
        start, before = time.perf_counter(), retries()
        (shard,) = batch["shard"].to_pylist()
        rows = storage.read_row_group(self.dataset.images, shard, ["image_id", "uri"]).to_pylist()
        good: list[str] = []
        errors: list[dict[str, str]] = []
        pixels = np.empty((len(rows), self.image_size, self.image_size, 3), dtype=np.uint8)
        contents = _read_ahead([row["uri"] for row in rows])
        with closing(contents):
            for row, content in zip(rows, contents, strict=True):
                try:
                    if isinstance(content, BadImage):
                        raise content
                    pixels[len(good)] = decode(content, self.image_size)
                    good.append(row["image_id"])
                except BadImage as error:
                    uri = without_secrets(row["uri"])
                    errors.append({**row, "uri": uri, "error": str(error)})
        return pa.table(
            {
                "shard": [shard],
                "image_ids": pa.array([good], pa.list_(pa.string())),
                "pixels": pa.array([pixels[: len(good)].tobytes()], pa.large_binary()),
                "errors": pa.array([errors], pa.list_(pa.struct(ERRORS))),
                "retries": [retries() - before],
                "seconds": [time.perf_counter() - start],
            }
        )


def _read_ahead(uris: Sequence[str]) -> Generator[bytes | BadImage]:
    """The bytes of each file, in order; some are read ahead, never all."""
    with ThreadPoolExecutor(READERS) as readers:
        ahead = deque(readers.submit(_read, uri) for uri in uris[: 2 * READERS])
        for uri in [*uris[2 * READERS :], *[None] * len(ahead)]:
            content = ahead.popleft().result()
            if uri is not None:
                ahead.append(readers.submit(_read, uri))
            yield content


def _read(uri: str) -> bytes | BadImage:
    """A file's bytes; what keeps us from them is said in the error table.

    A store that does not answer is not the image's fault: the shard fails, to be done again when
    it does. On the web, where any host may be gone for good, it is.
    """
    try:
        return storage.read_bytes(uri)
    except FileNotFoundError:
        return BadImage("there is no such file")
    except NoBucket:
        return BadImage("there is no such bucket")
    except BadUrl:
        return BadImage("its URL cannot name a file")
    except PermissionError:
        also = ", or there is no such file" if is_remote(uri) else ""
        return BadImage(f"reading it was refused{also}")
    except StorageError:
        if is_web(uri):
            return BadImage("its host does not answer")
        raise
    except (OSError, ValueError) as error:  # on any name that may stand in a manifest
        return BadImage(f"cannot be read: {type(error).__name__}")


class ScoreShard:
    """An actor that holds one model and scores one shard after the other."""

    def __init__(
        self, config: BackboneConfig, texts: Any, batch_size: int, plan: ScorerPlan
    ) -> None:
        torch.set_num_threads(plan.threads)
        self._batch_size = batch_size
        self._failure: UserError | None = None
        try:
            self._scorer = Scorer(Backbone(config, plan.device()), ray.get(texts))
            self._size = self._scorer.backbone.image_size
        except UserError as error:  # said with the first shard: an actor's last words are lost
            self._failure = error

    @_telling
    def __call__(self, batch: pa.Table) -> pa.Table:
        """One row of DecodeShard to one row with matrices in place of pixels."""
        if self._failure is not None:
            raise self._failure
        start = time.perf_counter()
        content = np.frombuffer(batch["pixels"][0].as_buffer(), dtype=np.uint8)
        # A copy, because torch wants to own writable memory and Ray's is shared.
        pixels = content.reshape(-1, self._size, self._size, 3).copy()
        parts = self._score(pixels)
        matrices = pa.array([[part.tobytes() for part in parts]], pa.list_(pa.large_binary()))
        seconds = pa.array([[batch["seconds"][0].as_py(), time.perf_counter() - start]])
        return pa.table(
            {
                **{name: batch[name] for name in ("shard", "image_ids", "errors", "retries")},
                "matrices": matrices,
                "widths": pa.array([[part.shape[1] for part in parts]]),
                "seconds": seconds,
            }
        )

    def _score(self, pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> list[Any]:
        """Singleton, auxiliary and compound scores and embeddings, each (n, ·) float32."""
        if not len(pixels):
            # The widths of the tables must hold for a shard without one good image too.
            pixels = np.zeros((1, self._size, self._size, 3), dtype=np.uint8)
            return [part[:0] for part in self._score(pixels)]
        scores, embedding = self._scorer.score(pixels, self._batch_size)
        return [scores.singleton, scores.auxiliary, scores.compound, embedding]


@dataclass(frozen=True)
class WriteShard:
    """A shard's scores and errors to storage; its marker last."""

    unit: UnitLayout
    scoring: Scoring

    @_telling
    def __call__(self, batch: pa.Table) -> pa.Table:
        """One row of ScoreShard to one row {shard}."""
        before = retries()
        (row,) = batch.to_pylist()
        shard, ids = row["shard"], row["image_ids"]
        singleton, auxiliary, compound, embedding = (
            np.frombuffer(content, dtype=np.float32).reshape(len(ids), width)
            for content, width in zip(row["matrices"], row["widths"], strict=True)
        )
        table = scores_table(ids, Scores(singleton, auxiliary, compound), embedding)
        marker = write_shard(self.unit, shard, table, row["errors"], self.scoring)
        decode_seconds, score_seconds = row["seconds"]
        replace(
            marker,
            retries=row["retries"] + retries() - before,
            seconds={"decode": decode_seconds, "score": score_seconds},
        ).write(self.unit)
        return pa.table({"shard": [shard]})


def _configure(resources: ResourcesConfig) -> None:
    """Ray Data without its own bars and chatter, and with an end to every wait."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = float(resources.no_progress_seconds)
    # A shard is one row and must stay one, however large.
    context.target_max_block_size = None
    # What it logs as an error it also raises, and that is told in a sentence.
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
