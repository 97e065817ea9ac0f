"""The sources of data sets: what a kind's reader offers, and how a config opens it."""

from __future__ import annotations

from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Protocol, runtime_checkable

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.config import DATASET_KINDS, DatasetConfig, check_classes, names_in
from sparc_dist.errors import UserError


class Source(Protocol):
    """The source of a data set's images."""

    #: What was left out and why; complete once ``images`` is exhausted.
    notes: list[str]

    def images(self) -> Iterator[pa.Table]:
        """Yields the images in a fixed order, in batches with the schema of images.parquet."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A source that need not begin at its first image."""

    def images_after(self, uri: str) -> Iterator[pa.Table] | None:
        """Yields the images behind one; None if this source has to begin at the first."""
        ...


@runtime_checkable
class Labelled(Protocol):
    """A source with the labels of training images, which are not scored."""

    notes: list[str]

    def labels(self) -> Iterator[list[list[int]]]:
        """Yields the class indices of each training image, in batches."""
        ...


def open_source(dataset: DatasetConfig) -> Source:
    """Returns the source of a data set's images."""
    reader = DATASET_KINDS[dataset.kind].reader
    if isinstance(reader, str):
        reader = resolve_name(reader)
    source: Source = reader(dataset.images, class_names(dataset))
    return source


def class_names(dataset: DatasetConfig) -> tuple[str, ...]:
    """Returns a data set's class names: its own, those of the config, or those in a file."""
    if dataset.classes is None:
        return DATASET_KINDS[dataset.kind].classes
    if not isinstance(dataset.classes, str):
        return dataset.classes
    names = names_in(storage.read_lines(dataset.classes))
    try:
        check_classes(names)
    except ValueError as error:
        raise UserError(f"{dataset.classes}: {error}.") from None
    return names
