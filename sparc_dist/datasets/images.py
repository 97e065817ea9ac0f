"""images.parquet: one row per image, one row group per shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparc_dist import storage
from sparc_dist.errors import UserError
from sparc_dist.runs import DatasetLayout

SCHEMA = pa.schema(
    [
        ("image_id", pa.string()),
        ("uri", pa.string()),
        ("labels", pa.list_(pa.int32())),
    ]
)
BATCH_ROWS = 4096
FIRST_ROWS = 64  # in the first batch, so that a look at a data set is quick

T = TypeVar("T")


def images_table(
    ids: Sequence[str], uris: Sequence[str], labels: Sequence[Sequence[int] | None]
) -> pa.Table:
    """Returns a batch of images; labels are class indices, or None if unknown."""
    texts = ([in_utf8(text) for text in column] for column in (ids, uris))
    columns = zip((*texts, labels), SCHEMA, strict=True)
    return pa.table([pa.array(values, field.type) for values, field in columns], schema=SCHEMA)


def write_images(batches: Iterable[pa.Table], url: str, shard_size: int) -> dict[str, int]:
    """Writes images.parquet with one row group per shard and returns its counts."""
    return write_shards(in_shards(batches, repeat(shard_size)), url)


def write_shards(shards: Iterable[pa.Table], url: str) -> dict[str, int]:
    """Writes images.parquet with one row group per table and returns its counts.

    Memory use: eight bytes per image, to find duplicate ids, and one shard of rows.
    """
    hashes: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    labelled = 0
    with storage.atomic_file(url) as path:
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            for shard in shards:
                ids = shard["image_id"].to_pylist()
                hashes.append(np.fromiter(map(hash, ids), np.int64, len(ids)))
                labelled += len(shard) - shard["labels"].null_count
                writer.write_table(shard)
        count = sum(map(len, hashes))
        if not count:
            raise UserError("The data set contains no images; check the path.")
        if len(np.unique(np.concatenate(hashes))) < count:
            stored = pq.ParquetFile(path).iter_batches(columns=["image_id"])
            check_unique(name for rows in stored for name in rows["image_id"].to_pylist())
    return {"images": count, "labelled": labelled, "shards": len(hashes)}


def in_shards(batches: Iterable[pa.Table], sizes: Iterable[int]) -> Iterator[pa.Table]:
    """Yields the rows of the batches in tables of these sizes; the last may have fewer rows."""
    wanted = iter(sizes)
    size = next(wanted)
    pending = SCHEMA.empty_table()
    for batch in batches:
        pending = pa.concat_tables([pending, batch])
        while len(pending) >= size:
            yield pending.slice(0, size)
            pending = pending.slice(size)
            size = next(wanted, size)
    if len(pending):
        yield pending


def stored_shards(layout: DatasetLayout) -> Iterator[pa.Table]:
    """Yields the images of each shard of a prepared data set."""
    for shard in range(len(storage.row_group_sizes(layout.images))):
        yield storage.read_row_group(layout.images, shard, SCHEMA.names)


def check_unique(ids: Iterable[str]) -> None:
    """Raises UserError about the first id that occurs twice."""
    seen: set[str] = set()
    for image_id in ids:
        if image_id in seen:
            raise UserError(f"Duplicate image_id: {image_id}; make the ids unique.")
        seen.add(image_id)


def in_utf8(name: str) -> str:
    r"""Returns the name with \udcXX for each byte of a file name that is not UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()


def chunks(items: Iterable[T], size: int = BATCH_ROWS) -> Iterator[list[T]]:
    """Yields the items in lists of at most ``size``; the first list is short."""
    chunk: list[T] = []
    limit = min(size, FIRST_ROWS)
    for item in items:
        chunk.append(item)
        if len(chunk) == limit:
            yield chunk
            chunk, limit = [], size
    if chunk:
        yield chunk
