"""What became of a data set's images since its run listed them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist.config import DatasetConfig
from sparc_dist.datasets.images import check_unique, stored_shards
from sparc_dist.datasets.sources import open_source
from sparc_dist.runs import DatasetLayout
from sparc_dist.runs.results import read_dataset_facts

#: More images are not compared before a run starts, because that takes longer than a moment.
COMPARED = 200_000

#: In place of the hash of a version.
UNKNOWN = 0

Hashes = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ImageChanges:
    """The numbers of images before and now, and how many are new, removed or changed."""

    before: int
    now: int
    new: int
    removed: int
    changed: int

    def __bool__(self) -> bool:
        return bool(self.new or self.removed or self.changed)

    def __str__(self) -> str:
        counts = ((self.new, "new"), (self.removed, "removed"), (self.changed, "changed"))
        found = [(count, what) for count, what in counts if count]
        if not found:
            return ""
        (count, what), *others = found
        total = f"{self.before:,} → {self.now:,}: " if self.before != self.now else ""
        first = f"{count:,} {what} {'photo' if count == 1 else 'photos'}"
        return ", ".join([total + first, *(f"{n:,} {what}" for n, what in others)])


class Comparison:
    """Compares the images of a run with those that the data set has now.

    An image has changed if its URI, its labels or the version of its file is another one; a version
    that is unknown on one side says nothing. Memory use: 40 bytes per image.
    """

    def __init__(self, dataset: DatasetConfig, layout: DatasetLayout) -> None:
        self.source = open_source(dataset)
        stored = [_hashes(rows) for rows in stored_shards(layout)]
        columns = [np.concatenate(parts) for parts in zip(*stored, strict=True)]
        order = np.argsort(columns[0])
        self._old, self._rows, self._versions = (column[order] for column in columns)
        listed = [self._judged(rows) for rows in self.source.images()]
        self._now = _sorted([ids for ids, _ in listed])
        self._changed = _sorted([ids[changed] for ids, changed in listed])
        if (np.diff(self._now) == 0).any():
            rows = (name for table in self.source.images() for name in table["image_id"])
            check_unique(name.as_py() for name in rows)

    def _judged(self, rows: pa.Table) -> tuple[Hashes, Mask]:
        """Returns the hash of each id, and whether it is an image of the run that has changed."""
        ids, whole, version = _hashes(rows)
        place = _places(ids, self._old)
        before = self._versions[place]
        replaced = (before != version) & (before != UNKNOWN) & (version != UNKNOWN)
        return ids, (self._old[place] == ids) & (replaced | (self._rows[place] != whole))

    @property
    def changes(self) -> ImageChanges:
        """The numbers of changes."""
        before, now = len(self._old), len(self._now)
        kept = int(_isin(self._old, self._now).sum())
        return ImageChanges(before, now, now - kept, before - kept, len(self._changed))

    def gone(self, rows: pa.Table) -> Mask:
        """Returns which images of the run were removed or changed (n,)."""
        ids, _, _ = _hashes(rows)
        return ~_isin(ids, self._now) | _isin(ids, self._changed)

    def added(self, with_changed: bool) -> Iterator[pa.Table]:
        """Yields the new images, and those that have changed if they are wanted."""
        for rows in self.source.images():
            ids, _, _ = _hashes(rows)
            wanted = ~_isin(ids, self._old)
            if with_changed:
                wanted |= _isin(ids, self._changed)
            yield rows.filter(pa.array(wanted))


def image_changes(dataset: DatasetConfig, layout: DatasetLayout) -> str | None:
    """Returns what changed, as "300 → 309: 10 new photos, 1 removed since the run", or "".

    None if there is nothing to compare, or too much.
    """
    facts = read_dataset_facts(layout)
    if facts is None or facts["images"] > COMPARED:
        return None
    found = str(Comparison(dataset, layout).changes)
    return f"{found} since the run" if found else ""


def _hashes(rows: pa.Table) -> tuple[Hashes, Hashes, Hashes]:
    """Returns hashes of each image's id, of its URI with its labels, and of its version."""
    ids = rows["image_id"].to_pylist()
    whole = zip(rows["uri"].to_pylist(), map(str, rows["labels"].to_pylist()), strict=True)
    versions = (UNKNOWN if text is None else hash(text) for text in rows["version"].to_pylist())
    columns = (map(hash, ids), map(hash, whole), versions)
    first, second, third = (np.fromiter(values, np.int64, len(ids)) for values in columns)
    return first, second, third


def _sorted(parts: Sequence[Hashes]) -> Hashes:
    return np.sort(np.concatenate([np.zeros(0, np.int64), *parts]))


def _isin(values: Hashes, among: Hashes) -> Mask:
    """Returns which values are in a sorted array."""
    if not len(among):
        return np.zeros(len(values), dtype=bool)
    return np.asarray(among[_places(values, among)] == values)


def _places(values: Hashes, among: Hashes) -> NDArray[np.int64]:
    """Returns where each value is in a sorted array, if it is there."""
    return np.searchsorted(among, values).clip(max=len(among) - 1)
