"""Files of every kind that a user may have are decoded as a person would see them."""

import io
import struct
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from sparc_dist.images import decoding
from sparc_dist.images.decoding import BadImage, decode, kind_of, thumbnail
from tests.support.bomb import bomb

RED = (200, 30, 40)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def colour(content: bytes) -> NDArray[np.uint8]:
    pixels = decode(content, 32)
    assert pixels.shape == (32, 32, 3)
    assert pixels.dtype == np.uint8
    centre: NDArray[np.uint8] = pixels[16, 16]
    return centre


def near(content: bytes, expected: tuple[int, ...]) -> None:
    np.testing.assert_allclose(colour(content).astype(int), expected, atol=4)


def test_rgb_jpeg() -> None:
    near(encoded(Image.new("RGB", (70, 50), RED), "JPEG", quality=95), RED)


def test_grey_scale_jpeg() -> None:
    near(encoded(Image.new("L", (70, 50), 90), "JPEG"), (90, 90, 90))


def test_cmyk_jpeg() -> None:
    cmyk = Image.new("RGB", (70, 50), RED).convert("CMYK")
    near(encoded(cmyk, "JPEG", quality=95), RED)


def test_palette_png_and_gif() -> None:
    palette = Image.new("RGB", (70, 50), RED).quantize(8)
    near(encoded(palette, "PNG"), RED)
    near(encoded(palette, "GIF"), RED)


@pytest.mark.parametrize("alpha", [0, 255])
def test_transparent_pixels_become_white(alpha: int) -> None:
    seen = (255, 255, 255) if alpha == 0 else RED
    near(encoded(Image.new("RGBA", (70, 50), (*RED, alpha)), "PNG"), seen)
    near(encoded(Image.new("LA", (70, 50), (90, alpha)), "PNG"), seen if not alpha else (90,) * 3)


def test_a_transparent_palette_becomes_white() -> None:
    palette = Image.new("P", (70, 50), 0)
    palette.putpalette([*RED, 0, 0, 0])
    near(encoded(palette, "PNG", transparency=0), (255, 255, 255))


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bit_grey_is_scaled_and_not_clipped(kind: str) -> None:
    values = np.full((50, 70), 90 * 257, dtype=np.uint16)
    near(encoded(Image.fromarray(values), kind), (90, 90, 90))


def test_sixteen_bit_rgb_png() -> None:
    rows = b"".join(b"\0" + struct.pack(">3H", *(v * 257 for v in RED)) * 70 for _ in range(50))

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", 70, 50, 16, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows))
    near(png + chunk(b"IEND", b""), RED)


def test_exif_turns_the_image_upright() -> None:
    pixels = np.zeros((40, 80, 3), dtype=np.uint8)
    pixels[:, :40] = RED
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90° clockwise to view
    turned = decode(encoded(Image.fromarray(pixels), "PNG", exif=exif), 32)
    np.testing.assert_array_equal(turned[4, 16], RED)
    np.testing.assert_array_equal(turned[28, 16], (0, 0, 0))


def test_a_damaged_exif_does_no_harm() -> None:
    content = encoded(Image.new("RGB", (70, 50), RED), "JPEG", quality=95)
    junk = b"Exif\0\0MM\0*\xff\xff\xff\xff broken"
    near(content[:2] + b"\xff\xe1" + struct.pack(">H", len(junk) + 2) + junk + content[2:], RED)


def test_an_odd_tag_beside_the_orientation_does_not_hide_it() -> None:
    pixels = np.zeros((40, 80, 3), dtype=np.uint8)
    pixels[:, :40] = RED
    # The camera's maker as a fraction, which Pillow can read but not write.
    entries = struct.pack("<HHII", 0x010F, 5, 1, 0) + struct.pack("<HHII", 0x0112, 3, 1, 6)
    exif = b"Exif\0\0II*\0\x08\0\0\0\x02\0" + entries + bytes(4)
    turned = decode(encoded(Image.fromarray(pixels), "PNG", exif=exif), 32)
    np.testing.assert_array_equal(turned[4, 16], RED)


def test_an_animation_shows_its_first_frame() -> None:
    frames = [Image.new("RGB", (40, 40), c) for c in (RED, (0, 0, 0))]
    near(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), RED)


def test_resize_is_bicubic_without_crop() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (50, 90, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    expected = np.asarray(image.resize((32, 32), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(decode(encoded(image, "PNG"), 32), expected)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"hello, I am no image", "not an image"),
        (encoded(Image.effect_noise((64, 64), 50), "JPEG")[:600], "cannot be decoded"),
        (encoded(Image.effect_noise((64, 64), 50), "PNG")[:600], "cannot be decoded"),
        (bomb(), "more than"),
        (encoded(Image.new("F", (8, 8), 0.5), "TIFF"), "floating-point"),
    ],
    ids=["empty", "text", "truncated-jpeg", "truncated-png", "bomb", "float"],
)
def test_an_unreadable_image_has_a_reason(content: bytes, reason: str) -> None:
    with pytest.raises(BadImage, match=reason):
        decode(content, 32)


def test_heic_is_read_where_its_package_is_installed() -> None:
    heif = pytest.importorskip("pillow_heif")
    buffer = io.BytesIO()
    heif.from_pillow(Image.new("RGB", (64, 32), "red")).save(buffer)
    pixels = decode(buffer.getvalue(), 8)
    assert np.allclose(pixels, [255, 0, 0], atol=12)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_a_preview_is_an_upright_jpeg_in_its_own_proportions(kind: str) -> None:
    image = Image.new("RGB", (800, 400), RED)
    exif = Image.Exif()
    exif[274] = 6  # taken with the camera on its side
    content = encoded(image, kind, exif=exif)
    assert kind_of(content) == kind
    made = Image.open(io.BytesIO(thumbnail(content, 100)))
    assert (made.format, made.size) == ("JPEG", (50, 100))
    small = Image.open(io.BytesIO(thumbnail(encoded(image, kind), 5000)))
    assert small.size == (800, 400)  # never enlarged


@pytest.mark.parametrize("content", [b"", b"<svg/>", b"<html>", b"%!PS", b"GIF89a"])
def test_what_is_no_image_has_neither_kind_nor_preview(content: bytes) -> None:
    with pytest.raises(BadImage):
        kind_of(content)
    with pytest.raises(BadImage):
        thumbnail(content, 100)


def test_a_preview_has_the_limit_of_every_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_PIXELS", 64 * 64 - 1)
    with pytest.raises(BadImage, match="declares 64 × 64 pixels, more than 4,095"):
        thumbnail(encoded(Image.new("RGB", (64, 64)), "JPEG"), 8)
