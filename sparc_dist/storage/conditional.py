"""Compare-and-swap on small files: of several writers, exactly one creates or replaces a version.

Locally an exclusive file and a lock; on S3 conditional puts (``If-None-Match``, ``If-Match``).
Elsewhere, and on servers that ignore the conditions, versions are only compared before a file is
written: ``is_strict`` tells.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from fsspec.asyn import sync
from fsspec.implementations.local import LocalFileSystem

from sparc_dist.storage.files import is_missing
from sparc_dist.storage.filesystems import error_code, resolve, with_retries

#: What a store says if a condition is not met: the object exists, has another version, or is gone.
_NOT_MET = {"PreconditionFailed", "412", "NoSuchKey", "404"}
#: An ETag that no object has.
_NO_ETAG = f'"{"0" * 32}"'


class Versioned(NamedTuple):
    """A file's content, what identifies its version, and the seconds since it was written."""

    content: bytes
    version: str
    age: float


def read_versioned(url: str) -> Versioned | None:
    """Returns a file with its version, or None if there is none.

    The age is by the clock of the store.
    """

    def read(fs: Any, path: str) -> Versioned:
        if hasattr(fs, "call_s3"):
            return sync(fs.loop, _get, fs, path)  # type: ignore[no-any-return]
        content = bytes(fs.cat_file(path))
        return Versioned(content, _sha256(content), _age(fs, path))

    try:
        return with_retries(url, "reading", read)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        if is_missing(url):
            return None
        raise


def create(url: str, content: bytes) -> str | None:
    """Writes a new file and returns its version; returns None if the file exists."""
    fs, path = resolve(url)
    if isinstance(fs, LocalFileSystem):
        return _create_local(path, content)
    if read_versioned(url) is not None:
        return None
    return _put(url, content, IfNoneMatch="*")


def replace_if(url: str, content: bytes, version: str) -> str | None:
    """Replaces a version of a file and returns the new one; returns None if it is not there.

    The content must differ from that of all versions before.
    """
    fs, path = resolve(url)
    if isinstance(fs, LocalFileSystem):
        with _locked(path, version) as is_there:
            if not is_there:
                return None
            _write_local(path, content)
            return _sha256(content)
    found = read_versioned(url)
    if found is None or found.version != version:
        return None
    return _put(url, content, IfMatch=version)


def delete_if(url: str, version: str) -> bool:
    """Deletes a version of a local file; returns False in a store, which may forbid to delete."""
    fs, path = resolve(url)
    if not isinstance(fs, LocalFileSystem):
        return False
    with _locked(path, version) as is_there:
        if is_there:
            os.unlink(path)
    return True


def is_strict(url: str, content: bytes) -> bool:
    """Whether the store keeps conditions: puts that must fail are tried on a file that exists.

    content: that of the file, so that nothing changes in a store that ignores conditions.
    """
    fs, _ = resolve(url)
    if isinstance(fs, LocalFileSystem):
        return True
    conditions = ({"IfNoneMatch": "*"}, {"IfMatch": _NO_ETAG})
    return hasattr(fs, "call_s3") and all(not _try(url, content, each)[0] for each in conditions)


def _put(url: str, content: bytes, **condition: str) -> str | None:
    """Writes a file to a store if the condition is met; returns its version or None."""
    written, version = _try(url, content, condition)
    if written:
        return version
    # A put whose answer was lost is repeated, and then fails because of itself.
    found = read_versioned(url)
    return found.version if found is not None and found.content == content else None


def _try(url: str, content: bytes, condition: dict[str, str]) -> tuple[bool, str]:
    """Returns whether a file was written, and its version."""

    def put(fs: Any, path: str) -> tuple[bool, str]:
        if not hasattr(fs, "call_s3"):
            fs.pipe_file(path, content)
            return True, _sha256(content)
        bucket, key, _ = fs.split_path(path)
        place = {"Bucket": bucket, "Key": key, "ContentType": "application/json"}
        try:
            return True, fs.call_s3("put_object", **place, Body=content, **condition)["ETag"]
        except Exception as error:
            if error_code(error) in _NOT_MET:
                return False, ""
            if error_code(error) != "NotImplemented":
                raise
        return True, fs.call_s3("put_object", **place, Body=content)["ETag"]

    return with_retries(url, "writing", put)


async def _get(fs: Any, path: str) -> Versioned:
    """Returns an object of S3, all from one answer."""
    bucket, key, _ = fs.split_path(path)
    found = await fs._call_s3("get_object", Bucket=bucket, Key=key)
    async with found["Body"] as body:
        content = await body.read()
    said = found["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = parsedate_to_datetime(said).timestamp() if said else time.time()
    return Versioned(content, found["ETag"], max(now - found["LastModified"].timestamp(), 0.0))


def _age(fs: Any, path: str) -> float:
    """Returns the seconds since a file was written, without end where that is not known."""
    try:
        written: float = fs.modified(path).timestamp()
    except NotImplementedError:
        return float("inf")
    return max(time.time() - written, 0.0)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _create_local(path: str, content: bytes) -> str | None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return None
    with open(descriptor, "wb") as file:
        _lock(file.fileno())
        try:
            file.write(content)
            file.flush()
        except OSError:
            os.unlink(path)
            raise
        # It was empty for a moment, in which another process may have replaced it.
        return _sha256(content) if _is_at(path, file.fileno()) else None


def _write_local(path: str, content: bytes) -> None:
    temporary = os.path.join(os.path.dirname(path), f".{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


@contextmanager
def _locked(path: str, version: str) -> Iterator[bool]:
    """Locks a file; yields whether it has that version, which only the holder can change."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    with open(descriptor, "rb") as file:
        _lock(file.fileno())
        yield _is_at(path, file.fileno()) and _sha256(file.read()) == version


def _lock(descriptor: int) -> None:
    # Some network disks have no locks; there, two that replace a file at once may both succeed.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _is_at(path: str, descriptor: int) -> bool:
    """Whether an open file still is the one of that name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
