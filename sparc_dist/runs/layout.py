"""The names of everything a run leaves in storage: deterministic, so nothing is ever listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sparc_dist.storage import join

#: The passes of the reduce. Their states lie in at most so many files each: enough groups of
#: shards to keep a cluster busy, and few enough to be merged at once.
STAGES = ("prompt_statistics", "rank_statistics", "final_scores", "average_precision")
MOST_GROUPS = 64


#: The kinds of files that an experiment leaves.
EXPERIMENT_FILES = ("csv", "md", "png", "svg")


def shard_groups(shards: int) -> list[range]:
    """Neighbouring shards in at most MOST_GROUPS groups; it depends on their number alone."""
    size = -(-shards // MOST_GROUPS)
    return [range(start, min(start + size, shards)) for start in range(0, shards, size)]


@dataclass(frozen=True)
class UnitLayout:
    """One data set under one backbone."""

    root: str

    def scores(self, shard: int) -> str:
        """image_id, singleton, auxiliary, compound, embedding."""
        return join(self.root, "scores", f"{shard:05d}.parquet")

    def marker(self, shard: int) -> str:
        """Written last: this shard is scored. Holds its counts and content hashes.

        Not among the scores, so that any tool reads that folder as one Parquet table.
        """
        return join(self.root, "done", f"{shard:05d}.json")

    def errors(self, shard: int) -> str:
        """image_id, uri, error; without rows where all of a shard's images are good."""
        return join(self.root, "errors", f"{shard:05d}.parquet")

    def final(self, shard: int) -> str:
        """image_id, zsclip, debiased, sparc."""
        return join(self.root, "final", f"{shard:05d}.parquet")

    def files(self, shards: int) -> Iterator[str]:
        """All that a unit of so many shards leaves beside markers and metrics."""
        for shard in range(shards):
            yield from (self.scores(shard), self.errors(shard), self.final(shard))
        yield from (self.state(stage, group) for stage in STAGES for group in range(MOST_GROUPS))
        yield self.fusion

    def state(self, stage: str, group: int) -> str:
        """What a pass of the reduce learnt from a group of shards, to go on from."""
        return join(self.root, "reduce", stage, f"{group:02d}.npz")

    @property
    def fusion(self) -> str:
        """Statistics and weights: everything needed to score a new image."""
        return join(self.root, "fusion.json")

    @property
    def metrics(self) -> str:
        """Written last: this unit is done."""
        return join(self.root, "metrics.json")


@dataclass(frozen=True)
class DatasetLayout:
    """One data set; row group i of ``images`` is shard i."""

    root: str

    @property
    def images(self) -> str:
        """image_id, uri, labels."""
        return join(self.root, "images.parquet")

    @property
    def prompts(self) -> str:
        """prompt_id, text, kind, class_ids, origin."""
        return join(self.root, "prompts.parquet")

    @property
    def replies(self) -> str:
        """The folder of an LLM's replies, one JSON a question."""
        return join(self.root, "llm")

    @property
    def marker(self) -> str:
        """Written last: images and prompts are ready. Holds their counts and hash."""
        return join(self.root, "dataset.json")

    def unit(self, backbone: str) -> UnitLayout:
        """This data set under one backbone."""
        return UnitLayout(join(self.root, backbone))


@dataclass(frozen=True)
class RunLayout:
    """A whole run."""

    root: str

    @property
    def run(self) -> str:
        """Config, versions, hashes, counts, timings."""
        return join(self.root, "run.json")

    @property
    def report(self) -> str:
        """The folder of the report."""
        return join(self.root, "report")

    @property
    def report_marker(self) -> str:
        """Written last: the report is that of the metrics whose hash it holds."""
        return join(self.report, "report.json")

    def figure(self, dataset: str, backbone: str) -> str:
        """The example pictures of a unit."""
        return join(self.report, "figures", f"{dataset}-{backbone}.png")

    def experiment(self, name: str, ending: str) -> str:
        """A file of an experiment."""
        return join(self.root, "experiments", f"{name}.{ending}")

    @property
    def experiments_index(self) -> str:
        """A page that leads to every experiment."""
        return join(self.root, "experiments", "index.md")

    def experiment_files(self, names: Iterable[str]) -> Iterator[str]:
        """All files of the experiments that are named, the index last."""
        for name in names:
            yield from (self.experiment(name, ending) for ending in EXPERIMENT_FILES)
        yield self.experiments_index

    def report_files(self, datasets: Sequence[str], backbones: Sequence[str]) -> Iterator[str]:
        """All files of a report, its marker first."""
        yield self.report_marker
        yield from (join(self.report, name) for name in ("index.html", "tables.md", "tables.csv"))
        yield from (self.figure(name, backbone) for name in datasets for backbone in backbones)

    def dataset(self, name: str) -> DatasetLayout:
        """One of the run's data sets."""
        return DatasetLayout(join(self.root, name))
