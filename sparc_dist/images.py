"""Images: bytes of any usual format in, a square of uint8 RGB out.

A picture is shown to the model as a person would see it: upright, transparent parts on white,
16-bit values scaled and not clipped.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

#: More pixels than any camera makes; a file that declares more is a decompression bomb.
MAX_PIXELS = 200_000_000

Image.MAX_IMAGE_PIXELS = None  # our own limit below answers with a reason instead of a warning


class BadImage(Exception):
    """An image that cannot be read, with the reason for the error table."""


def decode(content: bytes, size: int) -> NDArray[np.uint8]:
    """The image as (size, size, 3) uint8 RGB, resized to a square (bicubic, no crop)."""
    if not content:
        raise BadImage("the file is empty")
    try:
        with warnings.catch_warnings():
            # Pillow warns of odd metadata; the pixels decide whether an image is good.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as image:
                return _square(image, size)
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage("not an image in a known format") from None
    except Exception as error:  # decoders raise nearly anything on damaged data
        raise BadImage(f"cannot be decoded: {_reason(error)}") from None


def _square(image: Image.Image, size: int) -> NDArray[np.uint8]:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise BadImage(f"declares {width} × {height} pixels, more than {MAX_PIXELS:,}")
    image.load()
    rgb = _to_rgb(_upright(image))
    return np.asarray(rgb.resize((size, size), Image.Resampling.BICUBIC), dtype=np.uint8)


def _upright(image: Image.Image) -> Image.Image:
    """Turned as its EXIF says; EXIF that cannot be read turns nothing."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        return image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return _scale_integers(image)
    if image.mode == "F":
        raise BadImage("floating-point pixels have no agreed brightness; convert it to 8 bits")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")


def _scale_integers(image: Image.Image) -> Image.Image:
    """16-bit grey (Pillow's modes I;16 and I) to 8 bits: Pillow's own conversion would clip."""
    values = np.asarray(image).astype(np.int64)
    if values.size and (values.min() < 0 or values.max() > 65535):
        raise BadImage("integer pixels beyond 16 bits have no agreed brightness")
    return Image.fromarray((values // 257).astype(np.uint8)).convert("RGB")


def _reason(error: Exception) -> str:
    """One line, without an address in memory that would differ from run to run."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if " at 0x" not in text else type(error).__name__
