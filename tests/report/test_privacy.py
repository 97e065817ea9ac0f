"""Pictures that leave a run say nothing of where and when the photos were taken, nor by whom."""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

from sparc_dist.cli import main
from sparc_dist.images.formats import without_metadata
from sparc_dist.report.export import FORMATS
from sparc_dist.runs.run import open_unit
from tests.support.pictures import encoded, picture, segment, whole, with_segment
from tests.support.viewing import viewing

#: What every tag of a photo contains, and no other file of a run.
SECRET = b"SECRET"
PICTURES = {".jpg", ".jpeg", ".png", ".gif", ".webp", ".svg"}
XMP = b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><SECRET/></x:xmpmeta>"
IPTC = b"Photoshop 3.0\x008BIM\x04\x04\0\0\0\0\0\x0b\x1c\x02\x78\0\x06SECRET"
#: What a phone appends to a photo: a film, or a second photo with tags of its own.
APPENDED = b"\0\0\0\x18ftypmp42" + SECRET
TURN = 6


def exif(turn: int) -> Image.Exif:
    """Tags of a camera, with a place; the picture is stored turned."""
    tags = Image.Exif()
    tags[0x0112], tags[0x010F], tags[0x013B] = turn, "SECRET camera", "SECRET person"
    tags.get_ifd(0x8825).update({1: "N", 2: (52.0, 31.0, 12.0), 29: "SECRET day"})
    return tags


def jpeg(turn: int = 1, **options: object) -> bytes:
    """A JPEG with EXIF, GPS, XMP, IPTC, a comment, a tag of an unknown kind and an appendix."""
    content = encoded(picture(), "JPEG", exif=exif(turn), comment=SECRET, **options)
    for marker, body in ((0xE1, XMP), (0xED, IPTC), (0xEB, SECRET), (0xE0, b"JFXX\0" + SECRET)):
        content = content[:20] + segment(marker, body) + content[20:]  # behind the JFIF header
    return content + APPENDED


def png(turn: int = 1) -> bytes:
    texts = PngInfo()
    texts.add_text("Author", "SECRET")
    texts.add_itxt("XML:com.adobe.xmp", "<SECRET/>", zip=False)
    return encoded(picture(), "PNG", exif=exif(turn), pnginfo=texts) + APPENDED


@cache
def photos() -> dict[str, bytes]:
    """Photos with tags, by name; some are stored turned."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    others = {"append_images": [picture(1)], "save_all": True}
    return {
        "plain.jpg": jpeg(),
        "turned.jpg": jpeg(TURN),
        "progressive.jpg": jpeg(progressive=True, icc_profile=profile),
        "twice.jpg": encoded(picture(), "MPO", exif=exif(1), **others) + APPENDED,
        "plain.png": png(),
        "turned.png": png(TURN),
        "plain.webp": encoded(picture(), "WEBP", exif=exif(1), xmp=XMP),
        "turned.webp": encoded(picture(), "WEBP", exif=exif(TURN), xmp=XMP),
        "plain.gif": encoded(picture(), "GIF", comment=SECRET),
        "turned.tif": encoded(picture(), "TIFF", exif=exif(TURN)),
    }


def check(content: bytes, name: str) -> Image.Image:
    """Finds no tag in a picture but the seal of a report's file; returns it."""
    assert SECRET not in content, name
    image = Image.open(io.BytesIO(content))
    image.load()
    assert not image.getexif(), name
    assert not {*image.info} & {"exif", "xmp", "photoshop", "XML:com.adobe.xmp", "Author"}, name
    comment = image.info.get("comment", b"")
    assert re.fullmatch(rb"(sparc_dist\.sha256: [0-9a-f]{64})?", comment), name
    return image


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    (folder / "photos").mkdir()
    for name, content in photos().items():
        assert SECRET in content, name
        (folder / "photos" / name).write_bytes(content)
    command = ["label", str(folder / "photos"), "--classes", "cat,dog", "--model", "sparc-tiny"]
    assert main([*command, "--out", str(folder / "run")]) == 0
    for kind in FORMATS:
        out = ["--out", str(folder / "run" / f"export-{kind}")]
        assert main(["export", str(folder / "run"), "--format", kind, *out]) == 0
    return folder / "run"


def test_no_file_of_a_run_has_a_tag_of_a_photo(run: Path) -> None:
    files = [path for path in run.rglob("*") if path.is_file()]
    for path in files:
        assert SECRET not in path.read_bytes(), path
    shown = [path for path in files if path.suffix in PICTURES - {".svg"}]
    small = [check(path.read_bytes(), path.name) for path in shown if "thumbnails" in path.parts]
    assert len(small) == len(photos())
    upright = picture().size
    turned = sum(name.startswith("turned") for name in photos())
    assert [image.size for image in small].count(upright[::-1]) == turned
    for path in shown:
        check(path.read_bytes(), path.name)


def test_the_viewer_sends_no_tag_of_a_photo(run: Path) -> None:
    ids = open_unit(str(run)).table("final", ["image_id"])["image_id"].to_pylist()
    with viewing(run) as client:
        (dataset, backbone), contents = client.server.site.keys[0], photos()
        for row, name in enumerate(ids):
            for kind in ("original", "thumb"):
                answer = client.get(f"/{kind}/{dataset}/{backbone}/0/{row}")
                assert answer.status == 200, name
                image = check(answer.body, name)
                turned = Path(name).name.startswith("turned")
                assert image.size == picture().size[:: -1 if turned else 1], name
                if kind == "original" and not turned and name.endswith(("jpg", "png")):
                    before = Image.open(io.BytesIO(contents[Path(name).name]))
                    assert np.array_equal(np.asarray(image), np.asarray(before)), name
                    assert image.info.get("icc_profile") == before.info.get("icc_profile")
    assert sorted(Path(name).name for name in ids) == sorted(photos())


@pytest.mark.parametrize(
    "name", [name for name in whole() if name.endswith(("jpg", "jpeg", "png"))]
)
def test_files_without_metadata_stay_as_they_are(name: str) -> None:
    content = whole()[name]
    bare = without_metadata(content)
    assert bare is not None
    if name != "mpo.jpg":  # of several pictures, the first is left
        assert bare == content
    before, after = (np.asarray(Image.open(io.BytesIO(part))) for part in (content, bare))
    assert np.array_equal(before, after)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_files_that_end_too_early_are_not_taken_apart(kind: str) -> None:
    content = encoded(picture(), kind)
    end = len(content) - (4 if kind == "PNG" else 0)  # nobody misses the last checksum
    assert not [length for length in range(end) if without_metadata(content[:length])]
    assert without_metadata(b"GIF89a") is None


def test_a_small_picture_inside_the_header_goes() -> None:
    tagged = with_segment(encoded(picture(), "JPEG"), 0xE0, b"JFIF\0\1\1\0\0\1\0\1\2\1" + SECRET)
    bare = without_metadata(tagged)
    assert bare is not None
    assert SECRET not in bare
