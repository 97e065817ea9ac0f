"""How busy a scorer keeps its device: one that is simulated and takes a fixed time per batch."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from sparc_dist.backbones.models import Backbone, Scorer
from sparc_dist.backbones.transfer import HELD, Transfer
from sparc_dist.bench.map_phase import random_directions
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import TINY, BackboneConfig, ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.pipeline.embed import Loaded, WaitForTexts
from sparc_dist.pipeline.executor import executor, share
from sparc_dist.pipeline.map_phase import ShardSteps
from sparc_dist.pipeline.score import ScoreShard
from sparc_dist.planning import Scorers
from sparc_dist.prompts import TextEmbeddings
from sparc_dist.runs.shards import ERRORS

LIMIT = 600.0  # seconds without one finished shard
NAME = "accelerator"
#: Images per second: clip-retrieval's figure for ViT-B/32 on an A100, and four times as many; with
#: the share of time that a scorer should keep such a device busy.
GOALS = {2_500: 0.95, 10_000: 0.85}


@dataclass(frozen=True)
class Sizes:
    """Sizes of the benchmark. side: of an image in pixels. seconds: that the device computes."""

    side: int
    shard: int
    batch: int
    classes: int
    compounds: int
    width: int
    seconds: float
    rounds: int


FULL = Sizes(224, 256, 64, 80, 1500, 512, 5.0, 2)
QUICK = Sizes(8, 8, 4, 3, 5, 4, 0.01, 1)


class Device(Backbone):
    """A model whose device takes a fixed time per batch, one after the other, and keeps the time.

    begun: when the first batch began. free: when the last one that was given ends. busy: seconds of
    computing.
    """

    def __init__(self, config: BackboneConfig, turn: Lock, sizes: Sizes, rate: float) -> None:
        super().__init__(config, "cpu", turn)
        self.image_size, self._width, self._rate = sizes.side, sizes.width, rate
        self.begun = self.free = self.busy = 0.0

    def transfer(self) -> Transfer:
        """Returns the way of a thread to the simulated device and back."""
        return DeviceTransfer(self)

    def _encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Gives a batch to the device, as a GPU without waiting for it; embeddings are made up."""
        start = max(time.perf_counter(), self.free)
        seconds = len(batch) / self._rate
        self.begun = self.begun or start
        self.free = start + seconds
        self.busy += seconds
        return torch.ones(len(batch), self._width)


class DeviceTransfer(Transfer):
    """Waits as a transfer to a GPU does: for the last but one batch, and for results."""

    def __init__(self, simulated: Device) -> None:
        super().__init__(simulated.device)
        self._simulated = simulated

    def batches(self, pixels: NDArray[np.uint8], size: int) -> Iterator[torch.Tensor]:
        """Yields parts in copies; the device holds no more of them than a GPU would."""
        ends: deque[float] = deque()
        for part in super().batches(pixels, size):
            if len(ends) == HELD:
                _sleep_until(ends.popleft())
            yield part
            ends.append(self._simulated.free)

    def fetched(self, results: Sequence[torch.Tensor]) -> list[NDArray[Any]]:
        """Returns results when the device has made them."""
        _sleep_until(self._simulated.free)
        return super().fetched(results)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))


class DeviceScorer(Scorer):
    """A scorer whose text products are part of the device's fixed time."""

    def _by_kind(self, similar: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        return [torch.zeros(len(similar(rows[:1])), len(rows)) for rows in self._texts]


class ScoreOnDevice(ScoreShard):
    """The scorer of the pipeline on a simulated device."""

    def __init__(self, sizes: Sizes, rate: float, texts: WaitForTexts) -> None:
        self._sizes, self._rate = sizes, rate
        backbone = BackboneConfig(name=NAME, model=TINY)
        super().__init__([backbone], sizes.batch, Scorers(1, 0, 1), texts)

    def _load(self, config: BackboneConfig, device: str, turn: Lock) -> Backbone:
        self._device = Device(config, turn, self._sizes, self._rate)
        return self._device

    def _scorer(self, backbone: Backbone, embedded: Any) -> Scorer:
        texts, self._loaded[NAME] = embedded
        return DeviceScorer(backbone, texts)  # not checked: the weights are of no interest

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Adds what the device has done so far."""
        scored = super().__call__(batch)
        done = self._device
        return scored.append_column("busy", [[done.busy]]).append_column(
            "seconds_so_far", [[done.free - done.begun]]
        )


def drop_results(scored: pa.Table) -> pa.Table:
    """Stands for the step that writes: storage is not measured here."""
    (result,) = scored["results"][0].as_py()
    kept = scored.select(["busy", "seconds_so_far"])
    return kept.append_column("failure", pa.array([result["failure"]], pa.string()))


def measure(setting: BenchSetting) -> str:
    """Scores prepared pixels with one and with two shards at a time, alternately."""
    from sparc_dist.pipeline.on_ray import score_prepared

    sizes = QUICK if setting.quick else FULL
    counts = (sizes.classes, sizes.classes, sizes.compounds)
    texts = TextEmbeddings(*(random_directions(count, sizes.width) for count in counts))
    shard = _prepared(sizes)
    found: dict[tuple[int, int], list[float]] = {}
    with executor(ResourcesConfig()):
        shared = share({NAME: (texts, Loaded({}, "", "cpu", 0.0))})
        for rate, at_a_time in [(r, n) for _ in range(sizes.rounds) for r in GOALS for n in (1, 2)]:
            steps = ShardSteps(
                decode=drop_results,  # nothing is left to decode
                scorer=partial(ScoreOnDevice, sizes, rate),
                write=drop_results,
                texts=[shared],
                scorers=Scorers(1, 0, 1, at_a_time),
                decoders=1,
            )
            times = max(4, round(rate * sizes.seconds / sizes.shard))
            share_busy = _busy(list(score_prepared(shard, times, steps, LIMIT)))
            found.setdefault((rate, at_a_time), []).append(share_busy)
    return _text(sizes, found)


def _busy(rows: Sequence[Mapping[str, Any]]) -> float:
    """Returns the share of time that the device was busy, from its first batch to its last."""
    for failure in filter(None, (row["failure"] for row in rows)):
        raise UserError(failure)
    last = max(rows, key=lambda row: float(row["seconds_so_far"]))
    return float(last["busy"] / last["seconds_so_far"])


def _text(sizes: Sizes, found: dict[tuple[int, int], list[float]]) -> str:
    figures = {}
    for rate, goal in GOALS.items():
        one, two = (found[rate, number] for number in (1, 2))
        name = f"% busy at {rate:,} images/s"
        figures[f"{name}, one shard at a time"] = f"{100 * median(one):.1f}"
        figures[f"{name}, two (goal: {100 * goal:.0f})"] = f"{100 * median(two):.1f}"
        figures[f"{name}, two, lowest of {len(two)} rounds"] = f"{100 * min(two):.1f}"
    figures["load of this machine, in processes per core"] = (
        f"{os.getloadavg()[0] / (os.cpu_count() or 1):.1f}"
    )
    return block(
        f"scorer with a simulated accelerator, {sizes.side}-pixel images prepared beforehand, "
        f"shards of {sizes.shard} in batches of {sizes.batch}, "
        f"{2 * sizes.classes + sizes.compounds:,} prompts",
        figures,
    )


def _prepared(sizes: Sizes) -> pa.Table:
    """Returns a decoded shard, as DecodeShard does."""
    shape = (sizes.shard, sizes.side, sizes.side, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return pa.table(
        {
            "shard": [1],  # only the first is compared with float32
            "backbones": [[NAME]],
            "image_ids": [[f"{number:08d}" for number in range(sizes.shard)]],
            "sizes": [[sizes.side]],
            "pixels": pa.array([[pixels.reshape(-1).data]], pa.list_(pa.large_binary())),
            "errors": pa.array([[]], pa.list_(pa.struct(ERRORS))),
            "retries": [0],
            "seconds": [0.0],
        }
    )
