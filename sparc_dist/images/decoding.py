"""Decoding: bytes of any common image format in, a square of uint8 RGB out.

The model sees a picture as a person would: upright, transparent parts on white, 16-bit values
scaled rather than clipped.
"""

from __future__ import annotations

import io
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.TiffImagePlugin import TILELENGTH, TILEWIDTH, TiffImageFile

from sparc_dist.errors import one_line
from sparc_dist.images.formats import FORMATS, READS_HEIC

#: More pixels than any camera makes; a file that declares more is a decompression bomb.
MAX_PIXELS = 200_000_000

#: How to turn an image upright, by its EXIF orientation.
_TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_STDERR_LOCK = threading.Lock()


class BadImage(Exception):
    """An image cannot be read; the text is the reason for the error table."""


def decode(content: bytes, size: int) -> NDArray[np.uint8]:
    """Returns the image as (size, size, 3) uint8 RGB, resized to a square (bicubic, no crop)."""
    (square,) = squares(content, [size])
    return square


def squares(content: bytes, sizes: Sequence[int]) -> list[NDArray[np.uint8]]:
    """Returns the same at several sizes, each resized from the full image, decoded once."""
    if not content:
        raise BadImage("the file is empty")
    try:
        with warnings.catch_warnings():
            # Pillow warns about odd metadata, but only the pixels decide whether an image is good.
            warnings.simplefilter("ignore")
            _configure_pillow()
            with Image.open(io.BytesIO(content), formats=_supported_formats()) as image:
                rgb = _load(image)
                return [_resized(rgb, size) for size in sizes]
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage("not an image in a known format") from None
    except Exception as error:  # decoders raise nearly anything on damaged data
        raise BadImage(f"cannot be decoded: {_reason(error)}") from None


def _resized(rgb: Image.Image, size: int) -> NDArray[np.uint8]:
    return np.asarray(rgb.resize((size, size), Image.Resampling.BICUBIC), dtype=np.uint8)


def _load(image: Image.Image) -> Image.Image:
    for width, height in (image.size, _tile_size(image)):
        if width * height > MAX_PIXELS:
            raise BadImage(f"declares {width} × {height} pixels, more than {MAX_PIXELS:,}")
    with _quiet_libtiff() if isinstance(image, TiffImageFile) else nullcontext():
        image.load()
    return _to_rgb(_upright(image))


def _tile_size(image: Image.Image) -> tuple[int, int]:
    """Returns the size of a TIFF's tiles, which may exceed the image and are loaded whole."""
    if not isinstance(image, TiffImageFile):
        return 0, 0
    width, height = (image.tag_v2.get(tag, 0) for tag in (TILEWIDTH, TILELENGTH))
    if not isinstance(width, int) or not isinstance(height, int):
        raise BadImage("its tile size is not a number")
    return width, height


def _upright(image: Image.Image) -> Image.Image:
    """Returns the image turned as its EXIF says; EXIF that cannot be read is ignored.

    Does not use ImageOps.exif_transpose, which also rewrites the EXIF: one odd tag from a camera
    makes that fail, and the image would not be turned.
    """
    try:
        transpose = _TRANSPOSES.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:
        return image
    return image if transpose is None else image.transpose(transpose)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return _scale_integers(image)
    if image.mode == "F":
        raise BadImage("floating-point pixels have no standard range; convert it to 8 bits")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")


def _scale_integers(image: Image.Image) -> Image.Image:
    """Returns 16-bit grey (modes I;16 and I) as 8 bits; Pillow's own conversion would clip."""
    values = np.asarray(image).astype(np.int64)
    if values.size and (values.min() < 0 or values.max() > 65535):
        raise BadImage("integer pixels beyond 16 bits have no standard range")
    return Image.fromarray((values // 257).astype(np.uint8)).convert("RGB")


def _reason(error: Exception) -> str:
    """Returns one line without memory addresses, which would differ from run to run."""
    text = one_line(error)
    return text if " at 0x" not in text else type(error).__name__


@cache
def _configure_pillow() -> None:
    """Turns off Pillow's own limit and log: MAX_PIXELS is the limit, and errors/ the log.

    Adds HEIC to its formats where pillow-heif is installed.
    """
    if READS_HEIC:
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.MAX_IMAGE_PIXELS = None
    logging.getLogger("PIL").setLevel(logging.CRITICAL + 1)


def _supported_formats() -> list[str]:
    """Returns those of FORMATS that this Pillow was built with."""
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


@contextmanager
def _quiet_libtiff() -> Iterator[None]:
    """Keeps libtiff, which does not go through Python, from writing to standard error."""
    with _STDERR_LOCK:
        try:
            stderr = os.dup(2)
        except OSError:  # standard error is closed
            yield
            return
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(devnull)
            os.close(stderr)
