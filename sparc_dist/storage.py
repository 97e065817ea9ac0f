"""Where things lie: local paths and object storage behind the same few functions.

A file appears whole or not at all: locally it is written aside and renamed, object stores make an
object visible only when its upload is complete. What a run wrote is found by its name, never by
listing: a listing may be old.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from sparc_dist.errors import UserError
from sparc_dist.filesystems import Refused, StorageError, call, is_chain, is_remote, is_web, resolve

READ_AHEAD = 2**20

_PART = re.compile(r"(.*)#bytes=(\d+)\+(\d+)", re.DOTALL)


def absolute(url: str, base: str) -> str:
    """``url`` as it is when absolute, else below ``base``; local paths without dots."""
    if is_remote(url):
        return url
    if is_remote(base) and not os.path.isabs(url):
        return join(base, url)
    return os.path.normpath(os.path.join(base, os.path.expanduser(url)))


def join(url: str, *parts: str) -> str:
    """``url/part/…``."""
    return "/".join([url.rstrip("/"), *parts])


def parent(url: str) -> str:
    """The folder of a file."""
    head = url.rstrip("/").rpartition("/")[0]
    return head or ("/" if url.startswith("/") else ".")


def is_folder(url: str) -> bool:
    """Whether ``url`` is a folder."""
    return call(url, "listing", lambda fs, path: bool(fs.isdir(path)))


def files_below(url: str) -> Iterator[str]:
    """The URLs of all files below a folder, by name; holds one folder's names at a time."""
    if is_chain(url):
        raise UserError(f"{url} is a chain of file systems; name a plain URL or folder.")
    fs, path = resolve(url)
    entries = call(url, "listing", lambda fs, path: fs.ls(path, detail=True))
    for entry in sorted(entries, key=lambda entry: entry["name"]):
        if entry["name"].rstrip("/") == path.rstrip("/"):
            continue  # the folder itself, as S3 lists it
        # As the user spelt the URL: a file system may have other names for itself.
        below = join(url, entry["name"].rstrip("/")[len(path.rstrip("/")) + 1 :])
        if entry.get("islink") and fs.isdir(entry["name"]):
            # A link to a folder above would lead back here for ever.
            if not os.path.realpath(path).startswith(os.path.realpath(below)):
                yield from files_below(below)
        elif entry["type"] == "directory":
            yield from files_below(below)
        else:
            yield below


def part(url: str, offset: int, size: int) -> str:
    """The URL of some bytes of a file, as of an image in a tar."""
    return f"{url}#bytes={offset}+{size}"


def read_bytes(url: str) -> bytes:
    """The content of a file, or of a part of one."""
    wanted = _PART.fullmatch(url)
    if wanted:
        start, size = int(wanted[2]), int(wanted[3])
        content = call(
            wanted[1],
            "reading",
            lambda fs, path: bytes(fs.cat_file(path, start=start, end=start + size)),
        )
        # A web server may know no ranges and give the whole file.
        return content if len(content) <= size else content[start : start + size]
    return call(url, "reading", lambda fs, path: bytes(fs.cat_file(path)))


def read_own(url: str) -> bytes | None:
    """The content of a file of a run; None where there is none.

    A store whose listing is closed to us says "refused" of a file that is not there. Below a
    run's root, where ``check_access`` has shown that we may read, it means just that.
    """
    try:
        return read_bytes(url)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None


def opened(url: str) -> io.BufferedReader:
    """A file to read from, of which only the parts that are asked for are fetched."""
    fs, path = resolve(url)
    if isinstance(fs, LocalFileSystem):
        return open(path, "rb")
    if is_web(url):  # where neither sizes nor ranges can be relied on
        whole: Any = io.BytesIO(read_bytes(url))
        return io.BufferedReader(whole)
    return io.BufferedReader(_Remote(url), buffer_size=READ_AHEAD)


class _Remote(io.RawIOBase):
    """A file in a store, read range by range; each range is tried again on its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._size = int(call(url, "reading", lambda fs, path: fs.info(path)["size"]))
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        start, end = self._at, min(self._at + len(buffer), self._size)
        if start >= end:
            return 0
        content = call(
            self._url, "reading", lambda fs, path: fs.cat_file(path, start=start, end=end)
        )
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


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

    def put(fs: Any, path: str) -> None:
        if not isinstance(fs, LocalFileSystem):
            fs.pipe_file(path, content)
            return
        with _aside(url, path) as aside:
            aside.write_bytes(content)

    call(url, "writing", put)


@contextmanager
def writing(url: str) -> Iterator[Path]:
    """A local file to fill; it is put to ``url`` when the block ends without an error.

    For what is too large to be held in memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        filled = Path(folder) / "content"
        yield filled

        def put(fs: Any, path: str) -> None:
            if not isinstance(fs, LocalFileSystem):
                fs.put_file(str(filled), path)
                return
            with _aside(url, path) as aside:
                shutil.copyfile(filled, aside)

        call(url, "writing", put)


@contextmanager
def _aside(url: str, path: str) -> Iterator[Path]:
    """A file beside ``path`` to fill; it takes its place when its bytes are on the disk."""
    # The dot hides it from tools that read a folder as one table, should we be killed here.
    aside = Path(path).with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        aside.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"There is no space left to write {url}; free some and start the same command "
                "again, it goes on from there."
            ) from None
        raise Refused(
            f"Writing {url} was refused ({error.strerror}); allow it, or name another place."
        ) from None
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def delete(url: str) -> None:
    """Remove a file, if there is one."""
    with suppress(FileNotFoundError):
        call(url, "deleting", lambda fs, path: fs.rm_file(path))


def check_access(root: str) -> None:
    """Put a small file below ``root`` and read it back: before hours of work, not after."""
    probe = join(root, "access-check")
    write_bytes(probe, b"This run may write here.\n")
    read_bytes(probe)
    with suppress(OSError):  # a store that keeps what it has is as good
        delete(probe)


def sha256(url: str) -> str | None:
    """The SHA-256 of a file's content; None where there is no file."""
    try:
        with opened(url) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, IsADirectoryError):
        return None


def read_json(url: str) -> Any:
    """A JSON file's value."""
    return json.loads(read_bytes(url))


def read_own_json(url: str) -> Any:
    """A JSON file of a run; None where there is none, or a damaged one."""
    content = read_own(url)
    try:
        return None if content is None else json.loads(content)
    except ValueError:
        return None


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
    with opened(url) as file:
        parquet = pq.ParquetFile(file, metadata=_footer(url, _version(url)))
        return parquet.read_row_group(index, columns=columns)


def row_group_sizes(url: str) -> list[int]:
    """The number of rows of each row group."""
    footer = _footer(url, _version(url))
    return [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]


@lru_cache(maxsize=16)
def _footer(url: str, version: str) -> pq.FileMetaData:
    """A file's metadata, read once per process: it grows with the number of row groups."""
    with opened(url) as file:
        return pq.ParquetFile(file).metadata


def _version(url: str) -> str:
    """Changes when the file does."""
    return call(url, "reading", lambda fs, path: str(fs.ukey(path)))
