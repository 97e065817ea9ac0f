"""Turns a drawn scene into a picture with a medium, a sharpness and light.

Each step also returns the visual words for captions that it makes true. These looks are independent
of the objects in the scene and shift an image's scores for all prompts at once: the image-level
bias that photos have too.
"""

import io
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter, ImageOps

Words = frozenset[str]
_NONE: Words = frozenset()


def render(image: Image.Image, rng: np.random.Generator) -> tuple[Image.Image, Words]:
    """Returns the finished RGB picture, and the visual words that are true of all of it."""
    image, medium = _one_of(_MEDIA, image, rng)
    image, loss = _one_of(_LOSSES, image, rng)
    image, light = _expose(image, rng)
    return image, medium | loss | light


def _sketch(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Draws dark outlines on paper."""
    edges = ImageOps.invert(image.convert("L").filter(ImageFilter.FIND_EDGES))
    return Image.blend(edges.convert("RGB"), image, 0.15)


def _paint(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Leaves patches of even colour, like a broad brush."""
    return image.filter(ImageFilter.MedianFilter(5)).filter(ImageFilter.EDGE_ENHANCE_MORE)


def _cartoon(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Reduces the picture to a few strong colours."""
    return ImageOps.posterize(ImageOps.autocontrast(image), 2)


def _carve(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Makes a grey relief."""
    relief = image.convert("L").filter(ImageFilter.EMBOSS).convert("RGB")
    return Image.blend(relief, image, 0.2)


def _stitch(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Adds slanted threads."""
    rows, columns = np.indices((image.height, image.width))
    thread = np.where((rows + columns) % 6 < 3, 1.15, 0.7)[:, :, None]
    return _from_floats(np.asarray(image) * thread)


def _spray(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Sprays the picture on a wall of bricks."""
    rows, columns = np.indices((image.height, image.width))
    joint = (rows % 12 < 2) | ((columns + rows // 12 % 2 * 10) % 20 < 2)
    pixels = 0.75 * np.asarray(image) + 0.25 * np.array((170, 80, 60))
    pixels[joint] = (205, 195, 185)
    return _from_floats(pixels)


def _ink(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Draws the picture with blue ink on skin."""
    return ImageOps.colorize(image.convert("L"), (30, 40, 90), (240, 200, 170))


def _blur(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(float(rng.uniform(1.5, 2.8))))


def _coarsen(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    factor = float(rng.uniform(3, 4.5))
    small = (int(image.width / factor), int(image.height / factor))
    coarse = image.resize(small, Image.Resampling.BOX)
    return coarse.resize(image.size, Image.Resampling.NEAREST)


def _corrupt(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    packed = io.BytesIO()
    image.save(packed, "JPEG", quality=int(rng.integers(5, 13)))
    return Image.open(packed).convert("RGB")


def _drain(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return image.convert("L").convert("RGB")


# The share of scenes, the step and its words. The other scenes stay unchanged.
_Step = tuple[float, Callable[[Image.Image, np.random.Generator], Image.Image], Words]
_MEDIA: tuple[_Step, ...] = (
    (0.08, _sketch, frozenset({"sketch", "drawing", "doodle"})),
    (0.06, _paint, frozenset({"painting", "art", "rendition"})),
    (0.06, _cartoon, frozenset({"cartoon", "video game"})),
    (0.04, _carve, frozenset({"sculpture"})),
    (0.04, _stitch, frozenset({"embroidered"})),
    (0.04, _spray, frozenset({"graffiti"})),
    (0.04, _ink, frozenset({"tattoo"})),
    (0.06, _drain, frozenset({"black and white"})),
)
_LOSSES: tuple[_Step, ...] = (
    (0.08, _blur, frozenset({"blurry"})),
    (0.06, _coarsen, frozenset({"pixelated", "low resolution"})),
    (0.05, _corrupt, frozenset({"jpeg corrupted"})),
)


def _one_of(
    steps: tuple[_Step, ...], image: Image.Image, rng: np.random.Generator
) -> tuple[Image.Image, Words]:
    """Applies at most one of the steps, each with its share as probability."""
    draw = float(rng.random())
    for share, step, words in steps:
        if draw < share:
            return step(image, rng), words
        draw -= share
    return image, _NONE


def _expose(image: Image.Image, rng: np.random.Generator) -> tuple[Image.Image, Words]:
    """Varies light and contrast, and adds a colour cast and grain."""
    light = float(np.exp(rng.normal(0, 0.28)))
    contrast = float(rng.uniform(0.55, 1.1))
    cast = np.exp(rng.normal(0, 0.12, 3))
    grain = float(rng.gamma(1.5, 4))
    pixels = ((np.asarray(image, dtype=np.float64) - 128) * contrast + 128) * (light * cast)
    words = {"dark"} if light < 0.72 else {"bright"} if light > 1.38 else set()
    if contrast < 0.62 or grain > 14:
        words |= {"bad", "hard to see"}
    return _from_floats(pixels + rng.normal(0, grain, pixels.shape)), frozenset(words)


def _from_floats(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
