"""Small whole pictures of every kind, and where in their bytes the parts begin."""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

#: A chunk of a PNG, or of another file of named parts.
Chunk = tuple[bytes, bytes]
WIDTH, HEIGHT = 48, 40
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def picture(seed: int = 0) -> Image.Image:
    """Coarse noise: no part of the file is like another, and it packs to a few kilobytes."""
    coarse = np.random.default_rng(seed).integers(0, 256, (HEIGHT // 4, WIDTH // 4, 3), np.uint8)
    return Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """The image as a file of a kind that Pillow writes."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def whole() -> dict[str, bytes]:
    """One good file of each kind, by name."""
    image = picture()
    palette = image.quantize(16)
    deep = np.asarray(image.convert("L")).astype(np.uint16) * 257
    return {
        "baseline.jpg": encoded(image, "JPEG", quality=80),
        "progressive.jpg": encoded(image, "JPEG", progressive=True),
        "cmyk.jpg": encoded(image.convert("CMYK"), "JPEG"),
        "grey.jpeg": encoded(image.convert("L"), "JPEG"),
        "mpo.jpg": encoded(image, "MPO", **_several()),
        "rgb.png": encoded(image, "PNG"),
        "deep.png": encoded(Image.fromarray(deep), "PNG"),
        "palette.png": encoded(palette, "PNG", transparency=b"\x00\x80"),
        "interlaced.png": interlaced(image),
        "apng.png": encoded(image, "PNG", **_several()),
        "animated.gif": encoded(palette, "GIF", **_several(), loop=0),
        "animated.webp": encoded(image, "WEBP", **_several()),
        "lossy.webp": encoded(image, "WEBP"),
        "lossless.webp": encoded(image, "WEBP", lossless=True),
        "pages.tif": encoded(image, "TIFF", **_several(), compression="tiff_adobe_deflate"),
        "lzw.tiff": encoded(image, "TIFF", compression="tiff_lzw"),
        "plain.tif": encoded(palette, "TIFF"),
        "plain.bmp": encoded(image, "BMP"),
    }


def _several() -> dict[str, object]:
    # Made anew for each file: Pillow leaves traces of one encoder in the images it appends.
    return {"save_all": True, "append_images": [picture(1), picture(2)]}


def chunk(name: bytes, body: bytes) -> bytes:
    """A chunk of a PNG with its length and checksum."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(chunks: list[Chunk]) -> bytes:
    """A PNG of these chunks."""
    return PNG_MAGIC + b"".join(chunk(name, body) for name, body in chunks)


def png_chunks(content: bytes) -> list[Chunk]:
    """The chunks of a whole PNG."""
    found, place = [], len(PNG_MAGIC)
    while place < len(content):
        length, name = struct.unpack_from(">I4s", content, place)
        found.append((name, content[place + 8 : place + 8 + length]))
        place += length + 12
    return found


def header(width: int, height: int, depth: int = 8, colour: int = 2, woven: int = 0) -> Chunk:
    """A PNG's first chunk; it may say what it likes."""
    size = struct.pack(">II", width & 0xFFFFFFFF, height & 0xFFFFFFFF)
    return b"IHDR", size + bytes([depth, colour, 0, 0, woven])


def interlaced(image: Image.Image) -> bytes:
    """A PNG in Adam7's seven passes, which Pillow reads but does not write."""
    pixels = np.asarray(image)
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2))
    rows = b"".join(
        b"\0" + row.tobytes()
        for top, left, down, across in (*passes, (1, 0, 2, 1))
        for row in pixels[top::down, left::across]
    )
    return png([header(*image.size, woven=1), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")])


def tiff(entries: dict[int, int], data: bytes) -> bytes:
    """A TIFF with one directory of long integers by tag; 0 in tag 273 or 324 means the data."""
    place = 14 + 12 * len(entries)
    values = {tag: value or place for tag, value in sorted(entries.items())}
    listed = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + listed + bytes(4) + data


def segment(marker: int, body: bytes) -> bytes:
    """A segment of a JPEG with its marker and length."""
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def with_segment(jpeg: bytes, marker: int, body: bytes) -> bytes:
    """A JPEG with one more segment at its beginning."""
    return jpeg[:2] + segment(marker, body) + jpeg[2:]


def jpeg_parts(content: bytes) -> Iterator[tuple[int, int]]:
    """The marker of each segment of the first image and where it begins; the scan's last."""
    place = 2
    while content[place + 1] != 0xDA:
        yield content[place + 1], place
        place += 2 + struct.unpack_from(">H", content, place + 2)[0]
    yield 0xDA, place


def boundaries(content: bytes) -> set[int]:
    """Lengths at which a file of this kind may be cut: in and after each of its parts."""
    if content[:2] == b"\xff\xd8":
        return _jpeg_boundaries(content)
    if content[:4] == PNG_MAGIC[:4]:
        return _chunk_boundaries(_png_parts(content))
    if content[:4] == b"RIFF":
        return {4, 7} | _chunk_boundaries(_riff_parts(content))
    if content[:4] in (b"II*\0", b"MM\0*"):
        return _tiff_boundaries(content)
    if content[:4] == b"GIF8":
        return _gif_boundaries(content)
    return {13, 14, 16, 30, 53, 54, 55}  # a bitmap's file header, its info header, its pixels


def _jpeg_boundaries(content: bytes) -> set[int]:
    """In each kind of segment's marker, length and body; in the scan, before and in its end."""
    first = dict(reversed(list(jpeg_parts(content))))
    inside = {place + step for place in first.values() for step in (1, 3, 7)}
    scan = first[0xDA]
    return inside | {scan + (len(content) - scan) // 2, len(content) - 2, len(content) - 1}


def _png_parts(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    place = len(PNG_MAGIC)
    for name, body in png_chunks(content):
        yield name, place, place + len(body) + 12
        place += len(body) + 12


def _riff_parts(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    place = 12
    while place < len(content):
        name, length = struct.unpack_from("<4sI", content, place)
        yield name, place, place + 8 + length + length % 2
        place += 8 + length + length % 2


def _chunk_boundaries(parts: Iterator[tuple[bytes, int, int]]) -> set[int]:
    """In each kind of chunk's head, after it, in its body, before its last bytes and after."""
    found: dict[bytes, set[int]] = {}
    for name, start, stop in parts:
        cuts = {start + 5, start + 8, (start + stop) // 2, stop - 4, stop}
        found.setdefault(name, cuts)
    return set().union(*found.values())


def _tiff_boundaries(content: bytes) -> set[int]:
    """In the head; in the directory's count, its entries and its end."""
    place: int = struct.unpack_from("<I", content, 4)[0]
    end = place + 2 + 12 * struct.unpack_from("<H", content, place)[0]
    return {4, 6, 8, place + 1, place + 2, place + 8, place + 14, end - 6, end, end + 2, end + 4}


def _gif_boundaries(content: bytes) -> set[int]:
    """In the head and the palette; in each frame's extension, descriptor and data."""
    frames = [match.start() for match in re.finditer(rb"!\xf9\x04", content)]
    return {6, 10, 13, 40} | {place + step for place in frames for step in (1, 4, 8, 12, 20, 60)}
