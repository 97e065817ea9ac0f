"""Decoding: bytes of any common image format in, a square of uint8 RGB out.

The model sees a picture as a person would: upright, transparent parts on white, 16-bit values
scaled rather than clipped.

libjpeg decodes a JPEG at 1/2, 1/4 or 1/8 of its size far faster than in full, because it computes
fewer pixels of each block of 8 × 8. A JPEG is decoded at the smallest scale that leaves twice as
many pixels as its square has, in both directions.

A file may be hostile. What its header declares is checked before it is decoded; JPEG, PNG, GIF and
WebP of ordinary size are decoded here, everything else in a process of its own (``apart``).
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import TILELENGTH, TILEWIDTH, TiffImageFile

from sparc_dist.errors import one_line
from sparc_dist.images import apart
from sparc_dist.images.formats import (
    COMMON,
    FORMATS,
    READS_HEIC,
    has_one_scan,
    opens_simply,
    scans,
    webp_size,
)

#: More pixels than any camera makes; a file that declares more is a decompression bomb.
MAX_PIXELS = 200_000_000
#: The most pixels that are decoded in this process: their up to four copies take 200 MB.
HERE = 12_500_000
#: The most scans of a JPEG; a progressive one has about ten. Each is a pass over all its pixels.
MAX_SCANS, USUAL_SCANS = 100, 10
#: How often a file is read from while it is decoded here, each time by a few lines of Python.
MAX_READS = 50_000

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


class _NotHere(Exception):
    """An image is not decoded in this process: its format is rare, or its size."""


class BadImage(Exception):
    """An image cannot be read; the text is the reason for the error table.

    passing: whether it may be readable later, as a file of a folder that is away for a while.
    """

    def __init__(self, reason: str, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


def decode(content: bytes, size: int, jpeg_scaling: bool = True) -> NDArray[np.uint8]:
    """Returns the image as (size, size, 3) uint8 RGB, resized to a square (bicubic, no crop).

    jpeg_scaling: whether a large JPEG is decoded at a smaller scale.
    """
    (square,) = squares(content, [size], MAX_PIXELS, jpeg_scaling)
    return square


def squares(
    content: bytes, sizes: Sequence[int], most: int = MAX_PIXELS, jpeg_scaling: bool = True
) -> list[NDArray[np.uint8]]:
    """Returns the same at several sizes, each with the bytes that it has alone.

    most: the largest number of pixels that a file may declare.

    Decodes once for all sizes that need the same scale: once for each scale is cheaper than once in
    full, and a square made from a larger scale than its own would have other bytes.
    """
    try:
        return _squares_of(content, sizes, most, jpeg_scaling, HERE)
    except _NotHere:
        parts = _apart("squares", content, sizes, most, jpeg_scaling)
    with _bad_images():
        pairs = zip(parts, sizes, strict=True)
        return [np.frombuffer(part, np.uint8).reshape(size, size, 3) for part, size in pairs]


def _squares_of(
    content: bytes, sizes: Sequence[int], most: int, jpeg_scaling: bool, here: float
) -> list[NDArray[np.uint8]]:
    """Returns the squares; raises _NotHere if an image has more than ``here`` pixels to decode."""
    found: dict[int, NDArray[np.uint8]] = {}
    with _bad_images():
        while missing := [size for size in sizes if size not in found]:
            with _opened(content, most, here) as image:
                scales = [_scale(image, size) if jpeg_scaling else 1 for size in missing]
                _check_work(content, image, scales[0], here)
                alike = [s for s, scale in zip(missing, scales, strict=True) if scale == scales[0]]
                found |= zip(alike, _squares(image, alike, scales[0]), strict=True)
    return [found[size] for size in sizes]


def jpeg_scale(width: int, height: int, size: int) -> int:
    """Returns the divisor at which a JPEG is decoded for a square: 1, 2, 4 or 8.

    It is the largest that leaves at least 2 · size pixels in both directions, so that what the
    resize averages over is still there.
    """
    divisors = (8, 4, 2)
    return next((by for by in divisors if min(width, height) >= 2 * size * by), 1)


def thumbnail(content: bytes, side: int) -> bytes:
    """Returns a small copy as JPEG, neither side longer than ``side``, without any metadata."""
    try:
        return _thumbnail_of(content, side, HERE)
    except _NotHere:
        (small,) = _apart("thumbnail", content, side)
        return small


def _thumbnail_of(content: bytes, side: int, here: float) -> bytes:
    with _bad_images(), _opened(content, MAX_PIXELS, here) as image:
        _check_work(content, image, _scale(image, side), here)
        image.draft(None, (2 * side, 2 * side))
        image.load()
        rgb = _to_rgb(_turned(image, _turn_of(image)))
        rgb.thumbnail((side, side), Image.Resampling.BICUBIC)
        buffer = io.BytesIO()
        # A new image: Pillow would write the comment of the old one.
        Image.fromarray(np.asarray(rgb)).save(buffer, "JPEG", quality=80, optimize=True)
        return buffer.getvalue()


def kind_of(content: bytes) -> str:
    """Returns the format of an image in Pillow's words, such as JPEG; decodes no pixel."""
    try:
        return _kind_of(content, HERE)
    except _NotHere:
        (kind,) = _apart("kind", content)
        return kind.decode()


def _kind_of(content: bytes, here: float) -> str:
    with _bad_images(), _opened(content, MAX_PIXELS, here) as image:
        return str(image.format)


def is_upright(content: bytes) -> bool:
    """Whether a JPEG or PNG needs no turn by its EXIF."""
    try:
        return _is_upright(content, HERE)
    except _NotHere:
        return _apart("upright", content) == [b"True"]


def _is_upright(content: bytes, here: float) -> bool:
    with _bad_images(), _opened(content, MAX_PIXELS, here) as image:
        if image.format == "PNG":  # its EXIF may stand behind the pixels, which are decoded then
            _check_work(content, image, 1, here)
        return _turn_of(image) is None


#: What a helper does: the same, without a limit of pixels but with one of time and memory.
WORK: dict[str, Callable[..., list[bytes]]] = {
    "squares": lambda content, sizes, most, scaling: [
        square.tobytes() for square in _squares_of(content, sizes, most, scaling, math.inf)
    ],
    "thumbnail": lambda content, side: [_thumbnail_of(content, side, math.inf)],
    "kind": lambda content: [_kind_of(content, math.inf).encode()],
    "upright": lambda content: [str(_is_upright(content, math.inf)).encode()],
}


def _apart(work: str, content: bytes, *arguments: Any) -> list[bytes]:
    """Returns what a helper answers; raises BadImage if it does not."""
    answer = apart.run(work, content, *arguments)
    if isinstance(answer, str):
        raise BadImage(answer)
    return answer


def square_of(picture: Image.Image | NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Returns the same of a picture in memory: Pillow's, or an array, grey (H, W) or (H, W, 3)."""
    with _bad_images():
        if not isinstance(picture, Image.Image):
            if picture.dtype != np.uint8:
                raise BadImage(f"an array of {picture.dtype}; pixels are uint8, from 0 to 255")
            picture = Image.fromarray(picture)
        _check_declared(picture, MAX_PIXELS)
        (square,) = _squares(picture, [size], scale=1)
        return square


@contextmanager
def _bad_images() -> Iterator[None]:
    """Makes Pillow ready, and turns whatever it raises into BadImage."""
    try:
        with warnings.catch_warnings():
            # Pillow warns about odd metadata, but only the pixels decide whether an image is good.
            warnings.simplefilter("ignore")
            _configure_pillow()
            yield
    except (BadImage, _NotHere):
        raise
    except UnidentifiedImageError:
        raise BadImage("not an image in a known format") from None
    except MemoryError:
        raise BadImage("cannot be decoded: takes more memory than it may") from None
    except Exception as error:  # decoders raise nearly anything on damaged data
        text = one_line(error)
        # Without memory addresses, which would differ from run to run.
        reason = type(error).__name__ if " at 0x" in text else text
        raise BadImage(f"cannot be decoded: {reason}") from None


def _opened(content: bytes, most: int, here: float) -> Image.Image:
    """Opens an image without decoding it; raises BadImage if it declares too much."""
    if not content:
        raise BadImage("the file is empty")
    if here == math.inf:
        image = Image.open(io.BytesIO(content), formats=_supported_formats())
    elif not content.startswith(COMMON):
        raise _NotHere
    else:
        if content.startswith(b"RIFF"):
            width, height = webp_size(content) or (most, 1)
            _check_pixels(width, height, most)
            # Its decoder takes memory for three more copies as soon as it is opened.
            if 2 * width * height > here:
                raise _NotHere
        simple = content.startswith(b"\xff\xd8") and opens_simply(content)
        file = io.BytesIO(content) if simple else _Reads(content)
        image = Image.open(file, formats=_supported_formats())
    _check_declared(image, most)
    return image


class _Reads(io.BytesIO):
    """A file in memory that is not read from without end."""

    left = MAX_READS

    def read(self, size: int | None = -1, /) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise BadImage(f"has more than {MAX_READS:,} parts")
        return super().read(size)


def _check_work(content: bytes, image: Image.Image, scale: int, here: float) -> None:
    """Raises _NotHere if more than ``here`` pixels were to be decoded, at 1/scale."""
    pixels = image.width * image.height
    if (passes := _scans(content, image)) > 1:
        if passes > MAX_SCANS:
            raise BadImage(f"has more than {MAX_SCANS} scans")
        pixels *= max(1, passes // USUAL_SCANS)  # all of them are held in memory at any scale
    else:
        pixels //= min(scale, 4) ** 2  # reading its bits takes time at any scale
    if pixels > here:
        raise _NotHere


def _scans(content: bytes, image: Image.Image) -> int:
    """Returns how many times the pixels of an image that was just opened are gone through."""
    if not isinstance(image, JpegImageFile):
        return 1
    # Pillow stops behind the header of the first scan; an ordinary JPEG has no other.
    stopped = image.fp.tell() if image.fp is not None else 0
    if "progressive" not in image.info and has_one_scan(content, image.layers, stopped):
        return 1
    return scans(content, MAX_SCANS)


def _check_declared(image: Image.Image, most: int) -> None:
    """Raises BadImage if an image that is not yet loaded declares more pixels than ``most``."""
    _check_pixels(*image.size, most)
    _check_pixels(*_tile_size(image), most)


def _check_pixels(width: int, height: int, most: int) -> None:
    if width * height > most:
        raise BadImage(f"declares {width} × {height} pixels, more than {most:,}")


def _scale(image: Image.Image, size: int) -> int:
    """Returns the divisor at which an image is decoded; 1 for what is no JPEG."""
    return jpeg_scale(*image.size, size) if isinstance(image, JpegImageFile) else 1


def _squares(image: Image.Image, sizes: Sequence[int], scale: int) -> list[NDArray[np.uint8]]:
    if scale > 1:
        return _scaled_squares(image, sizes, scale)
    image.load()
    rgb = _to_rgb(_turned(image, _turn_of(image)))
    return [_resized(rgb, size) for size in sizes]


def _scaled_squares(jpeg: Image.Image, sizes: Sequence[int], scale: int) -> list[NDArray[np.uint8]]:
    """Decodes a JPEG at 1/scale."""
    width, height = jpeg.size
    jpeg.draft(None, (width // scale, height // scale))
    jpeg.load()
    rgb = _to_rgb(jpeg)
    # The last column and row may lie partly beyond the image; of a turned one they would be others,
    # so the squares are turned instead.
    box = (0, 0, width / scale, height / scale)
    resized = [Image.fromarray(_resized(rgb, size, box)) for size in sizes]
    return [np.asarray(_turned(square, _turn_of(jpeg))) for square in resized]


def _resized(
    rgb: Image.Image, size: int, box: tuple[float, float, float, float] | None = None
) -> NDArray[np.uint8]:
    """Resizes an image, or a box of it, to a square."""
    resized = rgb.resize((size, size), Image.Resampling.BICUBIC, box)
    return np.asarray(resized, dtype=np.uint8)


def _tile_size(image: Image.Image) -> tuple[int, int]:
    """Returns the size of a TIFF's tiles, which may exceed the image and are loaded whole."""
    if not isinstance(image, TiffImageFile):
        return 0, 0
    width, height = (image.tag_v2.get(tag, 0) for tag in (TILEWIDTH, TILELENGTH))
    if not isinstance(width, int) or not isinstance(height, int):
        raise BadImage("its tile size is not a number")
    return width, height


def _turn_of(image: Image.Image) -> Image.Transpose | None:
    """Returns how its EXIF says to turn an image upright; EXIF that cannot be read is ignored.

    Does not use ImageOps.exif_transpose, which also rewrites the EXIF: one odd tag from a camera
    makes that fail, and the image would not be turned.
    """
    try:
        return _TRANSPOSES.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:
        return None


def _turned(image: Image.Image, turn: Image.Transpose | None) -> Image.Image:
    return image if turn is None else image.transpose(turn)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return _scale_integers(image)
    if image.mode == "F":
        raise BadImage("floating-point pixels have no standard range; convert it to 8 bits")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = image if image.mode == "RGBA" else image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _scale_integers(image: Image.Image) -> Image.Image:
    """Returns 16-bit grey (modes I;16 and I) as 8 bits; Pillow's own conversion would clip."""
    values = np.asarray(image).astype(np.int64)
    if values.size and (values.min() < 0 or values.max() > 65535):
        raise BadImage("integer pixels beyond 16 bits have no standard range")
    return Image.fromarray((values // 257).astype(np.uint8)).convert("RGB")


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
