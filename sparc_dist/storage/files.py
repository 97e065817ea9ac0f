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
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from sparc_dist.errors import UserError
from sparc_dist.storage.filesystems import Refused, StorageError, resolve, with_retries
from sparc_dist.storage.urls import is_chain, is_web, join, split_byte_range

READ_AHEAD = 2**20


def is_folder(url: str) -> bool:
    """Whether ``url`` is a folder."""
    return with_retries(url, "listing", lambda fs, path: bool(fs.isdir(path)))


def files_below(url: str) -> Iterator[str]:
    """The URLs of all files below a folder, by name; holds one folder's names at a time."""
    if is_chain(url):
        raise UserError(f"{url} is a chain of file systems; name a plain URL or folder.")
    fs, path = resolve(url)
    entries = with_retries(url, "listing", lambda fs, path: fs.ls(path, detail=True))
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


def read_bytes(url: str) -> bytes:
    """The content of a file, or of a part of one."""
    wanted = split_byte_range(url)
    if wanted:
        file, start, size = wanted
        content = with_retries(
            file,
            "reading",
            lambda fs, path: bytes(fs.cat_file(path, start=start, end=start + size)),
        )
        # A web server may know no ranges and give the whole file.
        return content if len(content) <= size else content[start : start + size]
    return with_retries(url, "reading", lambda fs, path: bytes(fs.cat_file(path)))


def read_if_exists(url: str) -> bytes | None:
    """The content of a file of a run; None where there is none.

    A store whose listing is closed to us says "refused" of a file that is not there. Below a
    run's root, where ``check_access`` has shown that we may read, it means just that.
    """
    try:
        return read_bytes(url)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None


def open_file(url: str) -> io.BufferedReader:
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
        self._size = int(with_retries(url, "reading", lambda fs, path: fs.info(path)["size"]))
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
        content = with_retries(
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

    with_retries(url, "writing", put)


@contextmanager
def atomic_file(url: str) -> Iterator[Path]:
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

        with_retries(url, "writing", put)


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
        with_retries(url, "deleting", lambda fs, path: fs.rm_file(path))


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
        with open_file(url) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, IsADirectoryError):
        return None


def read_json(url: str) -> Any:
    """A JSON file's value."""
    return json.loads(read_bytes(url))


def read_json_if_exists(url: str) -> Any:
    """A JSON file of a run; None where there is none, or a damaged one."""
    content = read_if_exists(url)
    try:
        return None if content is None else json.loads(content)
    except ValueError:
        return None


def write_json(url: str, value: object) -> None:
    """Write a value as JSON that people can read; floats keep every bit."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(url, (text + "\n").encode())
