"""The list of a data set's images: parts with one row group per shard, a segment each.

The first part is images.parquet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.runs.layout import SEGMENT, DatasetLayout


def read_images(layout: DatasetLayout, shard: int, columns: Sequence[str]) -> pa.Table:
    """Returns the images of a shard without reading others."""
    part, index = divmod(shard, SEGMENT)
    return storage.read_row_group(layout.images_part(part), index, columns)


def image_shards(layout: DatasetLayout, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the images of each shard; holds one at a time."""
    for url, _ in _parts(layout):
        yield from storage.row_groups(url, columns)


def shard_sizes(layout: DatasetLayout) -> list[int]:
    """Returns the number of images of each shard."""
    return [size for _, sizes in _parts(layout) for size in sizes]


def images_sha256(layout: DatasetLayout, shards: int) -> str | None:
    """Returns the hash of the list: of its only part, or of the hashes of all; None without any."""
    hashes: list[str] = []
    for part in range(-(-shards // SEGMENT)):
        found = storage.sha256(layout.images_part(part))
        if found is None:
            break
        hashes.append(found)
    if len(hashes) > 1:
        return hashlib.sha256("".join(hashes).encode()).hexdigest()
    return hashes[0] if hashes else None


def _parts(layout: DatasetLayout) -> Iterator[tuple[str, list[int]]]:
    """Yields the URL of each part and the sizes of its shards."""
    for part in count():
        url = layout.images_part(part)
        if part and storage.is_missing(url):
            return
        sizes = storage.row_group_sizes(url)
        yield url, sizes
        if len(sizes) < SEGMENT:  # the last one
            return
