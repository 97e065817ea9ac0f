"""The map phase: images in, scores in storage. Decode on CPU tasks, encode and score on actors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
import ray.data

from sparc_dist.config import BackboneConfig
from sparc_dist.pipeline.decode import DecodeShard
from sparc_dist.pipeline.score import ScoreShard
from sparc_dist.pipeline.write import Target, WriteShard
from sparc_dist.planning import Scorers
from sparc_dist.runs import DatasetLayout


@dataclass(frozen=True)
class ShardOutcome:
    """What became of a shard: the backbones it was scored with, and why others failed.

    errors: the number of its images that could not be read.
    """

    shard: int
    done: list[str]
    failures: dict[str, str]
    errors: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ShardOutcome:
        """Reads a row that the map phase returns."""
        if row.get("failure") is not None:
            return cls(row["shard"], [], dict.fromkeys(row["backbones"], row["failure"]), 0)
        failures = {each["backbone"]: each["failure"] for each in row["failures"]}
        return cls(row["shard"], list(row["done"]), failures, row["errors"])


@dataclass(frozen=True)
class MapPhase:
    """Everything needed to score a data set's shards with a group of backbones.

    sizes and targets: by the name of the backbone. texts: as embed_prompts returns them.
    """

    dataset: DatasetLayout
    backbones: tuple[BackboneConfig, ...]
    sizes: Mapping[str, int]
    targets: Mapping[str, Target]
    texts: Any
    batch_size: int

    def run(
        self, todo: Mapping[int, Sequence[str]], scorers: Scorers, decoders: int, limit: float
    ) -> Iterator[ShardOutcome]:
        """Scores the shards of ``todo`` with the backbones it names; yields each as it finishes."""
        _configure(limit)
        rows = [{"shard": shard, "backbones": list(names)} for shard, names in todo.items()]
        data = ray.data.from_items(rows, override_num_blocks=len(rows))
        one: dict[str, Any] = {"batch_size": 1, "batch_format": "pyarrow"}
        decoded = data.map_batches(
            DecodeShard(self.dataset, self.sizes),
            compute=ray.data.TaskPoolStrategy(size=min(decoders, len(rows))),
            num_cpus=1,
            **one,
        )
        scored = decoded.map_batches(
            ScoreShard,
            fn_constructor_args=(self.backbones, self.texts, self.batch_size, scorers),
            compute=ray.data.ActorPoolStrategy(size=min(scorers.actors, len(rows))),
            # A scorer manages its own threads: reserving CPUs for it as well would leave none for
            # decoding on small machines, and the pipeline would stall.
            num_cpus=0,
            num_gpus=scorers.gpus,
            **one,
        )
        written = scored.map_batches(WriteShard(self.targets), num_cpus=0.5, **one)
        for row in written.iter_rows():
            yield ShardOutcome.of(row)


def _configure(limit: float) -> None:
    """Turns off Ray Data's own progress bars and logs, and limits every wait."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = float(limit)
    # A shard is one row and must stay one block, however large.
    context.target_max_block_size = None
    # What Ray Data logs as an error it also raises, and we report that.
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
