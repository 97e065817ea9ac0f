"""Parquet tables of a run: sealed, written whole, read whole or one row group at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparc_dist.errors import UserError
from sparc_dist.storage.files import open_file, read_bytes, write_bytes
from sparc_dist.storage.filesystems import with_retries
from sparc_dist.storage.seals import BLANK_SEAL, KEY, Damaged, seal, seal_footer, unsealed

_METADATA = KEY.encode()


def read_table(url: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns the table in a file that ``write_table`` wrote, or some of its columns.

    Raises Damaged if the file is not as it was written.
    """
    return decoded(unsealed(url, read_bytes(url)), columns)


def decoded(content: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns the table in the content of a small Parquet file, or some of its columns.

    With one thread and without a copy of the content, half a megabyte takes a third less time.
    """
    table = pq.ParquetFile(pa.BufferReader(content)).read(columns, use_threads=False)
    if columns is not None:
        table = table.select(columns)  # which raises KeyError if there is no such column
    metadata = {**(table.schema.metadata or {})}
    metadata.pop(_METADATA, None)  # if the table is written again, it has another one
    return table.replace_schema_metadata(metadata or None)


def write_table(url: str, table: pa.Table) -> str:
    """Writes a table as one sealed Parquet file; returns the hash in the seal."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, **parquet_options(table.schema)) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(BLANK_SEAL)
    content, sha256 = seal(buffer.getvalue())
    write_bytes(url, content)
    return sha256


@contextmanager
def sealed_writer(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yields a writer of a large local file, to be read one row group at a time.

    Its pages have checksums, and its footer is sealed.
    """
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        yield writer
        writer.add_key_value_metadata(BLANK_SEAL)
    seal_footer(path)


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
    """Returns one row group of a file of ``sealed_writer`` without reading the others."""
    with _opened(url) as parquet:
        return parquet.read_row_group(index, columns=columns)


def row_groups(url: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the row groups of such a file in order; opens it once and holds one at a time."""
    with _opened(url) as parquet:
        for index in range(parquet.num_row_groups):
            yield parquet.read_row_group(index, columns=columns)


def row_group_sizes(url: str) -> list[int]:
    """Returns the number of rows of each row group of such a file."""
    footer = _read_footer(url)  # not kept: a list of many parts would fill the memory
    return [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]


@contextmanager
def _opened(url: str) -> Iterator[pq.ParquetFile]:
    """Yields a file whose pages are compared with their checksums; damage raises Damaged."""
    with open_file(url) as file:
        try:
            footer = _footer(url, _version(url))
            yield pq.ParquetFile(file, metadata=footer, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, UserError | FileNotFoundError) or getattr(error, "errno", None):
                raise  # the store's or the disk's, not Parquet's
            raise Damaged(url) from error


@lru_cache(maxsize=2)
def _footer(url: str, version: str) -> pq.FileMetaData:
    """Returns a file's metadata, kept for the next row group: some megabytes if it has many."""
    return _read_footer(url)


def _read_footer(url: str) -> pq.FileMetaData:
    with open_file(url) as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        length = int.from_bytes(file.read(4), "little") + 8
        file.seek(max(size - length, 0))
        footer = unsealed(url, file.read())
    return pq.read_metadata(pa.BufferReader(footer))


def _version(url: str) -> str:
    """Returns a text that changes when the file does."""
    return with_retries(url, "reading", lambda fs, path: str(fs.ukey(path)))
