"""What became of a data set's images since its run listed them."""

from __future__ import annotations

import os
import time
from calendar import timegm
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist.config import DatasetConfig
from sparc_dist.datasets.catalogue import class_names, open_source
from sparc_dist.datasets.duplicates import check_unique
from sparc_dist.datasets.images import stored_shards
from sparc_dist.runs import DatasetLayout
from sparc_dist.runs.outcome import read_dataset_facts

#: More images are not compared before a run starts, because that takes longer than a moment.
COMPARED = 200_000

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

    since: the time at which the run listed them. A local file that is newer has changed. Memory
    use: 32 bytes per image.
    """

    def __init__(self, dataset: DatasetConfig, layout: DatasetLayout, since: str) -> None:
        self.source = open_source(dataset, class_names(dataset))
        self._since = timegm(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ"))
        stored = [_hashes(rows) for rows in stored_shards(layout)]
        self._old, self._rows = (_sorted(parts) for parts in zip(*stored, strict=True))
        listed = [self._judged(rows) for rows in self.source.images()]
        self._now = _sorted([ids for ids, _ in listed])
        self._changed = _sorted([ids[changed] for ids, changed in listed])
        if (np.diff(self._now) == 0).any():
            rows = (name for table in self.source.images() for name in table["image_id"])
            check_unique(name.as_py() for name in rows)

    def _judged(self, rows: pa.Table) -> tuple[Hashes, Mask]:
        """Returns the hash of each id, and whether it is an image of the run that has changed."""
        ids, whole = _hashes(rows)
        newer = np.array([_is_newer(uri, self._since) for uri in rows["uri"].to_pylist()])
        return ids, _isin(ids, self._old) & (newer.astype(bool) | ~_isin(whole, self._rows))

    @property
    def changes(self) -> ImageChanges:
        """The numbers of changes."""
        before, now = len(self._old), len(self._now)
        kept = int(_isin(self._old, self._now).sum())
        return ImageChanges(before, now, now - kept, before - kept, len(self._changed))

    def gone(self, rows: pa.Table) -> Mask:
        """Returns which images of the run were removed or changed (n,)."""
        ids, _ = _hashes(rows)
        return ~_isin(ids, self._now) | _isin(ids, self._changed)

    def added(self, with_changed: bool) -> Iterator[pa.Table]:
        """Yields the new images, and those that have changed if they are wanted."""
        for rows in self.source.images():
            ids, _ = _hashes(rows)
            wanted = ~_isin(ids, self._old)
            if with_changed:
                wanted |= _isin(ids, self._changed)
            yield rows.filter(pa.array(wanted))


def image_changes(dataset: DatasetConfig, layout: DatasetLayout, started: str) -> str | None:
    """Returns what changed, as "300 → 309: 10 new photos, 1 removed since the run", or "".

    None if there is nothing to compare, or too much. started: the time in run.json.
    """
    facts = read_dataset_facts(layout)
    if facts is None or facts["images"] > COMPARED:
        return None
    found = str(Comparison(dataset, layout, facts.get("listed", started)).changes)
    return f"{found} since the run" if found else ""


def _hashes(rows: pa.Table) -> tuple[Hashes, Hashes]:
    """Returns a hash of each image's id, and one of its whole row."""
    ids = rows["image_id"].to_pylist()
    whole = zip(ids, rows["uri"].to_pylist(), map(str, rows["labels"].to_pylist()), strict=True)
    return _integers(map(hash, ids), len(ids)), _integers(map(hash, whole), len(ids))


def _integers(values: Any, count: int) -> Hashes:
    return np.fromiter(values, np.int64, count)


def _sorted(parts: Sequence[Hashes]) -> Hashes:
    return np.sort(np.concatenate([np.zeros(0, np.int64), *parts]))


def _isin(values: Hashes, among: Hashes) -> Mask:
    """Returns which values are in a sorted array."""
    if not len(among):
        return np.zeros(len(values), dtype=bool)
    places = np.searchsorted(among, values).clip(max=len(among) - 1)
    return np.asarray(among[places] == values)


def _is_newer(uri: str, since: float) -> bool:
    """Whether a local file was written later."""
    try:
        return os.stat(uri).st_mtime > since + 1  # run.json has whole seconds
    except (OSError, ValueError):  # a URL, or gone
        return False
