"""What became of a data set's images since its run began."""

from __future__ import annotations

import os
import time
from calendar import timegm
from collections.abc import Iterable, Iterator

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets.catalogue import class_names, open_source
from sparc_dist.runs import DatasetLayout

#: Of more images only the number is compared, because all their ids would be in memory.
COMPARED = 200_000


def image_changes(dataset: DatasetConfig, layout: DatasetLayout, started: str) -> str:
    """Returns what changed, as "300 → 309: 10 new photos, 1 removed since the run", or "".

    started: the time in run.json. A local file that is newer has changed.
    """
    facts = storage.read_json_if_exists(layout.marker)
    if facts is None or facts["images"] > COMPARED:
        return ""
    old = dict(_images([storage.read_table(layout.images)]))
    new = dict(_images(open_source(dataset, class_names(dataset)).images()))
    since = timegm(time.strptime(started, "%Y-%m-%dT%H:%M:%SZ"))
    kept = old.keys() & new.keys()
    changed = sum(old[name] != new[name] or _is_newer(new[name][0], since) for name in kept)
    counts = (
        (len(new.keys() - kept), "new"),
        (len(old.keys() - kept), "removed"),
        (changed, "changed"),
    )
    found = [(count, what) for count, what in counts if count]
    if not found:
        return ""
    (count, what), *others = found
    total = f"{len(old):,} → {len(new):,}: " if len(old) != len(new) else ""
    first = f"{count:,} {what} {'photo' if count == 1 else 'photos'}"
    return total + ", ".join([first, *(f"{n:,} {what}" for n, what in others)]) + " since the run"


def _images(tables: Iterable[pa.Table]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields the id of each image with its uri and labels."""
    for table in tables:
        for row in table.to_pylist():
            yield row["image_id"], (row["uri"], str(row["labels"]))


def _is_newer(uri: str, since: float) -> bool:
    """Whether a local file was written later."""
    try:
        return os.stat(uri).st_mtime > since + 1  # run.json has whole seconds
    except (OSError, ValueError):  # a URL, or gone
        return False
