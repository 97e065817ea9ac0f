"""Formats: which files are images, and what their bytes tell before a decoder sees them.

Metadata is what a file says beyond its picture, such as where and when a photo was taken. To remove
it, a file is taken apart and only the parts that make the picture and its colours stay, so nothing
is decoded, and kinds of metadata that are not known here go, too.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from typing import NamedTuple

#: The suffixes of photos that Pillow reads only with the package pillow-heif, as phones make them.
HEIC = (".heic", ".heif")
#: Whether that package is installed.
READS_HEIC = find_spec("pillow_heif") is not None
#: The suffixes of files that are taken for images.
SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif"),
    *(HEIC if READS_HEIC else ()),
)

#: The formats that are tried on a file, whatever its name. Left out: PostScript, which Pillow would
#: pass to Ghostscript to execute; icons, whose true size is known only after decoding; and formats
#: that nobody uses for photos.
FORMATS = (
    "JPEG",
    "PNG",
    "GIF",
    "WEBP",
    "TIFF",
    "BMP",
    "DIB",
    "PPM",
    "TGA",
    "PCX",
    "JPEG2000",
    "AVIF",
    "HEIF",
)

#: How files of the formats begin that are decoded in the process that reads them.
COMMON = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"RIFF")
#: A marker that begins or ends a segment of a JPEG; those without a length are not among them.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]", re.DOTALL)
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}
START, SCAN, END = 0xD8, 0xDA, 0xD9
#: The most segments that are looked at; a JPEG with more is not one of a camera.
_SEGMENTS = 100_000
#: More than these precede no scan of an ordinary JPEG.
_FEW_SEGMENTS = 1000
#: Frames and Huffman tables; scans, quantisation tables, the number of lines, restart intervals;
#: the end.
_PICTURE = {*range(0xC0, 0xD0), SCAN, *range(0xDB, 0xDE), END}
_CHUNKS = {
    *(b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"bKGD", b"acTL", b"fcTL", b"fdAT"),
    *(b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP", b"sBIT", b"pHYs"),
}


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
