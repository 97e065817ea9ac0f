"""Pictures: the originals that images.parquet names, and small ones."""

from __future__ import annotations

from functools import lru_cache

from sparc_dist.images.decoding import BadImage, kind_of, thumbnail
from sparc_dist.images.reading import read_image
from sparc_dist.report.view.response import Response, not_found

#: The sides of a small picture, and of an original that browsers do not show as it is.
SMALL, LARGE = 320, 4096
#: How many small pictures are kept in memory, of some 15 KB each.
KEPT = 512
#: What browsers show as it is. Nothing that may contain a script is among them.
SHOWN = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "GIF": "image/gif",
    "WEBP": "image/webp",
    "AVIF": "image/avif",
}


def original(uri: str) -> Response:
    """Returns an image as it is, or as a JPEG if browsers do not show its format."""
    try:
        content = _read(uri)
        kind = kind_of(content)
        if kind in SHOWN:
            return _picture(content, SHOWN[kind])
        return _picture(thumbnail(content, LARGE))
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
