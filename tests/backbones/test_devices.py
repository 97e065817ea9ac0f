"""Threads that share a device: the same scores, one batch at a time, and the same on a GPU."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sparc_dist.backbones.devices import Transfer
from sparc_dist.backbones.models import Backbone, Scorer
from sparc_dist.config import BackboneConfig
from sparc_dist.prompts import PromptBank, TextEmbeddings, all_pairs

TINY = BackboneConfig(name="tiny", model="sparc-tiny", precision="fp32")
CLASSES = ("cat", "bus", "dog")
SHARDS = 4


@pytest.fixture(scope="module")
def texts() -> TextEmbeddings:
    return Backbone(TINY).embed(PromptBank(CLASSES, tuple(all_pairs(CLASSES))))


def shards(side: int) -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (5, side, side, 3), dtype=np.uint8) for _ in range(SHARDS)]


class Watched(Backbone):
    """Counts the threads that encode at the same time."""

    now = most = 0

    def _encode(self, batch: torch.Tensor) -> torch.Tensor:
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(0.002)  # long enough for another thread to come in
        found = super()._encode(batch)
        self.now -= 1
        return found


def test_shards_at_a_time_encode_in_turn_and_get_the_same_bits(texts: TextEmbeddings) -> None:
    shared = Watched(TINY, turn=Lock())
    scorer, alone = Scorer(shared, texts), Scorer(Backbone(TINY), texts)
    pixels = shards(shared.image_size)
    with ThreadPoolExecutor(SHARDS) as threads:
        found = list(threads.map(lambda shard: scorer.score(shard, 2), pixels))
    for shard, (scores, embedding) in zip(pixels, found, strict=True):
        expected, same = alone.score(shard, 2)
        np.testing.assert_array_equal(embedding, same)
        np.testing.assert_array_equal(scores.singleton, expected.singleton)
        np.testing.assert_array_equal(scores.compound, expected.compound)
    assert shared.most == 1


def test_batches_are_writable_copies_of_read_only_pixels() -> None:
    pixels = shards(4)[0]
    pixels.flags.writeable = False  # as Ray's shared memory is
    sizes = []
    for start, part in enumerate(Transfer(torch.device("cpu")).batches(pixels, 2)):
        np.testing.assert_array_equal(part, pixels[2 * start : 2 * start + 2])
        sizes.append(len(part.zero_()))
    assert sizes == [2, 2, 1]
    assert pixels.any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("features", ["global", "both"])
def test_a_gpu_returns_the_scores_of_the_cpu(texts: TextEmbeddings, features: str) -> None:
    config = TINY.model_copy(update={"features": features})
    scorer = Scorer(Backbone(config, "cuda", Lock()), texts)
    expected = Scorer(Backbone(config), texts)
    pixels = shards(scorer.backbone.image_size)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda shard: scorer.score(shard, 1), pixels))
    for shard, (scores, embedding) in zip(pixels, found, strict=True):
        right, images = expected.score(shard, 1)
        np.testing.assert_allclose(embedding, images, atol=1e-4)
        for kind in ("singleton", "auxiliary", "compound"):
            np.testing.assert_allclose(getattr(scores, kind), getattr(right, kind), atol=1e-4)
