"""Files on local disks and in object stores behind the same few functions.

A file appears whole or not at all: locally a temporary file is written and renamed; object stores
make an object visible only when its upload is complete. A run's files are found by name, never by
listing, because a listing may be stale.
"""

from __future__ import annotations

import errno
import hashlib
import io
import mimetypes
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
from sparc_dist.storage.listing import File, entity_tag, local_version
from sparc_dist.storage.reading import open_regular, read_range, read_whole, too_large
from sparc_dist.storage.urls import is_remote, is_web, join, parent, split_byte_range

READ_AHEAD = 2**20
#: How often others may be in the way of a check of access.
PROBES = 10
#: The most lines and bytes of a text file that people write, such as one of class names.
LINES, LARGEST_TEXT = 100_000, 2**24
#: A disk is full, a quota is, or a file is larger than a limit allows.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_folder(url: str) -> bool:
    """Whether ``url`` is a folder."""
    return with_retries(url, "listing", lambda fs, path: bool(fs.isdir(path)))


def exists(url: str) -> bool:
    """Whether there is a file or folder."""
    part = split_byte_range(url)
    file = part[0] if part else url
    return with_retries(file, "reading", lambda fs, path: bool(fs.exists(path)))


def matches(pattern: str) -> list[File]:
    """Returns the files that a pattern with * ? [] matches, by name."""
    _, path = resolve(pattern)
    found = with_retries(pattern, "listing", lambda fs, path: fs.glob(path, detail=True))
    protocol = pattern.removesuffix(path)
    files = [(protocol + name, e) for name, e in sorted(found.items()) if e["type"] == "file"]
    return [File(url, entity_tag(entry) or local_version(url)) for url, entry in files]


def read_bytes(url: str, most: int | None = None) -> bytes:
    """Returns the content of a file, or of the byte range that ``url`` names.

    most: raises BadFile if it has more bytes, and reads no more than that.
    """
    part = split_byte_range(url)
    if part is None:
        return with_retries(url, "reading", lambda fs, path: read_whole(fs, path, most))
    file, start, size = part
    if most is not None and size > most:
        raise too_large(url, most)
    content = with_retries(
        file, "reading", lambda fs, path: read_range(fs, path, start, size, most)
    )
    # A web server may not support ranges and return the whole file.
    return content if len(content) <= size else content[start : start + size]


def read_if_exists(url: str) -> bytes | None:
    """Returns the content of a file of a run, or None if it is proven that there is none.

    A store that forbids listing answers "refused" for a missing file, as it does for a file that
    must not be read. Raises PermissionError where that cannot be told apart.
    """
    try:
        content = read_bytes(url)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        if not _hides_missing(url):
            raise
        return _read_again(url)
    _readable.add(parent(url))
    return content


#: Folders of runs below which this process has read something.
_readable: set[str] = set()
#: Of folders that refused something: whether they refuse a name that cannot exist, too.
_hiding: dict[str, bool] = {}


def _hides_missing(url: str) -> bool:
    """Whether the store says "refused" of missing files in the folder of ``url``."""
    if not is_remote(url):
        return False
    folder = parent(url)
    if folder not in _hiding:
        try:
            read_bytes(join(folder, f"no-such-file-{uuid.uuid4().hex}"))
        except FileNotFoundError:
            _hiding[folder] = False
        except PermissionError:
            _hiding[folder] = True
    return _hiding[folder]


def _read_again(url: str) -> bytes | None:
    """Returns a file that was refused, or None if it is missing: others there may be read."""
    folder = parent(url)
    if any(folder == known or folder.startswith(f"{known}/") for known in _readable):
        return None
    _probe(folder)
    try:
        return read_bytes(url)  # the right to read may have come in the meantime
    except PermissionError:
        return None


def is_missing(url: str) -> bool:
    """Whether it is proven that a run has no such file; reads one byte at most."""
    return read_if_exists(f"{url}#bytes=0+1") is None


def open_file(url: str) -> io.BufferedReader:
    """Opens a file for reading; only the requested parts of it are fetched."""
    fs, path = resolve(url)
    if isinstance(fs, LocalFileSystem):
        return open_regular(path)
    if is_web(url):  # web servers may support neither sizes nor ranges
        whole: Any = io.BytesIO(read_bytes(url))
        return io.BufferedReader(whole)
    return io.BufferedReader(_RemoteFile(url), buffer_size=READ_AHEAD)


class _RemoteFile(io.RawIOBase):
    """A file in a store, read range by range; each range is retried on its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._size = int(with_retries(url, "reading", lambda fs, path: fs.info(path)["size"]))
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        start, end = self._position, min(self._position + len(buffer), self._size)
        if start >= end:
            return 0
        content = with_retries(
            self._url, "reading", lambda fs, path: fs.cat_file(path, start=start, end=end)
        )
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


def read_lines(url: str) -> list[str]:
    """Returns the lines of a text file, of at most LINES; raises UserError if there are more."""
    try:
        text = read_bytes(url, LARGEST_TEXT).decode("utf-8-sig")
        if (count := text.count("\n")) > LINES:
            raise UserError(f"{url} has {count:,} lines, more than {LINES:,}; name a shorter file.")
        return text.splitlines()
    except FileNotFoundError:
        raise UserError(f"There is no file {url}; check the path.") from None
    except IsADirectoryError:
        raise UserError(f"{url} is a folder; name a text file.") from None
    except UnicodeDecodeError:
        raise UserError(f"{url} is not UTF-8 text; save it as UTF-8.") from None


def write_bytes(url: str, content: bytes) -> None:
    """Writes a file, whole or not at all."""

    def put(fs: Any, path: str) -> None:
        if not isinstance(fs, LocalFileSystem):
            # Without its type on S3, a browser saves a page.
            kind = mimetypes.guess_type(path)[0] if "s3" in fs.protocol else None
            fs.pipe_file(path, content, **({"ContentType": kind} if kind else {}))
            return
        with _replacement(url, path) as temporary:
            temporary.write_bytes(content)

    with_retries(url, "writing", put)


@contextmanager
def atomic_file(url: str) -> Iterator[Path]:
    """Yields a local path to fill; stores it at ``url`` if the block ends without an error.

    For content that is too large to be held in memory.
    """
    with temporary_folder() as folder:
        filled = folder / "content"
        yield filled

        def put(fs: Any, path: str) -> None:
            if not isinstance(fs, LocalFileSystem):
                fs.put_file(str(filled), path)
                return
            with _replacement(url, path) as temporary:
                shutil.copyfile(filled, temporary)

        with_retries(url, "writing", put)


@contextmanager
def _replacement(url: str, path: str) -> Iterator[Path]:
    """Yields a temporary file beside ``path``, which it replaces once its bytes are on the disk."""
    # The dot hides it from tools that read a folder as one table, if the process is killed here.
    temporary = Path(path).with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"There is no space left to write {url}; free some and run the same command again "
                "to resume."
            ) from None
        raise Refused(
            f"Writing {url} was refused ({error.strerror}); allow it, or choose another place."
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def delete(url: str) -> None:
    """Deletes a file if it exists."""
    with suppress(FileNotFoundError):
        with_retries(url, "deleting", lambda fs, path: fs.rm_file(path))


def check_access(root: str) -> None:
    """Writes a small file below ``root`` and reads it back, to fail before hours of work.

    What this process knew about refusals is forgotten: rights may have changed since.
    """
    _hiding.clear()
    _readable.clear()
    _probe(root)


def _probe(folder: str) -> None:
    probe = join(folder, ".access-check")  # hidden from tools that read a folder as one table
    for attempt in range(PROBES):
        write_bytes(probe, b"This run may write here.\n")
        try:
            read_bytes(probe)
            break
        except FileNotFoundError:  # another process that checks, too, has deleted it
            if attempt + 1 == PROBES:
                raise
    _readable.add(folder.rstrip("/"))
    with suppress(OSError):  # the right to delete is not needed
        delete(probe)


def sha256(url: str) -> str | None:
    """Returns the SHA-256 of a file's content, or None if there is no such file."""
    try:
        with open_file(url) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, IsADirectoryError):
        return None


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Provides a folder that ends with the block; raises UserError if its disk is full."""
    try:
        place = tempfile.gettempdir()
    except FileNotFoundError:  # Python tried all usual folders: none has space for a byte
        raise _full(os.environ.get("TMPDIR", "/tmp")) from None
    try:
        with tempfile.TemporaryDirectory(prefix="sparc-", dir=place) as folder:
            yield Path(folder)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise _full(place) from None


def _full(place: str) -> UserError:
    return UserError(
        f"There is no space left for temporary files in {place}; free some, or set TMPDIR to a "
        "folder with more, and run the same command again to resume."
    )
