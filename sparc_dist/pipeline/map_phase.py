"""The map phase: which shards are to be scored, and the steps that they go through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist.config import BackboneConfig
from sparc_dist.pipeline.embed import WaitForTexts
from sparc_dist.pipeline.executor import current, get, submit
from sparc_dist.pipeline.score import ScoreShard
from sparc_dist.pipeline.steps import DecodeShard, Target, WriteShard
from sparc_dist.planning import Scorers
from sparc_dist.runs import DatasetLayout, MarkerSummary, UnitLayout
from sparc_dist.runs.layout import SEGMENT
from sparc_dist.runs.markers import LEAST, begin, compact, segment_of

#: A shard and the backbones to score it with: {shard, backbones}.
Row = dict[str, Any]


@dataclass(frozen=True)
class Todo:
    """The shards to score: for each backbone the sorted numbers of its shards (n,).

    Arrays, because a run may have millions of shards; rows are made for one segment at a time.
    begin: told before each segment which shard follows its last one.
    """

    shards: Mapping[str, NDArray[np.int64]]
    begin: Callable[[int], None] = lambda shards: None

    def segments(self, size: int) -> Iterator[list[Row]]:
        """Yields the rows in the order of shards, ``size`` of them at a time."""
        union = np.unique(np.concatenate([*self.shards.values()]))
        for start in range(0, len(union), size):
            part = union[start : start + size]
            wanted = {name: _between(own, part) for name, own in self.shards.items()}
            self.begin(int(part[-1]) + 1)
            yield [
                {"shard": shard, "backbones": [name for name in wanted if shard in wanted[name]]}
                for shard in part.tolist()
            ]


def _between(shards: NDArray[np.int64], part: NDArray[np.int64]) -> set[int]:
    """Returns the shards from the first to the last of a part."""
    first, end = np.searchsorted(shards, [part[0], part[-1] + 1])
    return set(shards[first:end].tolist())


#: A segment has at least so many shards for each scorer, because each starts its scorers again.
SHARDS_PER_SCORER = 512
#: Turns a row about a shard into another one.
Step = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class ShardOutcome:
    """What became of a shard: the backbones it was scored with, and why others failed.

    errors: the number of its images that could not be read. text_seconds: the time that the texts
    of each backbone in ``done`` took.
    """

    shard: int
    done: list[str]
    failures: dict[str, str]
    errors: int
    text_seconds: Sequence[float]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ShardOutcome:
        """Reads a row that the map phase returns."""
        if row.get("failure") is not None:
            return cls(row["shard"], [], dict.fromkeys(row["backbones"], row["failure"]), 0, [])
        failures = {each["backbone"]: each["failure"] for each in row["failures"]}
        return cls(row["shard"], row["done"], failures, row["errors"], row["text_seconds"])


@dataclass(frozen=True)
class ShardSteps:
    """The three steps of a shard.

    texts: the parts of a text pass. scorer: is given a function that waits for them. decoders: how
    many shards are decoded at a time.
    """

    decode: Step
    scorer: Callable[[WaitForTexts], Step]
    write: Step
    texts: Sequence[Any]
    scorers: Scorers
    decoders: int


@dataclass(frozen=True)
class MapPhase:
    """Everything needed to score a data set's shards with a group of backbones.

    sizes and targets: by the name of the backbone. texts: the parts of a text pass, which may still
    be under way. jpeg_scaling: whether large JPEGs are decoded at a smaller scale.
    max_image_bytes: of a file.
    """

    dataset: DatasetLayout
    backbones: tuple[BackboneConfig, ...]
    sizes: Mapping[str, int]
    targets: Mapping[str, Target]
    texts: Sequence[Any]
    batch_size: int
    jpeg_scaling: bool
    max_image_bytes: int

    def run(
        self, todo: Todo, scorers: Scorers, decoders: int, limit: float
    ) -> Iterator[ShardOutcome]:
        """Scores the shards of ``todo`` with the backbones it names; yields each as it finishes."""
        steps = self.steps(scorers, decoders)
        size = max(SEGMENT, SHARDS_PER_SCORER * scorers.actors)
        for row in current().score(steps, todo.segments(size), limit):
            yield ShardOutcome.of(row)

    def steps(self, scorers: Scorers, decoders: int) -> ShardSteps:
        """Returns the steps of a shard."""
        return ShardSteps(
            DecodeShard(self.dataset, self.sizes, self.jpeg_scaling, self.max_image_bytes),
            partial(ScoreShard, self.backbones, self.batch_size, scorers),
            WriteShard(self.targets),
            self.texts,
            scorers,
            decoders,
        )


class Compaction:
    """Follows the scoring of a unit: its markers so far, and the shards that are left."""

    def __init__(self, unit: UnitLayout, markers: MarkerSummary, todo: NDArray[np.int64]) -> None:
        self._unit = unit
        self._shards = len(markers.images)
        self._begun = _begun(self._shards, np.asarray(markers.missing))
        self._left = np.bincount(todo // SEGMENT)
        self._jobs: list[Any] = []
        touched = {*(todo // SEGMENT).tolist()}  # damaged shards, whose markers will change
        for shard in markers.loose:
            if shard // SEGMENT not in touched:
                self._start(shard)

    def begin(self, shards: int) -> None:
        """Notes that the first ``shards`` shards are about to be scored."""
        if shards > self._begun:
            begin(self._unit, shards, self._shards)
            self._begun = shards

    def done(self, shard: int) -> None:
        """Takes note of a shard that is scored; compacts its segment if it is the last one."""
        self._left[shard // SEGMENT] -= 1
        if not self._left[shard // SEGMENT]:
            self._start(shard)

    def _start(self, shard: int) -> None:
        segment = segment_of(shard, self._shards)
        if len(segment) >= LEAST:
            self._jobs.append(submit(compact, self._unit, segment))

    def finish(self, limit: float) -> None:
        """Waits until all tables are written."""
        for job in self._jobs:
            get(job, limit, "Compacting the markers")


def _begun(shards: int, missing: NDArray[np.int64]) -> int:
    """Returns the first shard after all that have a marker. missing: sorted numbers (n,)."""
    gaps = missing != np.arange(shards - len(missing), shards)
    last = np.flatnonzero(gaps)
    return shards - len(missing) + (int(last[-1]) + 1 if len(last) else 0)
