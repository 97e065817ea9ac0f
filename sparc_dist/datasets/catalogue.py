"""The catalogue: every kind of data set by its name in a config."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from sparc_dist import storage
from sparc_dist.config import DATASET_KINDS, DatasetConfig, check_classes, names_in
from sparc_dist.datasets.kind import DatasetKind, Source
from sparc_dist.errors import UserError

#: Each kind is in the module of its name; the names are in ``config.presets``.
KINDS: dict[str, DatasetKind] = {
    name: import_module(f"sparc_dist.datasets.{name}").KIND for name in DATASET_KINDS
}


def open_source(dataset: DatasetConfig, classes: Sequence[str]) -> Source:
    """Returns the source of a data set's images."""
    return KINDS[dataset.kind].open(dataset.images, classes)


def class_names(dataset: DatasetConfig) -> tuple[str, ...]:
    """Returns a data set's class names: its own, those of the config, or those in a file."""
    if dataset.classes is None:
        return KINDS[dataset.kind].classes
    if not isinstance(dataset.classes, str):
        return dataset.classes
    names = names_in(storage.read_lines(dataset.classes))
    try:
        check_classes(names)
    except ValueError as error:
        raise UserError(f"{dataset.classes}: {error}.") from None
    return names
