"""Where things lie: local paths and object storage behind the same few functions.

A file appears whole or not at all: locally it is written aside and renamed, object stores make an
object visible only when its upload is complete.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from sparc_dist.errors import UserError


def absolute(url: str, base: str) -> str:
    """``url`` as it is when absolute, else below ``base``; local paths without dots."""
    if is_remote(url):
        return url
    if is_remote(base) and not os.path.isabs(url):
        return join(base, url)
    return os.path.normpath(os.path.join(base, os.path.expanduser(url)))


def is_remote(url: str) -> bool:
    """Whether ``url`` names a protocol, as ``s3://bucket/key`` does."""
    return "://" in url


def join(url: str, *parts: str) -> str:
    """``url/part/…``."""
    return "/".join([url.rstrip("/"), *parts])


def parent(url: str) -> str:
    """The folder of a file."""
    head = url.rstrip("/").rpartition("/")[0]
    return head or ("/" if url.startswith("/") else ".")


def exists(url: str) -> bool:
    """Whether there is a file (or folder) at ``url``."""
    fs, path = fsspec.core.url_to_fs(url)
    return bool(fs.exists(path))


def is_folder(url: str) -> bool:
    """Whether ``url`` is a folder."""
    fs, path = fsspec.core.url_to_fs(url)
    return bool(fs.isdir(path))


def files_below(url: str) -> Iterator[str]:
    """The URLs of all files below a folder, by name; holds one folder's names at a time."""
    if "::" in url:
        raise UserError(f"{url} is a chain of file systems; name a plain URL or folder.")
    fs, path = fsspec.core.url_to_fs(url)
    for entry in sorted(fs.ls(path, detail=True), key=lambda entry: entry["name"]):
        # As the user spelt the URL: a file system may have other names for itself.
        below = join(url, entry["name"].rstrip("/")[len(path.rstrip("/")) + 1 :])
        if entry.get("islink") and fs.isdir(entry["name"]):
            # A link to a folder above would lead back here for ever.
            if not os.path.realpath(path).startswith(os.path.realpath(below)):
                yield from files_below(below)
        elif entry["type"] == "directory":
            yield from files_below(below)
        elif entry["name"].rstrip("/") != path.rstrip("/"):
            yield below


def part(url: str, offset: int, size: int) -> str:
    """The URL of some bytes of a file, as of an image in a tar."""
    return f"{url}#bytes={offset}+{size}"


def read_bytes(url: str) -> bytes:
    """The content of a file, or of a part of one."""
    url, _, wanted = url.partition("#bytes=")
    fs, path = fsspec.core.url_to_fs(url)
    if wanted:
        offset, size = (int(number) for number in wanted.split("+"))
        content: bytes = fs.cat_file(path, start=offset, end=offset + size)
        return content
    whole: bytes = fs.cat_file(path)
    return whole


def read_lines(url: str) -> list[str]:
    """The lines of a text file."""
    try:
        return read_bytes(url).decode("utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UserError(f"There is no file {url}; check the path.") from None
    except UnicodeDecodeError:
        raise UserError(f"{url} is not UTF-8 text; save it as such.") from None


def write_bytes(url: str, content: bytes) -> None:
    """Write a file, whole or not at all."""
    fs, path = fsspec.core.url_to_fs(url)
    if not isinstance(fs, LocalFileSystem):
        fs.pipe_file(path, content)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    aside = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(aside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        Path(aside).unlink(missing_ok=True)


def delete(url: str) -> None:
    """Remove a file, if there is one."""
    fs, path = fsspec.core.url_to_fs(url)
    with suppress(FileNotFoundError):
        fs.rm_file(path)


def sha256(url: str) -> str | None:
    """The SHA-256 of a file's content; None where there is no file."""
    digest = hashlib.sha256()
    try:
        with fsspec.open(url, "rb") as file:
            while chunk := file.read(2**20):
                digest.update(chunk)
    except (FileNotFoundError, IsADirectoryError):
        return None
    return digest.hexdigest()


@contextmanager
def writing(url: str) -> Iterator[Path]:
    """A local file to fill; it is put to ``url`` when the block ends without an error.

    For what is too large to be held in memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        aside = Path(folder) / "content"
        yield aside
        fs, path = fsspec.core.url_to_fs(url)
        if isinstance(fs, LocalFileSystem):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            near = f"{path}.{uuid.uuid4().hex}.tmp"
            fs.put_file(str(aside), near)
            os.replace(near, path)
        else:
            fs.put_file(str(aside), path)


def read_json(url: str) -> Any:
    """A JSON file's value."""
    return json.loads(read_bytes(url))


def write_json(url: str, value: object) -> None:
    """Write a value as JSON that people can read; floats keep every bit."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(url, (text + "\n").encode())


def read_table(url: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file, or some of its columns."""
    return pq.read_table(io.BytesIO(read_bytes(url)), columns=columns)


def write_table(url: str, table: pa.Table) -> str:
    """Write a table as one Parquet file; gives the SHA-256 of its bytes."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **parquet_options(table.schema))
    content = buffer.getvalue()
    write_bytes(url, content)
    return hashlib.sha256(content).hexdigest()


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """zstd for all; for floats the split of bytes that lets zstd see their exponents together."""
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
    """One row group of a Parquet file, without reading the others."""
    footer = _footer(url, _version(url))
    with fsspec.open(url, "rb") as file:
        return pq.ParquetFile(file, metadata=footer).read_row_group(index, columns=columns)


def row_group_sizes(url: str) -> list[int]:
    """The number of rows of each row group."""
    footer = _footer(url, _version(url))
    return [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]


@lru_cache(maxsize=16)
def _footer(url: str, version: str) -> pq.FileMetaData:
    """A file's metadata, read once per process: it grows with the number of row groups."""
    with fsspec.open(url, "rb") as file:
        return pq.ParquetFile(file).metadata


def _version(url: str) -> str:
    """Changes when the file does."""
    fs, path = fsspec.core.url_to_fs(url)
    return str(fs.ukey(path))
