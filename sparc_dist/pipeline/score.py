"""The second step: scores a shard with every backbone of a group."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist.config import BackboneConfig
from sparc_dist.errors import Option, UserError, explain
from sparc_dist.pipeline.steps import errors_as_rows
from sparc_dist.planning import Scorers

if TYPE_CHECKING:
    from sparc_dist.backbones.models import Backbone, Scorer
    from sparc_dist.pipeline.embed import Embedded, Loaded, WaitForTexts

#: The result of a shard under one backbone: four matrices, or a failure.
RESULT = pa.struct(
    [
        ("backbone", pa.string()),
        ("matrices", pa.list_(pa.large_binary())),
        ("widths", pa.list_(pa.int64())),
        ("seconds", pa.float64()),
        ("weights_sha256", pa.string()),
        ("kept_sha256", pa.string()),
        ("text_seconds", pa.float64()),
        ("device", pa.string()),
        ("input", pa.string()),
        ("checkpoint", pa.string()),
        ("precision", pa.string()),
        ("failure", pa.string()),
    ]
)


class ScoreShard:
    """Holds the models of a group and scores shards, each in a thread of its own.

    Threads encode in turn, a batch at a time: the device's memory is planned for one batch.
    """

    def __init__(
        self,
        backbones: Sequence[BackboneConfig],
        batch_size: int,
        scorers: Scorers,
        texts: WaitForTexts,
    ) -> None:
        """texts: waits for the embeddings of the prompts, for which models need not wait."""
        # Only a worker with models loads torch: it takes seconds and much memory.
        from sparc_dist.backbones.devices import pick_device

        device = pick_device(scorers.gpus, scorers.threads)
        self._batch_size = batch_size
        self.failures: dict[str, str] = {}
        turn = Lock()
        loaded: dict[str, Backbone] = {}
        with ThreadPoolExecutor(1) as hashing:  # while the next model is loaded
            for config in backbones:
                with self._reported(config.name):
                    loaded[config.name] = backbone = self._load(config, device, turn)
                    hashing.submit(getattr, backbone, "weights_sha256")
                    hashing.submit(getattr, backbone, "checkpoint")
        embedded = texts(loaded)
        self._scorers: dict[str, Scorer] = {}
        self._loaded: dict[str, Loaded] = {}
        for name, backbone in loaded.items():
            with self._reported(name):
                self._scorers[name] = self._scorer(backbone, embedded[name])

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        """Reports an error with every shard: Ray loses what an actor's constructor raises."""
        try:
            yield
        except Exception as error:
            self.failures[name] = explain(error, Option(f"Backbone {name}"))

    def _load(self, config: BackboneConfig, device: str, turn: Lock) -> Backbone:
        from sparc_dist.backbones.models import Backbone

        return Backbone(config, device, turn)

    def _scorer(self, backbone: Backbone, embedded: Embedded) -> Scorer:
        from sparc_dist.backbones.models import Scorer

        if isinstance(embedded, str):
            raise UserError(embedded)
        texts, loaded = embedded
        _check_weights(backbone, loaded.weights_sha256)
        self._loaded[backbone.name] = loaded
        return Scorer(backbone, texts)

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Turns a row of DecodeShard into one with results in place of pixels."""
        count = len(batch["image_ids"][0])
        squares = zip(batch["sizes"][0].as_py(), _bytes_of(batch["pixels"][0].values), strict=True)
        pixels = {size: content.reshape(count, size, size, 3) for size, content in squares}
        shard = batch["shard"][0].as_py()
        results = [self._result(name, shard, pixels) for name in batch["backbones"][0].as_py()]
        kept = ("shard", "backbones", "image_ids", "errors", "retries", "seconds")
        return pa.table(
            {
                **{name: batch[name] for name in kept},
                "results": pa.array([results], pa.list_(RESULT)),
            }
        )

    def _result(
        self, name: str, shard: int, pixels: Mapping[int, NDArray[np.uint8]]
    ) -> dict[str, Any]:
        """Returns one backbone's result; its failure does not affect the others."""
        start = time.perf_counter()
        try:
            if name in self.failures:
                raise UserError(self.failures[name])
            scorer = self._scorers[name]
            squares = pixels[scorer.backbone.image_size]
            parts = self._score(scorer, squares)
            # One shard shows how far scores are from float32: the first, which every run has.
            precision = scorer.difference(squares, self._batch_size) if shard == 0 else None
        except Exception as error:
            self.failures[name] = explain(error, Option(f"Backbone {name}"))
            return {"backbone": name, "failure": self.failures[name]}
        return {
            "backbone": name,
            "matrices": [part.tobytes() for part in parts],
            "widths": [part.shape[1] for part in parts],
            "seconds": time.perf_counter() - start,
            "weights_sha256": scorer.backbone.weights_sha256,
            "kept_sha256": self._loaded[name].kept_sha256,
            "text_seconds": self._loaded[name].text_seconds,
            "device": scorer.backbone.device.type,
            "input": json.dumps(scorer.backbone.input),
            "checkpoint": json.dumps(scorer.backbone.checkpoint),
            "precision": json.dumps(precision),
        }

    def _score(self, scorer: Scorer, pixels: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        """Returns singleton, auxiliary and compound scores and embeddings, each (n, ·)."""
        if not len(pixels):
            # A shard without a single readable image needs tables of the right width too.
            blank = np.zeros((1, *pixels.shape[1:]), dtype=np.uint8)
            return [part[:0] for part in self._score(scorer, blank)]
        scores, embedding = scorer.score(pixels, self._batch_size)
        return [scores.singleton, scores.auxiliary, scores.compound, embedding]


def _bytes_of(values: pa.LargeBinaryArray) -> list[NDArray[np.uint8]]:
    """Returns the bytes of each value as they are in memory: Arrow would copy a value."""
    _, offsets, content = values.buffers()
    edges = np.frombuffer(offsets, np.int64)[values.offset :][: len(values) + 1]
    whole = np.frombuffer(content or b"", np.uint8)
    return [whole[start:end] for start, end in pairwise(edges)]


def _check_weights(backbone: Backbone, texts: str) -> None:
    """Raises UserError unless the weights are those that embedded the texts.

    texts: the hash of these. The same path may name different files on different nodes.
    """
    if backbone.weights_sha256 != texts:
        raise UserError(
            f"{backbone.place}: the hash of its weights on {socket.gethostname()} begins "
            f"with {backbone.weights_sha256[:12]}, and of those that embedded the prompts with "
            f"{texts[:12]}; put the same file on every node."
        )
