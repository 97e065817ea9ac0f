"""What the viewer answers: files of the report, pictures without metadata, or why not."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePosixPath

from fsspec.implementations.local import LocalFileSystem

from sparc_dist import storage
from sparc_dist.images.decoding import BadImage, is_upright, kind_of, thumbnail
from sparc_dist.images.formats import without_metadata
from sparc_dist.images.reading import read_image

HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Response:
    """An answer to a request. policy: its Content-Security-Policy."""

    body: bytes
    content_type: str = HTML
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    policy: str = "default-src 'self'"


class Refusal(Exception):
    """A request that is not answered; the text says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def not_found(reason: str) -> Refusal:
    """Returns the refusal of an address that names nothing."""
    return Refusal(404, reason)


def see(location: str) -> Response:
    """Returns a redirect after a form, so that a reload sends nothing again."""
    return Response(b"", status=303, headers={"Location": location})


#: What a report consists of, by suffix. Other files are not served.
TYPES = {
    ".html": HTML,
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".csv": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}
#: The pages of a report carry their style with them; scripts come from files only.
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"


#: The viewer's own files, by the package and the folder in which they are.
OWN = {
    "style.css": ("sparc_dist.report", "templates"),
    "report.js": ("sparc_dist.report", "templates"),
    "keys.js": ("sparc_dist.report.view", "static"),
    "icon.svg": ("sparc_dist.report.view", "static"),
}
#: Before this, a page gets the bar. Text cannot contain it: every "<" in a name is escaped.
BAR = b"</header>"


def report_file(folder: str, names: Sequence[str], bar: Callable[[], bytes]) -> Response:
    """Returns a file below the folder of a report, which names say one by one.

    The names hold no separator, so they cannot leave the folder; a link on a local disk could.
    bar: returns what pages get besides; the stored report has no such links, for they lead nowhere
    without the viewer.
    """
    path = PurePosixPath(*names)
    url = storage.join(folder, *path.parts)
    if path.suffix not in TYPES or _leaves(url, folder):
        raise not_found("The report has no such file.")
    try:
        content = storage.read_bytes(url)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        raise not_found(
            "The report has no such file; `sparc-dist report RUN` writes the report."
        ) from None
    if path.suffix == ".html" and BAR in content:
        content = content.replace(BAR, bar() + BAR, 1)
    return Response(content, TYPES[path.suffix], policy=POLICY)


def own_file(name: str) -> Response:
    """Returns a file of the viewer: the style that the report has, too, or a script."""
    if name not in OWN:
        raise not_found("There is no such file.")
    package, folder = OWN[name]
    content = files(package).joinpath(folder, name).read_bytes()
    return Response(content, TYPES[PurePosixPath(name).suffix])


def _leaves(url: str, folder: str) -> bool:
    """Whether a local file is outside of a folder once links are followed."""
    fs, path = storage.resolve(url)
    if not isinstance(fs, LocalFileSystem):
        return False
    root = os.path.realpath(storage.resolve(folder)[1])
    return os.path.commonpath([root, os.path.realpath(path)]) != root


#: The sides of a small picture, and of an original that is not sent in its own format.
SMALL, LARGE = 320, 4096
#: How many small pictures are kept in memory, of some 15 KB each.
KEPT = 512
#: What is sent in its own format, in Pillow's words: nothing that may contain a script.
SENT = {"JPEG": "image/jpeg", "MPO": "image/jpeg", "PNG": "image/png"}


def original(uri: str) -> Response:
    """Returns an image without metadata: its own pixels, or a JPEG of a turned or other file."""
    try:
        content = _read(uri)
        kind = kind_of(content)
        bare = without_metadata(content) if kind in SENT and is_upright(content) else None
        return _picture(bare, SENT[kind]) if bare else _picture(thumbnail(content, LARGE))
    except BadImage as error:
        raise not_found(f"The image cannot be shown: {error}.") from None


def small(uri: str) -> Response:
    """Returns a small JPEG of an image."""
    try:
        return _picture(_small(uri))
    except BadImage as error:
        raise not_found(f"The image cannot be shown: {error}.") from None


@lru_cache(KEPT)
def _small(uri: str) -> bytes:
    return thumbnail(_read(uri), SMALL)


def _read(uri: str) -> bytes:
    content = read_image(uri)
    if isinstance(content, BadImage):
        raise content
    return content


def _picture(content: bytes, kind: str = "image/jpeg") -> Response:
    return Response(content, kind, policy="default-src 'none'")
