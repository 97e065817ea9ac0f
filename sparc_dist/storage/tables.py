"""Parquet tables: written whole, read whole or one row group at a time."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparc_dist.storage.files import open_file, read_bytes, write_bytes
from sparc_dist.storage.filesystems import with_retries


def read_table(url: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns the table in a Parquet file, or some of its columns."""
    return pq.read_table(io.BytesIO(read_bytes(url)), columns=columns)


def decoded(content: bytes) -> pa.Table:
    """Returns the table in the content of a small Parquet file.

    With one thread and without a copy of the content, half a megabyte takes a third less time.
    """
    return pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)


def write_table(url: str, table: pa.Table) -> str:
    """Writes a table as one Parquet file; returns the SHA-256 of its bytes."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, **parquet_options(table.schema))
    content = buffer.getvalue().to_pybytes()
    write_bytes(url, content)
    return hashlib.sha256(content).hexdigest()


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Returns the options: zstd, and for floats a byte-stream split that groups exponents."""
    floats = [
        f"{field.name}.list.element"
        for field in schema
        if pa.types.is_list(field.type) and pa.types.is_floating(field.type.value_type)
    ]
    return {
        "compression": "zstd",
        "use_dictionary": False,
        "use_byte_stream_split": floats or False,
    }


def read_row_group(url: str, index: int, columns: Sequence[str]) -> pa.Table:
    """Returns one row group of a Parquet file without reading the others."""
    with open_file(url) as file:
        parquet = pq.ParquetFile(file, metadata=_footer(url, _version(url)))
        return parquet.read_row_group(index, columns=columns)


def row_groups(url: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the row groups of a Parquet file in order; opens it once and holds one at a time."""
    with open_file(url) as file:
        parquet = pq.ParquetFile(file, metadata=_footer(url, _version(url)))
        for index in range(parquet.num_row_groups):
            yield parquet.read_row_group(index, columns=columns)


def row_group_sizes(url: str) -> list[int]:
    """Returns the number of rows of each row group."""
    footer = _read_footer(url)  # not kept: a list of many parts would fill the memory
    return [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]


@lru_cache(maxsize=2)
def _footer(url: str, version: str) -> pq.FileMetaData:
    """Returns a file's metadata, kept for the next row group: some megabytes if it has many."""
    return _read_footer(url)


def _read_footer(url: str) -> pq.FileMetaData:
    with open_file(url) as file:
        return pq.ParquetFile(file).metadata


def _version(url: str) -> str:
    """Returns a text that changes when the file does."""
    return with_retries(url, "reading", lambda fs, path: str(fs.ukey(path)))
