"""Sealed files: JSON and Parquet with a checksum inside, so that a reader can tell damaged ones.

A sealed file holds KEY and the SHA-256 of its own content with zeros in the place of the hash.
Where the two stand is up to the format: a last key of JSON, the metadata of Parquet, the comment
of an NPZ archive or a JPEG. Other tools read such files as usual. Parquet tables are written whole,
and read whole or one row group at a time.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparc_dist.errors import UserError
from sparc_dist.storage.files import open_file, read_bytes, read_if_exists, write_bytes
from sparc_dist.storage.filesystems import with_retries
from sparc_dist.storage.urls import without_secrets

KEY = "sparc_dist.sha256"
BLANK = "0" * 64
_ZEROS = BLANK.encode()
#: What the metadata of a file need before it is sealed.
BLANK_SEAL = {KEY: BLANK}
_SEAL = re.compile(rb"sparc_dist\.sha256[^0-9a-f]{1,6}([0-9a-f]{64})")
#: A text in the file may look like a seal; more such texts than this are an attack.
_MOST = 8


class Damaged(UserError, ValueError):
    """A file is not as it was written."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{without_secrets(url)} is damaged: its content does not match its checksum; "
            "`sparc-dist verify RUN` lists all damaged files of a run and what to do about each."
        )


def seal(content: bytes) -> tuple[bytes, str]:
    """Returns a content with its seal in place of the blank one, and the hash in it."""
    start = next(place for place in _places(content) if content[place : place + 64] == _ZEROS)
    sha256 = _hash(content, start)
    return content[:start] + sha256.encode() + content[start + 64 :], sha256


def seal_of(content: bytes | None) -> str | None:
    """Returns the hash in a sealed content; None if it has none, or if that does not match."""
    for start in _places(content or b""):
        sha256 = _hash(content or b"", start)
        if content is not None and content[start : start + 64] == sha256.encode():
            return sha256
    return None


def unsealed(url: str, content: bytes) -> bytes:
    """Returns a content that was read from ``url``; raises Damaged unless its seal matches."""
    if seal_of(content) is None:
        raise Damaged(url)
    return content


def to_json(value: Mapping[str, Any]) -> bytes:
    """Returns a value as readable, sealed JSON; floats keep every bit."""
    blank = {**value, KEY: BLANK}
    text = json.dumps(blank, indent=1, ensure_ascii=False, allow_nan=False)
    return seal(f"{text}\n".encode())[0]


def from_json(url: str, content: bytes) -> dict[str, Any]:
    """Returns the value that ``to_json`` was given; raises Damaged if it is another one."""
    value: dict[str, Any] = json.loads(unsealed(url, content))
    del value[KEY]
    return value


def read_json(url: str) -> dict[str, Any]:
    """Returns the value in a JSON file of a run; raises Damaged if it is not as it was written."""
    return from_json(url, read_bytes(url))


def read_json_if_exists(url: str) -> dict[str, Any] | None:
    """Returns the value in a JSON file of a run, or None if it is missing or damaged."""
    content = read_if_exists(url)
    try:
        return None if content is None else from_json(url, content)
    except ValueError:
        return None


def write_json(url: str, value: Mapping[str, Any]) -> None:
    """Writes a value as readable, sealed JSON; floats keep every bit."""
    write_bytes(url, to_json(value))


def seal_archive(content: bytes) -> bytes:
    """Returns an NPZ archive with a seal in its comment, which the format keeps at its end."""
    comment = f"{KEY}: {BLANK}".encode()
    # The last two bytes are the length of the comment, so far 0.
    return seal(content[:-2] + len(comment).to_bytes(2, "little") + comment)[0]


def seal_jpeg(content: bytes) -> bytes:
    """Returns a JPEG with a seal in a comment, behind the first segment, which must stay first."""
    comment = f"{KEY}: {BLANK}".encode()
    segment = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
    place = 4 + int.from_bytes(content[4:6], "big")
    return seal(content[:place] + segment + content[place:])[0]


def seal_footer(path: Path) -> None:
    """Seals the footer of a Parquet file that was written with a blank seal.

    For files that are read in parts: their pages have checksums of their own.
    """
    with path.open("r+b") as file:
        start = file.seek(-8, 2)
        start -= int.from_bytes(file.read(4), "little")
        file.seek(start)
        footer = seal(file.read())[0]
        file.seek(start)
        file.write(footer)


def _places(content: bytes) -> Iterator[int]:
    """Yields where hashes of seals may start, from the end."""
    end = len(content)
    for _ in range(_MOST):
        end = content.rfind(KEY.encode(), 0, end)
        if end < 0:
            return
        if found := _SEAL.match(content, end):
            yield found.start(1)


def _hash(content: bytes, start: int) -> str:
    whole = memoryview(content)
    digest = hashlib.sha256(whole[:start])
    digest.update(_ZEROS)
    digest.update(whole[start + 64 :])
    return digest.hexdigest()


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
    metadata.pop(KEY.encode(), None)  # if the table is written again, it has another one
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
    footer = _read_footer(url)  # not cached: a list of many parts would fill the memory
    return [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]


@contextmanager
def _opened(url: str) -> Iterator[pq.ParquetFile]:
    """Yields a file whose pages are compared with their checksums; damage raises Damaged."""
    with open_file(url) as file:
        try:
            version = with_retries(url, "reading", lambda fs, path: str(fs.ukey(path)))
            footer = _footer(url, version)
            yield pq.ParquetFile(file, metadata=footer, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, UserError | FileNotFoundError) or getattr(error, "errno", None):
                raise  # the store's or the disk's, not Parquet's
            raise Damaged(url) from error


@lru_cache(maxsize=2)
def _footer(url: str, version: str) -> pq.FileMetaData:
    """Returns a file's metadata, cached for the next row group: some megabytes if it has many.

    version: a text that changes when the file does.
    """
    return _read_footer(url)


def _read_footer(url: str) -> pq.FileMetaData:
    with open_file(url) as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        length = int.from_bytes(file.read(4), "little") + 8
        file.seek(max(size - length, 0))
        footer = unsealed(url, file.read())
    return pq.read_metadata(pa.BufferReader(footer))
