"""What the bytes of a file tell before a decoder sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

#: A marker that begins or ends a segment of a JPEG; those without a length are not among them.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]", re.DOTALL)
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}
START, SCAN, END = 0xD8, 0xDA, 0xD9
#: The most segments that are looked at; a JPEG with more is not one of a camera.
_SEGMENTS = 100_000
#: More than these precede no scan of an ordinary JPEG.
_FEW_SEGMENTS = 1000


class Segment(NamedTuple):
    """A segment of a JPEG: the second byte of its marker, and where the segment starts and ends."""

    kind: int
    start: int
    end: int

    @property
    def body(self) -> int:
        """Where the content begins, behind marker and length."""
        return self.start + 4


def segments(jpeg: bytes) -> Iterator[Segment]:
    """Yields the segments of the first image, its end last; data follow the segment of a scan."""
    place = 2
    while found := _MARKER.search(jpeg, place):
        kind, place = found[0][1], found.end()
        if kind not in (START, END):
            place += _number(jpeg, place, 2)
        yield Segment(kind, found.start(), place)
        if kind == END:
            return


def opens_simply(jpeg: bytes) -> bool:
    """Whether few segments, and nothing between them, lead to the first scan of a JPEG.

    Pillow goes through all that precedes the first scan, in some cases byte by byte.
    """
    end = 2
    for segment in islice(segments(jpeg), _FEW_SEGMENTS):
        if segment.start != end or segment.kind in (START, END):
            return False
        if segment.kind == SCAN:
            return True
        end = segment.end
    return False


def has_one_scan(jpeg: bytes, components: int, end: int) -> bool:
    """Whether the header of a scan that ends at ``end`` is one of all components of the image."""
    size = 6 + 2 * components
    start = end - size
    return jpeg[start - 2 : start + 3] == bytes([0xFF, SCAN, 0, size, components])


def scans(jpeg: bytes, most: int) -> int:
    """Returns how many scans of a JPEG a decoder goes through; at most ``most`` + 1."""
    count, components, progressive = 0, 0, False
    for number, segment in enumerate(segments(jpeg)):
        if number == _SEGMENTS:
            return most + 1
        if segment.kind in _FRAMES:
            components = _number(jpeg, segment.body + 5, 1)
            progressive = segment.kind in _PROGRESSIVE
        elif segment.kind == SCAN:
            count += 1
            alone = not progressive and _number(jpeg, segment.body, 1) >= components
            if count > most or (count == 1 and alone):
                return count
    return count


def webp_size(content: bytes) -> tuple[int, int] | None:
    """Returns width and height of the canvas that a WebP declares; None if it is none."""
    if content[8:12] != b"WEBP":
        return None
    if content[12:16] == b"VP8X":
        return 1 + _little(content[24:27]), 1 + _little(content[27:30])
    if content[12:16] == b"VP8L":
        bits = _little(content[21:25])
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if content[12:16] == b"VP8 ":
        return _little(content[26:28]) & 0x3FFF, _little(content[28:30]) & 0x3FFF
    return None


def _number(content: bytes, place: int, size: int) -> int:
    return int.from_bytes(content[place : place + size])


def _little(content: bytes) -> int:
    return int.from_bytes(content, "little")
