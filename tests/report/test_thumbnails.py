"""Thumbnails on Ray: made by its workers, in bounded pieces, with the limits of the map phase."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sparc_dist.config import ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.images.decoding import thumbnail
from sparc_dist.images.reading import decode_shard
from sparc_dist.pipeline import executor as executors
from sparc_dist.pipeline.executor import Needs, executor, kept, using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.report import pictures as module
from sparc_dist.report.pictures import GROUP, Thumbnails
from sparc_dist.runs import RunLayout


def bomb(width: int, height: int) -> bytes:
    """A small PNG that declares many pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    parts = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, str]:
    """By key, more pictures than one piece of work makes, and four that cannot be read."""
    good = tmp_path / "good.jpg"
    Image.new("RGB", (320, 200), "red").save(good)
    contents = {"bomb.png": bomb(20_000, 20_000), "text.jpg": b"no image", "empty.jpg": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    bad = [str(tmp_path / name) for name in (*contents, "gone.jpg")]
    return {f"{number:024x}": uri for number, uri in enumerate([*bad, *[str(good)] * GROUP])}


def test_workers_make_them_with_the_limits_of_the_map_phase(
    cluster: str, pictures: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparc_dist.pipeline.on_ray import OnRay

    submitted: list[int] = []

    class Counting(OnRay):
        def submit(self, work: Callable[..., Any], arguments: Sequence[Any], needs: Needs) -> Any:
            submitted.append(len(arguments[1]))
            return super().submit(work, arguments, needs)

    def nowhere(*_: object) -> bytes:
        raise AssertionError("decoded in the process of the driver")

    monkeypatch.setattr(module, "thumbnail", nowhere)
    layout = RunLayout(str(tmp_path / "run"))
    with using(Counting()):
        errors = Thumbnails(layout, "pets").make(pictures, 120)
    assert submitted == [GROUP, 4]
    rows = [{"image_id": key, "uri": uri} for key, uri in list(pictures.items())[:4]]
    told = {row["image_id"]: row["error"] for row in decode_shard(rows, [32]).errors}
    assert len(told) == 4
    assert "declares 20000 × 20000 pixels" in told[rows[0]["image_id"]]
    assert {key: error for key, error in errors.items() if error is not None} == told
    made = list((tmp_path / "run" / "report" / "thumbnails" / "pets").glob("*.jpg"))
    assert len(made) == GROUP


def test_few_images_are_decoded_at_once(
    pictures: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One may take a gigabyte."""
    now: list[str] = []
    most = []

    def counted(content: bytes, side: int) -> bytes:
        now.append("")
        most.append(len(now))
        try:
            return thumbnail(content, side)
        finally:
            now.pop()

    monkeypatch.setattr(module, "thumbnail", counted)
    with using(InProcess()):
        Thumbnails(RunLayout(str(tmp_path / "run")), "pets").make(pictures, 120)
    assert len(most) >= GROUP
    assert max(most) <= module.DECODERS


def test_one_that_cannot_be_written_is_an_error(pictures: dict[str, str], tmp_path: Path) -> None:
    """A report without it would be taken for complete."""
    layout = RunLayout(str(tmp_path / "run"))
    key = list(pictures)[-1]
    Path(layout.thumbnail("pets", key)).mkdir(parents=True)
    with using(InProcess()), pytest.raises(UserError, match=key):
        Thumbnails(layout, "pets").make(pictures, 120)


def test_a_run_and_its_report_share_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ray that a run starts is still there when its thumbnails are made."""
    monkeypatch.setattr(executors, "_current", None)
    resources = ResourcesConfig()
    with kept():
        with executor(resources, small=True) as first:
            pass
        with kept(), executor(resources) as second:
            assert second is first
        assert executors.current() is first
    with pytest.raises(RuntimeError):
        executors.current()
    with executor(resources, small=True) as third:
        assert third is not first
    with pytest.raises(RuntimeError):
        executors.current()
