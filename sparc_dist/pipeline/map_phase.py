"""The map phase: images in, scores in storage: decode, then encode and score, then write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from sparc_dist.config import BackboneConfig
from sparc_dist.pipeline.decode import DecodeShard
from sparc_dist.pipeline.embed import WaitForTexts
from sparc_dist.pipeline.executor import current
from sparc_dist.pipeline.score import ScoreShard
from sparc_dist.pipeline.todo import Todo
from sparc_dist.pipeline.write import Target, WriteShard
from sparc_dist.planning import Scorers
from sparc_dist.runs import DatasetLayout
from sparc_dist.runs.layout import SEGMENT

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
