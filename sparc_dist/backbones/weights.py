"""Weights: from a backbone's config to a checkpoint on this node's disk.

A local file is used in place. A URL is downloaded into a cache once per node; the other processes
of the node wait for the one that downloads.
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
from sparc_dist.config.backbone import EVERYWHERE
from sparc_dist.errors import UserError
from sparc_dist.storage import is_web, resolve, with_retries, without_secrets

log = logging.getLogger(__name__)
#: The environment variable that names the cache folder.
CACHE = "SPARC_CACHE"
#: The names under which stores report what changes with a file's content.
_FACTS = ("ETag", "etag", "size", "mtime", "LastModified", "Last-Modified", "updated")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def find_checkpoint(config: BackboneConfig) -> str:
    """Returns the path of a backbone's checkpoint; downloads it first if it is remote."""
    weights = config.weights or ""
    if not is_file_name(weights):
        return hub.find_tagged(config)
    fs, path = resolve(weights)
    with _missing_explained(config, isinstance(fs, LocalFileSystem)) as local:
        if not local:
            return str(_cached(config, weights))
        _check_hash(config, path, config.sha256)
    return path


def describe_checkpoint(path: str) -> dict[str, str]:
    """Returns the SHA-256 of a checkpoint and, if it is from the hub, its revision there."""
    with open(path, "rb") as file:
        facts = {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    revision = hub.revision_of(path)
    return facts if revision is None else {**facts, "revision": revision}


def check_checkpoint(config: BackboneConfig) -> None:
    """Raises UserError if the checkpoint is neither on this node nor to be had; loads nothing."""
    weights = config.weights or ""
    if not weights:
        return  # of a bundled model
    if not is_file_name(weights):
        hub.check_tagged(config)
        return
    fs, path = resolve(weights)
    with _missing_explained(config, isinstance(fs, LocalFileSystem)) as local:
        if local:
            _check_hash(config, path, None)
        elif not _copy(config, weights).exists():
            _version(weights)


@contextmanager
def _missing_explained(config: BackboneConfig, local: bool) -> Iterator[bool]:
    """Yields whether the weights are a local file; a missing file becomes a UserError."""
    try:
        yield local
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        weights = config.weights or ""
        openai = dict(OPENAI.values()).get(config.model)
        hint = f" (OpenAI publishes it as {openai})" if openai else ""
        remedy = EVERYWHERE if local else ", or correct the path"
        raise UserError(
            f"{config.place}: there is no weights file {without_secrets(weights)}; put the "
            f"checkpoint of {config.model}{hint} there{remedy}."
        ) from None


def cache_folder() -> Path:
    """Returns the folder in which this node caches downloads."""
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "sparc_dist"


def _cached(config: BackboneConfig, url: str) -> Path:
    """Returns this node's copy of the file at a URL; downloads it if needed."""
    copy = _copy(config, url)
    if not copy.exists():
        with _locked(copy):
            if not copy.exists():
                _download(config, url, copy, config.sha256 or _hash_in(url))
    return copy


def _copy(config: BackboneConfig, url: str) -> Path:
    """Returns where this node's copy of the file at a URL is, or will be."""
    # If the hash is known, an existing copy can be used without asking the store.
    version = config.sha256 or _hash_in(url) or _version(url)
    key = hashlib.sha256(f"{url}\n{version}".encode()).hexdigest()[:16]
    # open_clip recognises formats by the end of the name.
    return cache_folder() / f"{key}-{without_secrets(url).rpartition('/')[2][-100:]}"


def _hash_in(url: str) -> str | None:
    """Returns the SHA-256 in the path of a URL, as in OpenAI's URLs, or None."""
    parts = without_secrets(url).lower().split("/")
    return next((part for part in parts if _SHA256.fullmatch(part)), None)


def _version(url: str) -> str:
    """Returns what a store reports about a file's version, without reading the file."""

    def facts(fs: Any, path: str) -> str:
        try:
            info = fs.info(path)
        except FileNotFoundError as error:
            if is_web(url) and error.__cause__:  # fsspec raises it for any error of a web server
                raise error.__cause__ from None
            raise
        if info["type"] == "directory":
            raise IsADirectoryError(path)
        return " ".join(f"{key}={info[key]}" for key in _FACTS if info.get(key) is not None)

    return with_retries(url, "reading", facts)


@contextmanager
def _locked(copy: Path) -> Iterator[None]:
    """Holds this node's lock on a copy; the system releases the lock of a dead process."""
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        lock = copy.with_name(f".{copy.name}.lock").open("a")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise UserError(
            f"The cache folder {copy.parent} is not writable ({error.strerror}); change its "
            f"permissions, or set {CACHE} to another folder."
        ) from None
    with lock:
        yield


def _download(config: BackboneConfig, url: str, copy: Path, expected: str | None) -> None:
    """Downloads a URL to a temporary file and renames it to ``copy`` when it is complete."""
    # The name is fixed, so that the next attempt overwrites what a killed process left. It includes
    # the host name, because nodes may share the folder, and not every file system shares locks.
    part = copy.with_name(f".{copy.name}.{socket.gethostname()}.part")

    def get(fs: Any, path: str) -> None:
        try:
            fs.get_file(path, str(part))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UserError(
                f"There is no space left in {copy.parent} for {without_secrets(url)}; free some, "
                f"or set {CACHE} to another folder."
            ) from None

    log.info("Downloading %s to %s.", without_secrets(url), copy)
    try:
        with_retries(url, "reading", get)
        _check_hash(config, str(part), expected)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(copy)
    finally:
        part.unlink(missing_ok=True)


def _check_hash(config: BackboneConfig, path: str, expected: str | None) -> None:
    """Raises UserError if the file cannot be read or does not have the expected SHA-256."""
    subject = f"{config.place}: the weights {without_secrets(config.weights or '')}"
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest() if expected else None
    except PermissionError:
        raise UserError(f"{subject} cannot be read; give the user of this run access.") from None
    if found != expected:
        source = "`sha256`" if config.sha256 else "the URL"
        raise UserError(
            f"{subject} have the SHA-256 {str(found)[:12]}… and not {str(expected)[:12]}…, so the "
            f"file is damaged or a different one; put the right file there, or correct {source}."
        )
