"""The images of another run, listed again with the labels that other classes give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets.images import SCHEMA, in_shards, stored_shards
from sparc_dist.datasets.sources import class_names, open_source
from sparc_dist.errors import UserError
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import EmbeddedDataset
from sparc_dist.runs.shards import images_sha256, shard_sizes
from sparc_dist.storage import without_secrets


class ReusedImages:
    """The images of a run's data set, in its shards; they need not exist any more.

    Labels are those of the run, by the names of their classes. Where it lacks some of the classes,
    they are those of the data set's own table, if that still lists the same images, or none.
    """

    def __init__(self, dataset: DatasetConfig, run: EmbeddedDataset) -> None:
        self._dataset = dataset
        self._run = run
        self._classes = class_names(dataset)
        named = dataset.model_dump(mode="json", include={"kind", "images"})
        self._same_place = all(run.config[key] == value for key, value in named.items())
        self.notes: list[str] = []

    def check(self) -> None:
        """Raises UserError unless the data set has the images of the run."""
        if not self._same_place and not self._lists_them():
            raise UserError(
                f"{self._place(self._dataset.images)} does not list the same images as "
                f"{self._run.layout.images}; name those of that run, "
                f"{self._place(self._run.config['images'])}, or run without --embeddings-from."
            )

    def shards(self) -> Iterator[pa.Table]:
        """Yields the images of each shard of the run."""
        facts = self._run.facts
        if images_sha256(self._run.layout, facts["shards"]) != facts["images_sha256"]:
            raise UserError(
                f"{self._run.layout.images} was changed after it was written; restore it, or run "
                "without --embeddings-from."
            )
        self.check()
        theirs = PromptBank.from_table(storage.read_table(self._run.layout.prompts)).classes
        missing = [name for name in self._classes if name not in theirs]
        unknown = missing if self._run.facts["labelled"] else ()
        if not self._same_place or (unknown and self._lists_them()):
            source = open_source(self._dataset)
            sizes = shard_sizes(self._run.layout)
            yield from in_shards(source.images(), sizes)
            self.notes += source.notes
            return
        if unknown:
            self.notes.append(_without_labels(unknown, self._run.layout.images))
        for table in stored_shards(self._run.layout):
            yield _relabelled(table, [] if unknown else theirs, self._classes)

    def _lists_them(self) -> bool:
        """Whether the data set's own table or folder still lists the images, in their order."""
        try:
            listed = open_source(self._dataset).images()
            pairs = zip_longest(_rows(listed), _rows(stored_shards(self._run.layout)))
            return all(ours == theirs for ours, theirs in pairs)
        except (UserError, OSError):  # it is gone, or cannot be read
            return False

    def _place(self, images: str | Sequence[str]) -> str:
        urls = [images] if isinstance(images, str) else images
        return ", ".join(map(without_secrets, urls))


def _rows(tables: Iterable[pa.Table]) -> Iterator[tuple[str, str]]:
    """Yields the id of each image and where it is; a signature may have changed."""
    for table in tables:
        uris = map(without_secrets, table["uri"].to_pylist())
        yield from zip(table["image_id"].to_pylist(), uris, strict=True)


def _relabelled(table: pa.Table, theirs: Sequence[str], ours: Sequence[str]) -> pa.Table:
    """Returns images with indices of our classes; without any of their classes, with no labels."""
    place = {name: index for index, name in enumerate(ours)}
    new = [place.get(name) for name in theirs]
    labels = [
        None if row is None or not theirs else [n for n in (new[i] for i in row) if n is not None]
        for row in table["labels"].to_pylist()
    ]
    column = SCHEMA.get_field_index("labels")
    return table.set_column(column, SCHEMA.field(column), pa.array(labels, SCHEMA.types[column]))


def _without_labels(unknown: Sequence[str], images: str) -> str:
    some = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
    return (
        f"{without_secrets(images)} has no labels of {some}, so the images have no labels; for a "
        "mAP, run from a table that has them."
    )
