"""A corpus of files that are called images: cut, damaged, boastful, odd, and oddly named.

Every file ends as an image's does. The corpus is the same wherever it is made.
"""

from __future__ import annotations

import os
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.pictures import (
    PNG_MAGIC,
    Chunk,
    boundaries,
    chunk,
    encoded,
    header,
    jpeg_parts,
    picture,
    png,
    png_chunks,
    segment,
    tiff,
    whole,
    with_segment,
)

Files = Iterator[tuple[str, bytes]]
#: The good pictures by name; every group begins with them.
Goods = dict[str, bytes]

#: A folder's and a table's every trap: shells, URLs, patterns, CSV, scripts, old encodings.
NAMES = [
    "with space.jpg",
    " leading and trailing .jpg",
    "single'quote.jpg",
    'double"quote.jpg',
    '"all quoted".jpg',
    "back\\slash.jpg",
    "back`tick`.jpg",
    "$HOME.jpg",
    "new\nline.jpg",
    "carriage\rreturn.jpg",
    "both\r\nends.jpg",
    "tab\tstop.jpg",
    "bell\a.jpg",
    "-leading-dash.jpg",
    "--help.jpg",
    "hash#tag.jpg",
    "part#bytes=0+5.jpg",
    "percent%20space.jpg",
    "percent%ff.jpg",
    "question?mark.jpg",
    "key=value&other.jpg",
    "star*.jpg",
    "[x].jpg",
    "{a,b}.jpg",
    "~x.jpg",
    "~.jpg",
    "chain::link.jpg",
    "file::.jpg",
    "drive:c.jpg",
    "semi;colon.jpg",
    "com,ma.jpg",
    "pipe|.jpg",
    "<tag>.jpg",
    "@at.jpg",
    ".hidden.jpg",
    "..twodots.jpg",
    "UPPER.JPG",
    "a.tar.jpg",
    "NULL.jpg",
    "007.jpg",
    "composed-\u00e9.jpg",
    "combining-e\u0301.jpg",
    "emoji-\U0001f98a\u200d\U0001f3fd.jpg",
    "rtl-\u202e\u05e9\u05dc\u05d5\u05dd.jpg",
    "zero\u200bwidth\ufeff.jpg",
    "line\u2028separator\x85.jpg",
    "\u65e5\u672c\u8a9e.jpg",
    "l" * 236 + ".jpg",
    os.fsdecode(b"not-utf8-\xff\xfe.jpg"),
    os.fsdecode(b"latin-\xe9.jpg"),
]


def corpus(folder: Path) -> list[Path]:
    """Write the corpus below the folder, a group a subfolder; gives the files."""
    goods = whole()
    paths = []
    for group in GROUPS:
        place = folder / group.__name__
        place.mkdir(parents=True)
        for name, content in group(goods):
            paths.append(place / name)
            with paths[-1].open("xb") as file:  # no name may stand twice
                file.write(content)
    return paths


def truncated(goods: Goods) -> Files:
    """Cut at every kind of boundary; what two kinds have in common, once."""
    seen = set(goods.values())
    for name, content in goods.items():
        anywhere = {1, 2, 3, 4, 7, 11, len(content) // 2, len(content) - 1}
        for length in sorted(anywhere | boundaries(content)):
            if content[:length] not in seen:
                seen.add(content[:length])
                yield f"{length:05d}-{name}", content[:length]


def flipped(goods: Goods) -> Files:
    """One bit in the head, one in the middle, and several anywhere, are wrong."""
    for name, content in goods.items():
        chance = random.Random(name)
        for label, count, stop in (("head", 1, 64), ("body", 1, None), ("all", 24, None)):
            damaged = bytearray(content)
            for place in chance.sample(range(stop or len(content)), count):
                damaged[place] ^= 1 << chance.randrange(8)
            yield f"{label}-{name}", bytes(damaged)


def nothing(goods: Goods) -> Files:
    """No bytes, only zeros, only ones, only noise, only a magic number."""
    yield "empty.jpg", b""
    for length in (1, 2, 3, 4, 12, 1000, 65536):
        yield f"zeros-{length}.png", bytes(length)
    yield "ones.tif", b"\xff" * 4096
    yield "noise.webp", random.Random(0).randbytes(4096)
    for name, content in goods.items():
        wrong = bytearray(content)
        wrong[0] ^= 0x20
        yield f"magic-{name}", bytes(wrong)
    magics = {"jpg": b"\xff\xd8\xff", "png": PNG_MAGIC, "gif": b"GIF89a", "tif": b"II*\0"}
    for suffix, magic in {**magics, "bmp": b"BM"}.items():
        yield f"only-magic.{suffix}", magic
        yield f"magic-and-zeros.{suffix}", magic + bytes(500)
    yield "only-magic.avif", b"\0\0\0\x1cftypavif" + bytes(16)
    yield "only-magic.webp", b"RIFF\x04\0\0\0WEBP"


def boastful(goods: Goods) -> Files:
    """Sizes that are giant, zero or negative, with hardly a byte behind them."""
    sizes = {"giant": (65500, 65500), "flat": (0, 40), "thin": (48, 0), "long": (65500, 9000)}
    for label, (width, height) in sizes.items():
        yield f"{label}.jpg", _resized_jpeg(goods["baseline.jpg"], width, height)
        yield f"{label}-progressive.jpg", _resized_jpeg(goods["progressive.jpg"], width, height)
        gif = goods["animated.gif"]
        yield f"{label}.gif", gif[:6] + struct.pack("<HH", width, height) + gif[10:]
        yield f"{label}.tif", _resized_tiff(goods["lzw.tiff"], width, height)
        yield f"{label}-plain.tif", _resized_tiff(goods["plain.tif"], width, height)
        yield f"{label}.webp", _resized_webp(goods["animated.webp"], width, height)
    largest, lowest = 2**31 - 1, -(2**31)
    for width, height in ((largest, largest), (largest, 1), (-1, -1), (0, 0), (40000, 40000)):
        rest = png_chunks(goods["rgb.png"])[1:]
        yield f"{width}x{height}.png", png([header(width, height), *rest])
    for width, height in ((largest, largest), (lowest, lowest), (-48, 40), (0, 0), (60000, -60000)):
        bmp = goods["plain.bmp"]
        yield f"{width}x{height}.bmp", bmp[:18] + struct.pack("<ii", width, height) + bmp[26:]
    yield "frame.gif", _giant_frame(goods["animated.gif"])
    key_frame = b"\x10\x02\0\x9d\x01*\xff\x3f\xff\x3f" + bytes(8)
    yield "vp8.webp", b"RIFF\x1e\0\0\0WEBPVP8 \x12\0\0\0" + key_frame
    yield "vp8l.webp", b"RIFF\x16\0\0\0WEBPVP8L\x09\0\0\0/\xff\xff\xff\x0f" + bytes(5)
    png_icon = png([header(40000, 40000), (b"IDAT", zlib.compress(bytes(99))), (b"IEND", b"")])
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(png_icon), 22)
    yield "icon.bmp", b"\0\0\1\0\1\0" + entry + png_icon
    grey = {256: 48, 257: 40, 258: 8, 259: 5, 262: 1, 277: 1}
    yield "tiles.tif", tiff({**grey, 322: 30000, 323: 30000, 324: 0, 325: 99}, bytes(99))
    yield "samples.tif", tiff({**grey, 277: 65535, 273: 0, 278: 40, 279: 99}, bytes(99))
    yield "strip.tif", tiff({**grey, 273: 0, 278: 2**32 - 1, 279: 2**32 - 1}, bytes(99))
    yield "pixmap.bmp", b"P6 99999 99999 255\n" + bytes(30)
    yield "negative.bmp", b"P6 -5 40 255\n" + bytes(30)


def metadata(goods: Goods) -> Files:
    """EXIF, colour profiles and texts that are damaged, endless or packed too tightly."""
    jpeg = goods["baseline.jpg"]
    for label, body in _exifs().items():
        yield f"exif-{label}.jpg", with_segment(jpeg, 0xE1, b"Exif\0\0" + body)
        yield f"exif-{label}.png", _with_chunk(goods["rgb.png"], (b"eXIf", body))
    profiles = {
        "none": b"",
        "of-none": b"\0\0",
        "second-of-one": b"\2\1garbage",
        "garbage": b"\1\1" + bytes(range(200)),
        "giant": b"\1\1" + struct.pack(">I", 2**31) + b"\xff" * 300,
    }
    for label, body in profiles.items():
        yield f"icc-{label}.jpg", with_segment(jpeg, 0xE2, b"ICC_PROFILE\0" + body)
    bomb = zlib.compress(bytes(8 * 2**20), 9)
    for kind in (b"iCCP", b"zTXt"):
        for label, body in {"bomb": bomb, "garbage": b"garbage", "half": bomb[:99]}.items():
            changed = _with_chunk(goods["rgb.png"], (kind, b"name\0\0" + body))
            yield f"{kind.decode()}-{label}.png", changed
    text = b"XML:com.adobe.xmp\0\1\0\0\0" + bomb
    yield "iTXt-bomb.png", _with_chunk(goods["rgb.png"], (b"iTXt", text))
    xmp = b"http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation='99'"
    yield "xmp.jpg", with_segment(jpeg, 0xE1, xmp)
    yield "mpf.jpg", with_segment(jpeg, 0xE2, b"MPF\0II*\0\xff\xff\xff\xff")
    photoshop = b"Photoshop 3.0\x008BIM\x04\x04\0\0\xff\xff\xff\xff"
    yield "photoshop.jpg", with_segment(jpeg, 0xED, photoshop)
    yield "adobe.jpg", with_segment(jpeg, 0xEE, b"Adobe")
    yield "short-length.jpg", jpeg[:2] + b"\xff\xe1\0\1" + jpeg[2:]
    yield "long-length.jpg", jpeg[:2] + b"\xff\xe1\xff\xff" + jpeg[2:]


def rearranged(goods: Goods) -> Files:
    """Chunks that are swapped, doubled, missing, wrong, or have the wrong checksum."""
    chunks = png_chunks(goods["palette.png"])
    for first in range(len(chunks) - 1):
        order = [*chunks]
        order[first : first + 2] = order[first : first + 2][::-1]
        yield f"swapped-{first}.png", png(order)
    for index, (kind, body) in enumerate(chunks):
        name = kind.decode()
        yield f"no-{name}.png", png(chunks[:index] + chunks[index + 1 :])
        yield f"twice-{name}.png", png([*chunks[: index + 1], *chunks[index:]])
        wrong = chunk(kind, body)[:-1] + b"!"
        yield f"crc-{name}.png", png(chunks[:index]) + wrong + png(chunks[index + 1 :])[8:]
        boast = struct.pack(">I", 2**31 - 1) + chunk(kind, body)[4:]
        yield f"length-{name}.png", png(chunks[:index]) + boast + png(chunks[index + 1 :])[8:]
    head, data, end = png_chunks(goods["rgb.png"])
    for depth, colour in ((3, 2), (8, 5), (16, 3), (0, 0), (255, 255)):
        yield f"depth-{depth}-{colour}.png", png([header(48, 40, depth, colour), *chunks[1:]])
    row = bytes(145)
    yield "filter.png", png([head, (b"IDAT", zlib.compress((b"\x09" + row[1:]) * 40)), end])
    yield "few-rows.png", png([head, (b"IDAT", zlib.compress(row * 3)), end])
    yield "many-rows.png", png([head, (b"IDAT", zlib.compress(row * 4000)), end])
    yield "no-zlib.png", png([head, (b"IDAT", row * 40), end])
    yield "crumbs.png", png([head, *((b"IDAT", bytes([byte])) for byte in data[1]), end])
    yield "critical.png", png([head, (b"ZZZZ", b"?"), end])
    jpeg = goods["baseline.jpg"]
    for marker, place in dict(jpeg_parts(jpeg)).items():
        length = 2 + struct.unpack_from(">H", jpeg, place + 2)[0]
        yield f"no-{marker:x}.jpg", jpeg[:place] + jpeg[place + length :]
    yield "many-scans.jpg", jpeg[:-2] + segment(0xDA, b"\x01\x01\x00\x00\x3f\x00") * 200


def odd(goods: Goods) -> Files:
    """Right or nearly so: wrong endings, two in one, junk around, rare kinds, other files."""
    yield from ((f"whole-{name}", content) for name, content in goods.items())
    endings = {"baseline.jpg": "png", "rgb.png": "jpg", "animated.gif": "webp", "lossy.webp": "gif"}
    for name, suffix in {**endings, "lzw.tiff": "bmp", "plain.bmp": "tif"}.items():
        content = goods[name]
        yield f"wrong-ending-{name}.{suffix}", content
        yield f"junk-after-{name}", content + random.Random(name).randbytes(500)
        yield f"junk-before-{name}", b"junk" + content
        yield f"twice-{name}", content * 2
        yield f"then-jpeg-{name}", content + goods["baseline.jpg"]
    image = picture()
    yield "pixel.png", encoded(Image.new("RGB", (1, 1), "red"), "PNG")
    yield "ribbon.png", encoded(Image.new("RGB", (1, 5000), "red"), "PNG")
    yield "bits.png", encoded(image.convert("1"), "PNG")
    yield "bits.tif", encoded(image.convert("1"), "TIFF", compression="group4")
    yield "lab.tif", encoded(Image.new("LAB", (48, 40)), "TIFF")
    yield "float.tif", encoded(Image.new("F", (48, 40), 0.5), "TIFF")
    yield "signed.tif", encoded(Image.fromarray(np.full((40, 48), -7, np.int32)), "TIFF")
    yield "pixmap.jpg", encoded(image, "PPM")
    yield "icon.jpg", encoded(image, "ICO")
    yield "targa.jpg", encoded(image, "TGA")
    yield "loop.tif", _looped(goods["plain.tif"])
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 48 40\n%%EndComments\nshowpage\n"
    yield "script.jpg", script
    yield "drawing.png", b'<svg xmlns="http://www.w3.org/2000/svg" width="48" height="40"/>'
    yield "document.jpg", b"%PDF-1.4\n%%EOF\n"
    yield "page.jpg", b"<!doctype html><title>404 Not Found</title>"
    yield "archive.gif", b"PK\3\4" + bytes(60)
    yield "pickle.png", b"cos\nsystem\n(S'echo'\ntR."


def named(goods: Goods) -> Files:
    """Good pictures with names that people and programs stumble over."""
    yield from ((name, goods["baseline.jpg"]) for name in NAMES)


GROUPS: list[Callable[[Goods], Files]] = [
    truncated,
    flipped,
    nothing,
    boastful,
    metadata,
    rearranged,
    odd,
    named,
]


def _resized_jpeg(content: bytes, width: int, height: int) -> bytes:
    place = next(place for marker, place in jpeg_parts(content) if marker in (0xC0, 0xC2))
    return content[: place + 5] + struct.pack(">HH", height, width) + content[place + 9 :]


def _resized_webp(content: bytes, width: int, height: int) -> bytes:
    sides = b"".join(struct.pack("<I", side - 1 & 0xFFFFFF)[:3] for side in (width, height))
    return content[:24] + sides + content[30:]


def _resized_tiff(content: bytes, width: int, height: int) -> bytes:
    """With other values of the tags 256 and 257, which stand first."""
    changed = bytearray(content)
    place = struct.unpack_from("<I", content, 4)[0] + 2
    for tag, value in ((256, width), (257, height)):
        assert struct.unpack_from("<H", content, place)[0] == tag
        struct.pack_into("<HIHH", changed, place + 2, 3, 1, value, 0)
        place += 12
    return bytes(changed)


def _looped(content: bytes) -> bytes:
    """A TIFF whose directory is followed by itself."""
    place = struct.unpack_from("<I", content, 4)[0]
    end = place + 2 + 12 * struct.unpack_from("<H", content, place)[0]
    return content[:end] + struct.pack("<I", place) + content[end + 4 :]


def _giant_frame(content: bytes) -> bytes:
    """A GIF whose first frame is far larger than the screen."""
    place = content.index(b",\0\0\0\0" + content[6:10])
    return content[: place + 5] + b"\xff\xff\xff\xff" + content[place + 9 :]


def _with_chunk(content: bytes, added: Chunk) -> bytes:
    head, *rest = png_chunks(content)
    return png([head, added, *rest])


def _exifs() -> dict[str, bytes]:
    """EXIF blocks: a directory of one entry (tag, type, count, value), then the next's place."""

    def block(tag: int, kind: int, count: int, value: int, after: int = 0) -> bytes:
        entry = struct.pack("<HHII", tag, kind, count, value)
        return b"II*\0\x08\0\0\0\x01\0" + entry + struct.pack("<I", after)

    return {
        "orientation-0": block(0x0112, 3, 1, 0),
        "orientation-9": block(0x0112, 3, 1, 9),
        "orientation-many": block(0x0112, 3, 1000, 6),
        "orientation-text": block(0x0112, 2, 4, 0x41414141),
        "orientation-float": block(0x0112, 12, 1, 6),
        "unknown-type": block(0x0112, 99, 1, 6),
        "loop": block(0x0112, 3, 1, 6, after=8),
        "into-itself": block(0x8769, 4, 1, 8),
        "outside": block(0x8769, 4, 1, 0xFFFFFFF0),
        "giant-count": block(0x010E, 2, 0xFFFFFFFF, 8),
        "many-entries": b"II*\0\x08\0\0\0\xff\xff" + bytes(24),
        "garbage": random.Random(1).randbytes(300),
        "empty": b"",
        "cut": block(0x0112, 3, 1, 6)[:14],
    }
