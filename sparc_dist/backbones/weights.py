"""Weights: from a backbone's config to a checkpoint on this node's disk.

A file is used where it lies. What has a URL is fetched once per node into a cache; the processes
of a node wait for the one that fetches.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from sparc_dist.backbones import hub
from sparc_dist.config import OPENAI, BackboneConfig, is_file_name
from sparc_dist.errors import UserError
from sparc_dist.storage import is_web, resolve, with_retries, without_secrets

log = logging.getLogger(__name__)
#: Names the folder of the cache.
CACHE = "SPARC_CACHE"
#: What stores call the facts that change with a file's content.
_FACTS = ("ETag", "etag", "size", "mtime", "LastModified", "Last-Modified", "updated")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def find_checkpoint(config: BackboneConfig) -> str:
    """The path of a backbone's checkpoint, fetched first where it lies elsewhere."""
    weights = config.weights or ""
    if not is_file_name(weights):
        return hub.find_tagged(config)
    fs, path = resolve(weights)
    local = isinstance(fs, LocalFileSystem)
    try:
        if not local:
            return str(_cached(config, weights))
        _check_hash(config, path, config.sha256)
        return path
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        openai = dict(OPENAI.values()).get(config.model)
        known = f" (OpenAI publishes it as {openai})" if openai else ""
        raise UserError(
            f"Backbone {config.name}: there is no weights file {without_secrets(weights)}; put the "
            f"checkpoint of {config.model}{known} there"
            f"{', on every node' if local else ''}, or correct the path."
        ) from None


def cache_folder() -> Path:
    """Where this node keeps what it has fetched."""
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "sparc_dist"


def _cached(config: BackboneConfig, url: str) -> Path:
    """This node's copy of what lies at a URL."""
    expected = config.sha256 or _hash_in(url)
    # With its hash known, a copy that is here can be used without asking the store.
    version = expected or _version(url)
    key = hashlib.sha256(f"{url}\n{version}".encode()).hexdigest()[:16]
    # open_clip tells formats apart by how a name ends.
    copy = cache_folder() / f"{key}-{without_secrets(url).rpartition('/')[2][-100:]}"
    if not copy.exists():
        with _alone(copy):
            if not copy.exists():
                _fetch(config, url, copy, expected)
    return copy


def _hash_in(url: str) -> str | None:
    """The SHA-256 that a URL carries in its path, as those of OpenAI do."""
    parts = without_secrets(url).lower().split("/")
    return next((part for part in parts if _SHA256.fullmatch(part)), None)


def _version(url: str) -> str:
    """What a store tells of a file's content without giving it."""

    def facts(fs: Any, path: str) -> str:
        try:
            info = fs.info(path)
        except FileNotFoundError as error:
            if is_web(url) and error.__cause__:  # fsspec says so of all that a web server fails at
                raise error.__cause__ from None
            raise
        if info["type"] == "directory":
            raise IsADirectoryError(path)
        return " ".join(f"{key}={info[key]}" for key in _FACTS if info.get(key) is not None)

    return with_retries(url, "reading", facts)


@contextmanager
def _alone(copy: Path) -> Iterator[None]:
    """While no other process of this node fetches the same; the system frees a dead one's lock."""
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        lock = copy.with_name(f".{copy.name}.lock").open("a")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise UserError(
            f"The cache folder {copy.parent} cannot be written ({error.strerror}); allow it, or "
            f"name another with {CACHE}."
        ) from None
    with lock:
        yield


def _fetch(config: BackboneConfig, url: str, copy: Path, expected: str | None) -> None:
    """Write a URL's content aside, piece by piece, and give it its name when it is whole."""
    # Always the same name, so that what a killed process left is overwritten; but not by another
    # node that shares the folder, for not every file system carries locks from node to node.
    aside = copy.with_name(f".{copy.name}.{socket.gethostname()}.part")

    def get(fs: Any, path: str) -> None:
        try:
            fs.get_file(path, str(aside))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UserError(
                f"There is no space left in {copy.parent} for {without_secrets(url)}; free some, "
                f"or name another folder with {CACHE}."
            ) from None

    log.info("Fetching %s into %s.", without_secrets(url), copy)
    try:
        with_retries(url, "reading", get)
        _check_hash(config, str(aside), expected)
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(copy)
    finally:
        aside.unlink(missing_ok=True)


def _check_hash(config: BackboneConfig, path: str, expected: str | None) -> None:
    """Raise UserError unless the file can be read and is the one that is expected."""
    told = f"Backbone {config.name}: the weights {without_secrets(config.weights or '')}"
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest() if expected else None
    except PermissionError:
        raise UserError(f"{told} may not be read; allow it to the user of this run.") from None
    if found != expected:
        wrong = "`sha256`" if config.sha256 else "the URL"
        raise UserError(
            f"{told} have the SHA-256 {str(found)[:12]}… and not {str(expected)[:12]}…, so they "
            f"are damaged or others; put the right file there, or correct {wrong}."
        )
