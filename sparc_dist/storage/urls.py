"""URLs and local paths, handled as text: nothing is opened."""

from __future__ import annotations

import os
import re

#: In these protocols two colons are part of a name.
_PLAIN = ("s3:", "s3a:", "gs:", "gcs:", "abfs:", "az:", "http:", "https:", "file:", "memory:")
_RANGE = re.compile(r"(.*)#bytes=(\d+)\+(\d+)", re.DOTALL)


def is_remote(url: str) -> bool:
    """Whether ``url`` names a protocol, as ``s3://bucket/key`` does."""
    return "://" in url


def is_web(url: str) -> bool:
    """Whether ``url`` is on a web server, which may disappear at any time."""
    return url.lower().startswith(("http://", "https://"))


def is_chain(url: str) -> bool:
    """Whether ``url`` is an fsspec chain such as ``zip://photos::s3://bucket/x.zip``."""
    return "::" in url and is_remote(url) and not url.startswith(_PLAIN)


def without_secrets(url: str) -> str:
    """Returns a URL without its user, and on the web without its query: both may be keys."""
    if is_chain(url):
        return "::".join(map(without_secrets, url.split("::")))
    protocol, found, rest = url.partition("://")
    if not found:
        return url
    if is_web(url):
        rest = rest.partition("?")[0]
    host, slash, path = rest.partition("/")
    return f"{protocol}://{host.rpartition('@')[2]}{slash}{path}"


def absolute(url: str, base: str) -> str:
    """Returns ``url`` unchanged when absolute, else below ``base``; local paths are normalised."""
    if is_remote(url):
        return url
    if is_remote(base) and not os.path.isabs(url):
        return join(base, url)
    return os.path.normpath(os.path.join(base, os.path.expanduser(url)))


def join(url: str, *parts: str) -> str:
    """Returns ``url/part/…``."""
    return "/".join([url.rstrip("/"), *parts])


def parent(url: str) -> str:
    """Returns the folder of a file."""
    head = url.rstrip("/").rpartition("/")[0]
    return head or ("/" if url.startswith("/") else ".")


def byte_range(url: str, offset: int, size: int) -> str:
    """Returns a URL for ``size`` bytes of a file, such as an image in a tar."""
    return f"{url}#bytes={offset}+{size}"


def split_byte_range(url: str) -> tuple[str, int, int] | None:
    """Returns (file, offset, size) of a URL made by ``byte_range``; None for any other."""
    found = _RANGE.fullmatch(url)
    return (found[1], int(found[2]), int(found[3])) if found else None
