"""What the bytes of a file tell before a decoder sees them."""

from __future__ import annotations

import re

#: A marker that begins or ends a segment of a JPEG; those without a length are not among them.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]", re.DOTALL)
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}
_START, _SCAN, _END = 0xD8, 0xDA, 0xD9
#: The most segments that are looked at; a JPEG with more is not one of a camera.
_SEGMENTS = 100_000


def scans(jpeg: bytes, most: int) -> int:
    """Returns how many scans of a JPEG a decoder goes through; at most ``most`` + 1."""
    count, components, progressive = 0, 0, False
    place = 2
    for _ in range(_SEGMENTS):
        found = _MARKER.search(jpeg, place)
        if found is None or jpeg[found.end() - 1] == _END:
            return count
        kind, body = jpeg[found.end() - 1], found.end() + 2
        if kind in _FRAMES:
            components, progressive = _number(jpeg, body + 5, 1), kind in _PROGRESSIVE
        elif kind == _SCAN:
            count += 1
            alone = not progressive and _number(jpeg, body, 1) >= components
            if count > most or (count == 1 and alone):
                return count
        place = found.end() if kind == _START else body - 2 + _number(jpeg, body - 2, 2)
    return most + 1


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
