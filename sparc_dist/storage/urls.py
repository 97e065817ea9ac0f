"""URLs and local paths, handled as text: nothing is opened."""

from __future__ import annotations

import os
import re

#: What is opened. fsspec knows many more protocols, some of which run code that a URL names.
PROTOCOLS = ("file", "http", "https", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf")
#: Archives that may lie in one of them, as in ``zip://a.jpg::s3://bucket/photos.zip``.
ARCHIVES = ("zip", "tar")
_RANGE = re.compile(r"(.*)#bytes=(\d+)\+(\d+)", re.DOTALL)


def is_remote(url: str) -> bool:
    """Whether ``url`` names a protocol, as ``s3://bucket/key`` does."""
    return "://" in url


def is_web(url: str) -> bool:
    """Whether ``url`` is on a web server, which may disappear at any time."""
    return url.lower().startswith(("http://", "https://"))


def is_chain(url: str) -> bool:
    """Whether ``url`` is an fsspec chain such as ``zip://photos::s3://bucket/x.zip``.

    In a plain URL two colons are part of a name.
    """
    return "::" in url and is_remote(url) and url.partition("://")[0] not in PROTOCOLS


def is_allowed(url: str) -> bool:
    """Whether a URL is one that is opened: of these protocols, or an archive in one of them."""
    *archives, store = url.split("::") if is_chain(url) else [url]
    outside = [part.partition("://")[0] for part in archives]
    plain = not is_remote(store) or store.partition("://")[0] in PROTOCOLS
    return plain and (not outside or (len(outside) == 1 and outside[0] in ARCHIVES))


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
