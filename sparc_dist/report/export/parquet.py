"""One Parquet file from the tables of many shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from sparc_dist import storage

#: The size of a row group: shards may be small, and each group of each column has its own entry in
#: the file's footer.
GROUP_BYTES = 2**26


def write_tables(url: str, tables: Iterable[pa.Table]) -> None:
    """Writes tables with the same columns one below the other."""
    groups = _groups(tables)
    first = next(groups)
    with (
        storage.atomic_file(url) as path,
        pq.ParquetWriter(path, first.schema, compression="zstd") as writer,
    ):
        writer.write_table(first)
        for group in groups:
            writer.write_table(group)


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yields the tables, joined until they have the size of a row group."""
    pending: list[pa.Table] = []
    size = 0
    for table in tables:
        pending.append(table)
        size += table.nbytes
        if size >= GROUP_BYTES:
            yield pa.concat_tables(pending)
            pending, size = [], 0
    if pending:
        yield pa.concat_tables(pending)
