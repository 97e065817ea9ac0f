"""Tar files in the WebDataset layout, written by tarfile."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from sparc_dist import storage
from sparc_dist.datasets.webdataset import LARGEST, WebDataset
from sparc_dist.errors import UserError

CLASSES = ("cat", "dog", "sofa")


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_a_uri_is_the_byte_range_of_an_image(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "00000.tar",
        {
            "one.jpg": b"first image",
            "one.json": b'{"labels": ["cat", "sofa"], "caption": "x"}',
            "two.txt": b"a caption",
            "two.png": b"second",
            "sub/two.jpg": b"third",
            "sub/two.cls": b"1",
            "four.json": b'{"labels": ["dog"]}',
            "five.jpg": b"",
            "five.json": b"no json",
        },
    )
    write_tar(tmp_path / "00001.tar", {"a long name " * 12 + ".jpg": b"last"})
    (tmp_path / "notes.txt").write_text("no tar")
    source = WebDataset(str(tmp_path), CLASSES)
    rows = [row for table in source.images() for row in table.to_pylist()]
    assert [(row["image_id"], row["labels"]) for row in rows[:4]] == [
        ("00000.tar/one.jpg", [0, 2]),
        ("00000.tar/two.png", None),
        ("00000.tar/sub/two.jpg", [1]),
        ("00000.tar/five.jpg", None),
    ]
    contents = [storage.read_bytes(row["uri"]) for row in rows]
    assert contents == [b"first image", b"second", b"third", b"", b"last"]
    assert source.notes == ["1 label files could not be read."]


def test_two_images_of_one_key_and_labels_as_text(tmp_path: Path) -> None:
    members = {"a.jpg": b"photo", "a.seg.png": b"mask", "a.json": b'{"labels": "cat; sofa"}'}
    write_tar(tmp_path / "x.tar", {**members, "b.jpg": b"b", "b.cls": b"dog"})
    source = WebDataset(str(tmp_path), CLASSES)
    (table,) = source.images()
    assert [(row["image_id"], row["labels"]) for row in table.to_pylist()] == [
        ("x.tar/a.jpg", [0, 2]),
        ("x.tar/b.jpg", [1]),
    ]
    assert source.notes == ["1 images with a duplicate key were left out."]


def test_names_that_are_not_utf8_and_label_files_that_are_too_large(tmp_path: Path) -> None:
    members = {"\udcff.jpg": b"photo", "\udcff.cls": b"dog", "\udcff.json": bytes(LARGEST + 1)}
    write_tar(tmp_path / "x.tar", members)
    source = WebDataset(str(tmp_path / "x.tar"), CLASSES)
    (table,) = source.images()
    (row,) = table.to_pylist()
    assert (row["image_id"], row["labels"]) == (r"x.tar/\udcff.jpg", [1])
    assert storage.read_bytes(row["uri"]) == b"photo"
    assert source.notes == ["1 label files could not be read."]


def test_one_tar_by_name(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", {"one.jpg": b"1"})
    (table,) = WebDataset(str(tmp_path / "x.tar"), CLASSES).images()
    assert table["image_id"].to_pylist() == ["x.tar/one.jpg"]


def test_files_that_are_not_a_tar(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"rubbish " * 200)
    with pytest.raises(UserError, match="not a valid tar file"):
        list(WebDataset(str(tmp_path), CLASSES).images())
    with pytest.raises(UserError, match=r"no \.tar file"):
        list(WebDataset(str(tmp_path / "none"), CLASSES).images())
    with pytest.raises(UserError, match="There is no file"):
        list(WebDataset(str(tmp_path / "none.tar"), CLASSES).images())


def test_a_truncated_tar_yields_its_complete_images_and_a_note(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    write_tar(path, {"one.jpg": b"1" * 2000, "two.jpg": b"2" * 2000})
    whole = WebDataset(str(path), CLASSES)
    assert sum(len(table) for table in whole.images()) == 2
    assert whole.notes == []
    path.write_bytes(path.read_bytes()[:3000])
    source = WebDataset(str(path), CLASSES)
    (table,) = source.images()
    assert table["image_id"].to_pylist() == ["x.tar/one.jpg"]
    assert source.notes == ["x.tar is truncated."]
