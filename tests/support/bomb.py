"""Hostile images: small files that cost a decoder memory or time without end, made in code."""

from __future__ import annotations

import io
import os
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tests.support.pictures import PNG_MAGIC, chunk, encoded, header, png, segment

#: As wide and high as fits into the limit of 200 million pixels.
WIDTH, HEIGHT = 16_000, 12_000


def bomb() -> bytes:
    """A PNG of a few bytes that declares a gigapixel."""
    return png([header(40_000, 40_000), (b"IDAT", zlib.compress(bytes(99))), (b"IEND", b"")])


def webp() -> bytes:
    """A lossless WebP of one colour: five codes of one symbol each, and no bit per pixel."""
    sides = (WIDTH - 1) | (HEIGHT - 1) << 14
    codes = b"\x88\x88\x08\x00\x00\x00"  # no transform, cache or meta code; then 5 × (1, 0, 0, 0)
    body = b"\x2f" + struct.pack("<I", sides) + codes
    body += bytes(len(body) % 2)
    chunks = b"WEBPVP8L" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def jpeg_2000() -> bytes:
    """A JPEG 2000 of one colour that declares nearly 200 million pixels in one tile."""
    content = bytearray(encoded(Image.new("RGB", (64, 64)), "JPEG2000", no_jp2=True))
    place = content.index(b"\xff\x51") + 6
    struct.pack_into(">II", content, place, WIDTH, HEIGHT)
    struct.pack_into(">II", content, place + 16, WIDTH, HEIGHT)
    return bytes(content)


def scans(count: int = 3000, side: int = 8000) -> bytes:
    """A progressive grey JPEG with many scans, each of which says that nothing changes."""
    blocks, bits = (side // 8) ** 2, ""
    while blocks:
        run = min(blocks, 2**15 - 1)
        length = run.bit_length() - 1
        bits += f"{length:04b}" + (f"{run - 2**length:0{length}b}" if length else "")
        blocks -= run
    bits += "1" * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8).replace(b"\xff", b"\xff\0")
    runs = bytes(16 * length for length in range(15))  # the symbols EOB0 to EOB14, of 4 bits each
    return b"".join(
        [
            b"\xff\xd8",
            segment(0xDB, b"\0" + b"\1" * 64),
            segment(0xC2, struct.pack(">BHHB", 8, side, side, 1) + b"\1\x11\0"),
            segment(0xC4, b"\x10\0\0\0\x0f" + bytes(12) + runs),
            (segment(0xDA, b"\1\1\0\1\x3f\0") + data) * count,
            b"\xff\xd9",
        ]
    )


def blank(kind: str, mode: str = "RGB", side: int = 9000) -> bytes:
    """A large image of one colour, row by row as zeros."""
    if kind == "PNG":
        depth = {"L": 1, "RGB": 3, "RGBA": 4}[mode]
        packed, rows = io.BytesIO(), zlib.compressobj(9)
        for _ in range(side):
            packed.write(rows.compress(bytes(1 + depth * side)))
        packed.write(rows.flush())
        colour = {"L": 0, "RGB": 2, "RGBA": 6}[mode]
        return png([header(side, side, 8, colour), (b"IDAT", packed.getvalue()), (b"IEND", b"")])
    return encoded(Image.new(mode, (side, side)), kind, compression="tiff_adobe_deflate")


def crumbs(kind: str, count: int = 1_000_000) -> bytes:
    """A small image behind so many tiny parts that reading its header takes seconds."""
    image = Image.new("RGB", (8, 8))
    if kind == "PNG":
        good = encoded(image, "PNG")
        return PNG_MAGIC + good[8:33] + chunk(b"teSt", b"") * count + good[33:]
    if kind == "GIF":
        good = encoded(image, "GIF")
        place = good.index(b",")
        return good[:place] + b"!\xfe\x01x\0" * count + good[place:]
    good = encoded(image, "JPEG")
    return good[:2] + segment(0xED, b"") * count + good[2:]


#: By name; each is refused, alone, within a second.
BOMBS: dict[str, Callable[[], bytes]] = {
    "declared.png": bomb,
    "colour.webp": webp,
    "colour.jp2.jpg": jpeg_2000,
    "scans.jpg": scans,
    "blank.png": lambda: blank("PNG"),
    "blank.tif": lambda: blank("TIFF", "L"),
    "crumbs.png": lambda: crumbs("PNG"),
    "crumbs.gif": lambda: crumbs("GIF"),
    "crumbs.jpg": lambda: crumbs("JPEG"),
}


def hostile_files(folder: Path) -> list[Path]:
    """Makes files that are no photos: endless, without content, or larger than any."""
    with (folder / "sparse.jpg").open("wb") as file:
        file.truncate(8 * 2**30)
    os.mkfifo(folder / "pipe.jpg")
    (folder / "zero.jpg").symlink_to("/dev/zero")
    (folder / "made-up.jpg").symlink_to("/proc/self/maps")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket.jpg"))
    return sorted(folder.iterdir())
