"""Pictures: the originals that images.parquet names, and small ones; none with metadata."""

from __future__ import annotations

from functools import lru_cache

from sparc_dist.images.decoding import BadImage, is_upright, kind_of, thumbnail
from sparc_dist.images.formats import without_metadata
from sparc_dist.images.reading import read_image
from sparc_dist.report.view.response import Response, not_found

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
