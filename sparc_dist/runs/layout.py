"""The names of all files of a run: they are deterministic, so only answers are listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sparc_dist.core import FUSIONS, Method, stages_of
from sparc_dist.storage import join

#: The passes of the reduce once the fusions are fitted, and all of them with the default fusions.
AFTER_FIT = ("final_scores", "decision_statistics", "labels")
STAGES = (*stages_of(Method().fusions), *AFTER_FIT)
#: A group has one shard while there are at most FEW_GROUPS of them, then up to SHARDS_PER_GROUP,
#: which share what a pass prepares, and more only if there would be more than MOST_GROUPS groups:
#: each is one task and has one state file per pass.
FEW_GROUPS, SHARDS_PER_GROUP, MOST_GROUPS = 64, 16, 4096

#: The number of states that are merged at once. Sums of floats depend on it in their last bits.
FAN_IN = 16

#: The shards of a segment: those that are scored together, while the driver keeps some 20 KB of
#: each, and whose markers are one table when all are scored. Part of the run format.
SEGMENT = 4096

#: The suffixes of the files that an experiment writes.
EXPERIMENT_FILES = ("csv", "md", "png", "svg")


def shard_groups(shards: int) -> list[range]:
    """Returns groups of neighbouring shards. They depend on the number of shards alone."""
    size = 1
    while shards > size * (FEW_GROUPS if size < SHARDS_PER_GROUP else MOST_GROUPS):
        size *= 2
    return [range(start, min(start + size, shards)) for start in range(0, shards, size)]


@dataclass(frozen=True)
class UnitLayout:
    """The URLs of the files of one unit."""

    root: str

    def scores(self, shard: int) -> str:
        """Returns the URL of the scores: image_id, singleton, auxiliary, compound, embedding.

        ``store`` leaves out some of them.
        """
        return join(self.root, "scores", f"{shard:05d}.parquet")

    def marker(self, shard: int) -> str:
        """Returns the URL of the marker, written last: its counts and content hashes.

        It is not beside the scores, so that any tool can read that folder as one Parquet table.
        """
        return join(self.root, "done", f"{shard:05d}.json")

    def marker_table(self, segment: int) -> str:
        """Returns the URL of the markers of all shards of a segment, once it is complete."""
        return join(self.root, "markers", f"{segment:05d}.parquet")

    @property
    def begun(self) -> str:
        """The URL of the number of shards of which markers may exist."""
        return join(self.root, "markers", "begun.json")

    def marker_files(self, shards: int) -> Iterator[str]:
        """Yields the URLs of the tables of markers, then those of the markers."""
        yield from (self.marker_table(segment) for segment in range(-(-shards // SEGMENT)))
        yield from (self.marker(shard) for shard in range(shards))
        yield self.begun

    def errors(self, shard: int) -> str:
        """Returns the URL of the errors: image_id, uri, error; no rows if all images are good."""
        return join(self.root, "errors", f"{shard:05d}.parquet")

    def final(self, shard: int) -> str:
        """Returns the URL of the final scores: image_id, and a column per method and part."""
        return join(self.root, "final", f"{shard:05d}.parquet")

    def labels(self, shard: int) -> str:
        """Returns the URL of the labels: image_id, class, probability, present."""
        return join(self.root, "labels", f"{shard:05d}.parquet")

    def wide_labels(self, shard: int) -> str:
        """Returns the URL of the labels with one column per class: its probability."""
        return join(self.root, "labels-wide", f"{shard:05d}.parquet")

    @property
    def decisions(self) -> str:
        """The URL of the decision rules of all classes."""
        return join(self.root, "decisions.json")

    @property
    def gallery(self) -> str:
        """The URL of what a report shows of each class: which images, counts of scores."""
        return join(self.root, "gallery.npz")

    def files(self, shards: int) -> Iterator[str]:
        """Yields the URLs of a unit with ``shards`` shards, except markers and metrics."""
        for shard in range(shards):
            yield from (self.scores(shard), self.errors(shard), self.final(shard))
            yield from (self.labels(shard), self.wide_labels(shard))
        groups = range(len(shard_groups(shards)))
        fits = {stage for kind in FUSIONS.values() for stage, _ in kind.passes}
        yield from (self.state(stage, i) for stage in (*fits, *AFTER_FIT) for i in groups)
        yield from (self.texts, self.labeler, self.decisions)
        yield from (self.gallery, self.prompt_embeddings, self.knowledge)

    def state(self, stage: str, group: int) -> str:
        """Returns the URL of the state of a pass for a group of shards, used to resume."""
        return join(self.root, "reduce", stage, f"{group:02d}.npz")

    @property
    def texts(self) -> str:
        """The embeddings of its texts, kept for another start and for experiments."""
        return join(self.root, "texts.parquet")

    @property
    def prompt_embeddings(self) -> str:
        """The embeddings of its prompts, where scores are not kept but computed from them."""
        return join(self.root, "prompt-embeddings.parquet")

    @property
    def labeler(self) -> str:
        """The fitted labeler: all that is needed to label a new image, except CLIP's weights."""
        return join(self.root, "labeler.safetensors")

    @property
    def knowledge(self) -> str:
        """What people told the unit about its images, for a later fit of it."""
        return join(self.root, "knowledge.json")

    @property
    def answers(self) -> str:
        """The folder of people's answers, a file per session of `sparc-dist view`.

        The only one that is listed. None of ``files``: a run that starts over deletes results, not
        the work of people.
        """
        return join(self.root, "answers")

    @property
    def metrics(self) -> str:
        """The metrics, written last: the unit is done."""
        return join(self.root, "metrics.json")


@dataclass(frozen=True)
class DatasetLayout:
    """The URLs of the files of one data set."""

    root: str

    @property
    def images(self) -> str:
        """The table of image_id, uri, labels: its first part, which most data sets do with."""
        return self.images_part(0)

    def images_part(self, part: int) -> str:
        """Returns the URL of a part of that table; each of its row groups is a shard."""
        if part == 0:
            return join(self.root, "images.parquet")
        return join(self.root, "images", f"{part:05d}.parquet")

    def image_files(self, shards: int) -> Iterator[str]:
        """Yields the URLs of all parts."""
        yield from (self.images_part(part) for part in range(max(-(-shards // SEGMENT), 1)))

    @property
    def listing(self) -> str:
        """How far a list of several parts has been written, used to resume."""
        return join(self.root, "images", "listing.json")

    @property
    def prompts(self) -> str:
        """The table of prompt_id, text, kind, class_ids, origin."""
        return join(self.root, "prompts.parquet")

    @property
    def replies(self) -> str:
        """The folder of an LLM's replies, one JSON file per question."""
        return join(self.root, "llm")

    @property
    def marker(self) -> str:
        """The marker, written last: images and prompts are ready. Has their counts and hashes."""
        return join(self.root, "dataset.json")

    def unit(self, backbone: str) -> UnitLayout:
        """Returns the layout of this data set under one backbone."""
        return UnitLayout(join(self.root, backbone))


@dataclass(frozen=True)
class RunLayout:
    """The URLs of the files of a run."""

    root: str

    @property
    def run(self) -> str:
        """Config, versions, hashes, counts, timings."""
        return join(self.root, "run.json")

    @property
    def lease(self) -> str:
        """Who writes to the run now."""
        return join(self.root, "lease.json")

    @property
    def labels_csv(self) -> str:
        """The labels as a table for people, which `sparc-dist label` writes."""
        return join(self.root, "labels.csv")

    @property
    def report(self) -> str:
        """The folder of the report."""
        return join(self.root, "report")

    @property
    def report_marker(self) -> str:
        """The marker: the names of the report's files, and last the hash of what they show."""
        return join(self.report, "report.json")

    def figure(self, dataset: str, backbone: str) -> str:
        """Returns the URL of the example pictures of a unit."""
        return join(self.report, "figures", f"{dataset}-{backbone}.png")

    def thumbnail(self, dataset: str, key: str) -> str:
        """Returns the URL of a small copy of an image of a data set."""
        return join(self.report, "thumbnails", dataset, f"{key}.jpg")

    def thumbnails(self, dataset: str) -> str:
        """Returns the URL of the list of a data set's thumbnails: by key, why there is none."""
        return join(self.report, "thumbnails", dataset, "index.json")

    def experiment(self, name: str, ending: str) -> str:
        """Returns the URL of a file of an experiment."""
        return join(self.root, "experiments", f"{name}.{ending}")

    @property
    def experiments_index(self) -> str:
        """The page that links to every experiment."""
        return join(self.root, "experiments", "index.md")

    def experiment_files(self, names: Iterable[str]) -> Iterator[str]:
        """Yields all files of the named experiments, the index last."""
        for name in names:
            yield from (self.experiment(name, ending) for ending in EXPERIMENT_FILES)
        yield self.experiments_index

    def report_files(
        self, datasets: Sequence[str], backbones: Sequence[str], written: Iterable[str] = ()
    ) -> Iterator[str]:
        """Yields all files of a report, its marker last; ``written``: those that it names."""
        names = {"index.html", "tables.md", "tables.csv", *written}
        yield from (join(self.report, name) for name in names)
        yield from (self.figure(name, backbone) for name in datasets for backbone in backbones)
        yield self.report_marker

    def dataset(self, name: str) -> DatasetLayout:
        """Returns the layout of one of the run's data sets."""
        return DatasetLayout(join(self.root, name))
