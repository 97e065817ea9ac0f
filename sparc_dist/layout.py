"""The names of everything a run leaves in storage: deterministic, so nothing is ever listed."""

from __future__ import annotations

from dataclasses import dataclass

from sparc_dist.storage import join


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
        """image_id, uri, error; only where a shard has such images."""
        return join(self.root, "errors", f"{shard:05d}.parquet")

    def final(self, shard: int) -> str:
        """image_id, zsclip, debiased, sparc."""
        return join(self.root, "final", f"{shard:05d}.parquet")

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

    def dataset(self, name: str) -> DatasetLayout:
        """One of the run's data sets."""
        return DatasetLayout(join(self.root, name))
