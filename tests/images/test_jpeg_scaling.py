"""Large JPEGs are decoded at a smaller scale: the same picture, the same errors, less time."""

from __future__ import annotations

import io
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from sparc_dist.images.decoding import BadImage, decode, jpeg_scale, squares
from tests.support.malformed import corpus
from tests.support.pictures import encoded
from tests.support.strategies import bounded

SIDES = st.integers(1, 10_000)
#: Neither side is a multiple of 8, so the last row and column of every scale are only partly there.
WIDTH, HEIGHT = 571, 403
#: For squares of these sides, at 1/1, 1/2, 1/4 and 1/8.
SIZES = (112, 80, 40, 20)


def photo(width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """Smooth colours that differ in every direction, with grain."""
    coarse = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    grain = np.random.default_rng(1).normal(0, 5, (height, width, 1))
    return Image.fromarray(np.clip(np.asarray(smooth) + grain, 0, 255).astype(np.uint8))


def both(content: bytes, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns the square with scaling, and without."""
    scaled, full = (decode(content, size, jpeg_scaling=on) for on in (True, False))
    return scaled, full


def difference(some: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    return float(np.abs(some.astype(int) - other).mean())


@given(width=SIDES, height=SIDES, size=st.integers(1, 1024))
@bounded(100)
def test_the_scale_is_the_smallest_with_twice_the_side(width: int, height: int, size: int) -> None:
    scale = jpeg_scale(width, height, size)
    assert scale in (1, 2, 4, 8)
    assert scale == jpeg_scale(height, width, size)  # a turned photo has it, too
    if scale > 1:
        assert min(width, height) / scale >= 2 * size
    if scale < 8:
        assert min(width, height) / (2 * scale) < 2 * size


def test_the_sizes_of_these_tests_have_every_scale() -> None:
    assert [jpeg_scale(WIDTH, HEIGHT, size) for size in SIZES] == [1, 2, 4, 8]


@pytest.mark.parametrize(("width", "height"), [(500, 375), (640, 480), (448, 1800), (895, 895)])
def test_photos_of_the_usual_size_keep_their_bytes(width: int, height: int) -> None:
    content = encoded(photo(width, height), "JPEG", quality=90)
    with Image.open(io.BytesIO(content)) as image:
        expected = np.asarray(image.resize((224, 224), Image.Resampling.BICUBIC))
    for square in both(content, 224):
        np.testing.assert_array_equal(square, expected)


def test_switched_off_it_is_the_full_image() -> None:
    content = encoded(photo(), "JPEG", quality=90)
    with Image.open(io.BytesIO(content)) as image:
        expected = np.asarray(image.resize((20, 20), Image.Resampling.BICUBIC))
    scaled, full = both(content, 20)
    np.testing.assert_array_equal(full, expected)
    assert not np.array_equal(scaled, full)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "BMP"])
def test_other_formats_are_decoded_in_full(kind: str) -> None:
    scaled, full = both(encoded(photo(), kind), 20)
    np.testing.assert_array_equal(scaled, full)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photo_is_upright_at_every_scale(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(photo(), "JPEG", quality=95, exif=exif)
    for size in SIZES[1:]:
        scaled, full = both(content, size)
        assert difference(scaled, full) < 0.6
        assert difference(np.rot90(scaled), full) > 10
        # Nothing is shifted, not even where the last row and column are.
        assert difference(scaled[-1], full[-1]) < 1.5
        assert difference(scaled[:, -1], full[:, -1]) < 1.5


@pytest.mark.parametrize("kind", ["L", "CMYK", "progressive", "MPO", "4:4:4"])
def test_every_kind_of_jpeg_is_scaled(kind: str) -> None:
    image = photo().convert(kind if kind in ("L", "CMYK") else "RGB")
    options: dict[str, dict[str, object]] = {
        "progressive": {"progressive": True},
        "MPO": {"save_all": True, "append_images": [Image.new("RGB", image.size)]},
        "4:4:4": {"subsampling": 0},
    }
    content = encoded(image, kind if kind == "MPO" else "JPEG", **options.get(kind, {}))
    for size in SIZES[1:]:
        scaled, full = both(content, size)
        assert not np.array_equal(scaled, full)
        assert difference(scaled, full) < 0.8


def test_a_size_has_the_same_bytes_whatever_other_sizes_are_needed() -> None:
    content = encoded(photo(), "JPEG", quality=90)
    for on in (True, False):
        alone = {size: decode(content, size, jpeg_scaling=on) for size in SIZES}
        for sizes in chain.from_iterable(combinations(SIZES, n) for n in (2, 3, 4)):
            together = squares(content, sizes, jpeg_scaling=on)
            for size, square in zip(sizes, together, strict=True):
                np.testing.assert_array_equal(square, alone[size])


def reason(content: bytes, size: int, jpeg_scaling: bool) -> str | None:
    try:
        decode(content, size, jpeg_scaling=jpeg_scaling)
    except BadImage as error:
        return str(error)
    return None


def test_malformed_files_have_the_same_reasons(tmp_path: Path) -> None:
    for path in corpus(tmp_path / "corpus"):
        content = path.read_bytes()
        assert reason(content, 2, True) == reason(content, 2, False), path


@pytest.mark.parametrize("progressive", [False, True])
def test_a_truncated_photo_is_found_at_every_scale(progressive: bool) -> None:
    content = encoded(photo(), "JPEG", quality=90, progressive=progressive)
    cuts = np.linspace(600, len(content) - 1, 25).astype(int).tolist()
    for size in SIZES[1:]:
        for cut in [*cuts, len(content) - 2]:
            found = reason(content[:cut], size, True)
            assert found == reason(content[:cut], size, False)
            assert found is not None
            assert "truncated" in found.lower()


def test_the_limit_is_that_of_the_full_image() -> None:
    content = encoded(photo(), "JPEG")
    with pytest.raises(BadImage, match="declares 571 × 403 pixels, more than 230,000"):
        squares(content, [20], most=230_000)
