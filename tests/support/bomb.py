"""A decompression bomb."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image


def bomb() -> bytes:
    """A PNG of a few bytes that declares a gigapixel."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0)
    good = _small_png()
    return good[:12] + header + struct.pack(">I", zlib.crc32(header)) + good[33:]


def _small_png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PNG")
    return buffer.getvalue()
