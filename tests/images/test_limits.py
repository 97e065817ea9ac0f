"""Hostile images: each costs little, fails alone, and says why; good ones keep their speed."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparc_dist.config import MAX_IMAGE_BYTES
from sparc_dist.images import apart, decoding
from sparc_dist.images.decoding import BadImage, decode, kind_of, thumbnail
from sparc_dist.images.formats import scans as scans_of
from sparc_dist.images.formats import webp_size
from sparc_dist.images.reading import decode_shard, read_image
from tests.support.bomb import BOMBS, blank, crumbs, hostile_files, scans
from tests.support.pictures import encoded, picture, whole
from tests.support.web import web_server

REASONS = ("declares", "takes more", "has more than", "could not create decoder")


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    return {name: make() for name, make in BOMBS.items()}


def test_every_bomb_is_refused_with_little_time_and_memory(
    bombs: dict[str, bytes], tmp_path: Path
) -> None:
    for name, content in bombs.items():
        (tmp_path / name).write_bytes(content)
    program = (
        "import resource, sys, time\n"
        "from pathlib import Path\n"
        "from sparc_dist.images import apart\n"
        "from sparc_dist.images.decoding import BadImage, decode, thumbnail\n"
        "usage = lambda who: resource.getrusage(who)\n"
        "own = usage(resource.RUSAGE_SELF)\n"
        "for path in map(Path, sys.argv[1:]):\n"
        "    for work in (lambda c: decode(c, 224), lambda c: thumbnail(c, 224)):\n"
        "        try:\n"
        "            work(path.read_bytes())\n"
        "        except BadImage as error:\n"
        "            print(path.name, error)\n"
        "apart.close()\n"
        "now, helper = usage(resource.RUSAGE_SELF), usage(resource.RUSAGE_CHILDREN)\n"
        "seconds = now.ru_utime - own.ru_utime + helper.ru_utime + helper.ru_stime\n"
        "print(seconds, now.ru_maxrss - own.ru_maxrss, helper.ru_maxrss)\n"
    )
    command = [sys.executable, "-c", program, *sorted(map(str, tmp_path.iterdir()))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 2 * len(bombs) + 1
    assert all(any(reason in line for reason in REASONS) for line in lines[:-1]), lines
    seconds, memory, helper = map(float, lines[-1].split())
    assert seconds < 2 * len(bombs)  # of CPU, with the starts of helpers
    assert memory < 64 * 1024  # KiB
    assert helper < 350 * 1024  # of which 50 MB for Python itself


def test_a_helper_decodes_as_this_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {name: decode(content, 32) for name, content in whole().items()}
    monkeypatch.setattr(decoding, "HERE", 0)
    for name, content in whole().items():
        np.testing.assert_array_equal(decode(content, 32), here[name])
        assert Image.open(io.BytesIO(thumbnail(content, 16))).format == "JPEG"


def test_helpers_serve_many_threads_and_outlive_a_bomb() -> None:
    good, bad = encoded(picture(), "TIFF"), blank("TIFF", "L")
    expected = decode(good, 32)

    def work(number: int) -> bool:
        if number % 5 == 0:
            with pytest.raises(BadImage):
                decode(bad, 32)
        return bool((decode(good, 32) == expected).all())

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(20)))


def test_what_takes_too_long_is_ended_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "HERE", 0)
    monkeypatch.setattr(decoding, "MAX_SCANS", 10**6)
    content = scans(90, 8000)
    start = time.process_time()
    with pytest.raises(BadImage, match=r"takes more than 0\.7 seconds"):
        decode(content, 32)
    assert time.process_time() - start < 0.5  # this process has only waited


def test_a_helper_that_dies_or_lies_fails_its_image_only(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(picture(), "TIFF")
    apart.close()
    decode(content, 8)
    (helper,) = apart._idle
    helper.process.kill()
    helper.process.wait()
    assert decode(content, 8).shape == (8, 8, 3)  # a new one does it
    with monkeypatch.context() as patch:
        patch.setattr(apart._Helper, "ask", lambda self, *of: self._reason(0))
        with pytest.raises(BadImage, match="crashed"):
            decode(content, 8)
    monkeypatch.setattr(apart, "run", lambda *of: [b"short"])
    with pytest.raises(BadImage, match="cannot be decoded"):
        decode(content, 8)


def test_a_lack_of_memory_is_an_error_of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*of: object) -> None:
        raise MemoryError

    monkeypatch.setattr(decoding, "_squares", full)
    with pytest.raises(BadImage, match="takes more memory"):
        decode(encoded(picture(), "JPEG"), 32)


def test_scans_are_counted_as_a_decoder_sees_them() -> None:
    good = whole()
    assert scans_of(good["baseline.jpg"], 100) == scans_of(good["mpo.jpg"], 100) == 1
    assert 6 <= scans_of(good["progressive.jpg"], 100) <= 20
    assert scans_of(good["baseline.jpg"][:-2] + good["progressive.jpg"], 100) == 1
    assert scans_of(scans(50, 16), 100) == 50
    assert scans_of(scans(500, 16), 100) == 101
    assert scans_of(b"\xff\xd8\xff\xc2", 100) == scans_of(b"", 100) == 0


def test_the_size_of_a_webp_is_read_from_its_header() -> None:
    good = whole()
    for name in ("lossy.webp", "lossless.webp", "animated.webp"):
        assert webp_size(good[name]) == (48, 40)
        assert kind_of(good[name]) == "WEBP"
    assert webp_size(b"RIFF\0\0\0\0WAVEfmt ") is None
    with pytest.raises(BadImage):
        kind_of(BOMBS["colour.webp"]())


def test_an_animation_costs_as_much_as_its_first_frame() -> None:
    frames = [Image.new("P", (64, 64), number % 7) for number in range(3000)]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    start = time.process_time()
    decode(content, 64)
    assert time.process_time() - start < 0.2


def test_large_photos_are_decoded() -> None:
    large = Image.effect_noise((4200, 3000), 60).convert("RGB")
    small = np.asarray(large.resize((16, 16), Image.Resampling.BICUBIC)).astype(int)
    for kind, options in (("JPEG", {"progressive": True}), ("PNG", {"compress_level": 1})):
        found = decode(encoded(large, kind, **options), 16).astype(int)
        assert np.abs(found - small).mean() < 3


def test_hostile_files_fail_alone(tmp_path: Path) -> None:
    paths = hostile_files(tmp_path)
    picture().save(tmp_path / "good.jpg")
    uris = [*map(str, paths), str(tmp_path / "good.jpg"), f"zip://x.jpg::{tmp_path}/pipe.jpg"]
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    found = decode_shard([{"image_id": uri, "uri": uri} for uri in uris], [16])
    assert found.ids == [str(tmp_path / "good.jpg")]
    reasons = {os.path.basename(row["image_id"]): row["error"] for row in found.errors}
    assert reasons["sparse.jpg"] == f"has more than {MAX_IMAGE_BYTES:,} bytes"
    for name in ("pipe.jpg", "zero.jpg", "socket.jpg"):
        assert reasons[name] == "is a pipe, device or socket, not a regular file"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024
    assert time.monotonic() - start < 5


def test_an_archive_is_never_inflated_beyond_the_limit(tmp_path: Path) -> None:
    archive = tmp_path / "bomb.zip"
    good = encoded(picture(), "JPEG")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("good.jpg", good)
        with file.open("bomb.jpg", "w") as member:
            for _ in range(300):
                member.write(bytes(2**20))
    assert read_image(f"zip://good.jpg::{archive}") == good
    start = time.process_time()
    assert "more than" in str(read_image(f"zip://bomb.jpg::{archive}"))
    assert time.process_time() - start < 0.5
    archive.write_bytes(b"PK\3\4 no archive")
    assert isinstance(read_image(f"zip://other.jpg::{archive}"), BadImage)


def test_a_web_server_may_lie_about_a_length() -> None:
    with web_server() as web:
        web.files["/large.jpg"] = bytes(3000)
        url = f"{web.place}/large.jpg"
        assert read_image(url, 3000) == bytes(3000)
        assert str(read_image(url, 2999)) == "has more than 2,999 bytes"
        assert str(read_image(f"{url}#bytes=0+2999", 2000)) == "has more than 2,000 bytes"
        assert read_image(f"{url}#bytes=5+10", 3000) == bytes(10)


@pytest.mark.s3
@pytest.mark.usefixtures("on_s3")
def test_an_object_is_read_up_to_the_limit() -> None:
    from sparc_dist import storage

    storage.write_bytes("s3://runs/limits/large.jpg", bytes(3000))
    storage.write_bytes("s3://runs/limits/empty.jpg", b"")
    assert read_image("s3://runs/limits/large.jpg", 3000) == bytes(3000)
    assert read_image("s3://runs/limits/empty.jpg", 3000) == b""
    assert str(read_image("s3://runs/limits/large.jpg", 2999)) == "has more than 2,999 bytes"


def test_tiny_parts_are_not_read_without_end() -> None:
    with pytest.raises(BadImage, match="has more than 50,000 parts"):
        decode(crumbs("PNG", 30_000), 16)
    assert decode(crumbs("PNG", 1000), 16).shape == (16, 16, 3)


@pytest.mark.parametrize("part", [b"\xff", b"\xff\0", b"\xff\xd9", b"\xff\xd0", b"\xff\xed\0\2"])
def test_nothing_before_the_first_scan_of_a_jpeg_is_read_without_end(part: bytes) -> None:
    good = encoded(Image.new("RGB", (8, 8)), "JPEG")
    with pytest.raises(BadImage, match="has more than 50,000 parts"):
        decode(good[:2] + part * 60_000 + good[2:], 16)
