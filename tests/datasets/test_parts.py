"""The list of images in parts: the same rows, in files of bounded size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets import (
    images,
    images_table,
    list_images,
    open_source,
    write_images,
)
from sparc_dist.datasets.folder import Folder
from sparc_dist.datasets.growth import Growth, grow
from sparc_dist.datasets.images import SeenIds, stored_shards
from sparc_dist.errors import UserError
from sparc_dist.runs import DatasetLayout, layout, shards
from sparc_dist.runs.shards import images_sha256, read_images, shard_sizes
from tests.support.limits import largest_file

IDS = [f"{number:02d}.jpg" for number in range(23)]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetLayout:
    """Parts of three shards."""
    for module in (shards, images, layout):
        monkeypatch.setattr(module, "SEGMENT", 3)
    return DatasetLayout(str(tmp_path))


def listed(ids: list[str]) -> Iterator[pa.Table]:
    yield images_table(ids, ids, [None] * len(ids))


def ids_of(data: DatasetLayout) -> list[str]:
    return [name for rows in stored_shards(data) for name in rows["image_id"].to_pylist()]


def test_parts_are_read_as_one_list(data: DatasetLayout, tmp_path: Path) -> None:
    counts = write_images(listed(IDS), data, 2)
    assert counts == {"images": 23, "labelled": 0, "shards": 12}
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    assert names == {"images.parquet", *(f"images/0000{part}.parquet" for part in (1, 2, 3))}
    assert shard_sizes(data) == [2] * 11 + [1]
    assert ids_of(data) == IDS
    for shard in (0, 2, 3, 11):
        rows = read_images(data, shard, ["image_id"])["image_id"].to_pylist()
        assert rows == IDS[2 * shard : 2 * shard + 2]
    with pytest.raises(FileNotFoundError):
        read_images(data, 12, ["image_id"])


def test_a_part_of_an_interrupted_start_does_not_count(data: DatasetLayout) -> None:
    write_images(listed(IDS), data, 2)
    write_images(listed(IDS[:12]), data, 2)  # two whole parts; there were four
    assert ids_of(data) == IDS[:12]


@pytest.mark.parametrize("held", [4, 2**20])
def test_the_first_duplicate_is_named_in_bounded_memory(
    data: DatasetLayout, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(images, "HELD", held)
    with pytest.raises(UserError, match=r"Duplicate image_id: 07\.jpg"):
        write_images(listed([*IDS, "07.jpg", "02.jpg", "07.jpg"]), data, 2)
    write_images(listed(IDS), data, 2)


def test_ids_of_equal_hash_are_no_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.hash", len)
    with SeenIds() as seen:
        seen.add(["ab", "cd"])
        seen.check([["ab", "cd"]])
        with pytest.raises(UserError, match="Duplicate image_id: cd"):
            seen.check([["ab", "cd", "cd"]])


def test_a_full_temporary_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "HELD", 4)
    ids = [str(number) for number in range(9999)]
    full = pytest.raises(UserError, match="free some, or set TMPDIR")
    with full, largest_file(80), SeenIds() as seen:
        seen.add(ids)


def test_a_list_in_parts_grows(data: DatasetLayout, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in IDS[:17]:
        (photos / name).write_bytes(b"a photo")
    pets = DatasetConfig.model_validate(
        {"name": "pets", "kind": "folder", "images": str(photos), "classes": ["cat"]}
    )
    counts = write_images(open_source(pets).images(), data, 2)
    storage.write_json(data.marker, {**counts, "images_sha256": images_sha256(data, 9)})
    for name in IDS[17:]:
        (photos / name).write_bytes(b"a photo")
    (photos / IDS[8]).unlink()
    changes = grow(pets, data, [], Growth(2, drops=True, applies=False))
    assert (changes.new, changes.removed) == (6, 1)
    assert ids_of(data) == [*IDS[:8], *IDS[9:]]
    assert shard_sizes(data) == [2, 2, 2, 2, 1, 2, 2, 2, 1, 2, 2, 2]
    facts = storage.read_json(data.marker)
    assert (facts["images"], facts["shards"]) == (22, 12)
    assert facts["images_sha256"] == images_sha256(data, 12)


class Interrupted(Exception):
    """Stops a listing."""


class Counting:
    """A folder of the images IDS whose listing can be interrupted after some of them."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids
        self.listed: list[str] = []
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        return self._tables(self.ids)

    def images_after(self, uri: str) -> Iterator[pa.Table]:
        return self._tables([name for name in self.ids if name > uri])

    def _tables(self, ids: list[str]) -> Iterator[pa.Table]:
        for name in ids:
            if name == "stop":
                raise Interrupted
            self.listed.append(name)
            yield images_table([name], [name], [None])


@pytest.mark.parametrize("left", range(0, 23, 2))
def test_an_interrupted_list_is_resumed_behind_its_last_part(
    data: DatasetLayout, tmp_path: Path, left: int
) -> None:
    whole = DatasetLayout(str(tmp_path / "whole"))
    counts = write_images(listed(IDS), whole, 2)
    with pytest.raises(Interrupted):
        list_images(Counting([*IDS[:left], "stop"]), data, 2, "photos")
    source = Counting(IDS)
    assert list_images(source, data, 2, "photos") == counts
    assert images_sha256(data, 12) == images_sha256(whole, 12)
    # A part has three shards of two, and is stored once the shard behind it has been read.
    parts = max(left - 2, 0) // 6
    assert source.listed == IDS[6 * parts :]


@pytest.mark.parametrize("what", ["other source", "other shards", "lost part", "damaged part"])
def test_a_list_of_something_else_is_not_resumed(
    data: DatasetLayout, tmp_path: Path, what: str
) -> None:
    with pytest.raises(Interrupted):
        list_images(Counting([*IDS[:20], "stop"]), data, 2, "photos")
    if what == "lost part":
        Path(data.images_part(1)).unlink()
    elif what == "damaged part":
        Path(data.images_part(1)).write_bytes(b"damaged")
    made_from = "others" if what == "other source" else "photos"
    size = 3 if what == "other shards" else 2
    source = Counting(IDS)
    with pytest.raises(Interrupted):  # once more, now from the start
        list_images(Counting([*IDS[:9], "stop"]), data, size, made_from)
    list_images(source, data, size, made_from)
    assert ids_of(data) == IDS
    assert shard_sizes(data) == [size] * (23 // size) + [23 % size]


def test_a_folder_is_resumed(data: DatasetLayout, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    names = [*IDS[:9], "09.jpg.txt", "sub/10.jpg", "sub/11.jpg", "sub.jpg", "zz.jpg"]
    for name in names:
        storage.write_bytes(str(photos / name), b"a photo")
    found = sorted(name for name in names if name.endswith(".jpg"))
    folder = Folder(str(photos))
    for last, name in enumerate(found):
        rest = folder.images_after(str(photos / name))
        assert rest is not None
        ids = [each for table in rest for each in table["image_id"].to_pylist()]
        assert ids == found[last + 1 :]
    assert folder.notes[0] == "Skipped since the listing was resumed: 1 .txt."
    (photos / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"a photo")
    (last,) = (uri for table in folder.images() for uri in table["uri"].to_pylist() if "caf" in uri)
    assert folder.images_after(last) is None  # it would be listed twice
    assert Folder([str(photos), str(tmp_path)]).images_after(str(photos / "00.jpg")) is None
    assert Folder(str(photos / "*.jpg")).images_after(str(photos / "00.jpg")) is None
