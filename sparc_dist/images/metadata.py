"""Metadata: what a file says beyond its picture, such as where and when a photo was taken.

A file is taken apart and only the parts that make the picture and its colours are kept, so nothing
is decoded, and kinds of metadata that are not known here go, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from sparc_dist.images.headers import END, SCAN, segments

#: Frames and Huffman tables; scans, quantisation tables, the number of lines, restart intervals;
#: the end.
_PICTURE = {*range(0xC0, 0xD0), SCAN, *range(0xDB, 0xDE), END}
_CHUNKS = {
    *(b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"bKGD", b"acTL", b"fcTL", b"fdAT"),
    *(b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP", b"sBIT", b"pHYs"),
}


def without_metadata(content: bytes) -> bytes | None:
    """Returns a JPEG or PNG with the same pixels and colours and nothing else.

    The orientation goes, too: only for files that are upright without it. Returns None if the file
    is of another format or its parts cannot be told apart.
    """
    parts = _jpeg_parts if content.startswith(b"\xff\xd8") else _png_parts
    try:
        return b"".join(parts(content))
    except (ValueError, struct.error):
        return None


def _jpeg_parts(content: bytes) -> Iterator[bytes]:
    """Yields the parts of the first image: phones append a second one, or a film."""
    yield content[:2]
    before = None
    for segment in segments(content):
        if before is not None and before.kind == SCAN:
            yield content[before.end : segment.start]
        body = content[segment.body : segment.end]
        if segment.kind in _PICTURE or _is_colour(segment.kind, body):
            yield content[segment.start : segment.end]
        before = segment
    if before is None or before.kind != END:
        raise ValueError("no end of the image")


def _is_colour(kind: int, body: bytes) -> bool:
    """Whether a segment says how to read colours. A longer JFIF header has a small picture."""
    return (
        (kind == 0xE0 and body.startswith(b"JFIF\0") and len(body) == 14)
        or (kind == 0xE2 and body.startswith(b"ICC_PROFILE\0"))
        or (kind == 0xEE and body.startswith(b"Adobe") and len(body) == 12)
    )


def _png_parts(content: bytes) -> Iterator[bytes]:
    magic = b"\x89PNG\r\n\x1a\n"
    if not content.startswith(magic):
        raise ValueError("not a PNG")
    yield magic
    place, name = len(magic), b""
    while name != b"IEND":
        length, name = struct.unpack_from(">I4s", content, place)
        if name in _CHUNKS:
            yield content[place : place + length + 12]
        place += length + 12
