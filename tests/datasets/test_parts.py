"""The list of images in parts: the same rows, in files of bounded size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets import (
    duplicates,
    growth,
    images,
    images_table,
    open_source,
    write_images,
)
from sparc_dist.datasets.duplicates import SeenIds
from sparc_dist.datasets.growth import Growth, grow
from sparc_dist.datasets.images import stored_shards, write_parts
from sparc_dist.errors import UserError
from sparc_dist.runs import DatasetLayout, image_list, layout
from sparc_dist.runs.image_list import images_sha256, is_one_file, read_images, shard_sizes

IDS = [f"{number:02d}.jpg" for number in range(23)]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetLayout:
    """Parts of three shards."""
    for module in (image_list, images, layout, growth):
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


def test_one_file_of_an_older_version_is_read_and_stays_one(data: DatasetLayout) -> None:
    write_images(listed(IDS), data, 2)
    parts = images_sha256(data, 12)
    shards = list(stored_shards(data))
    for url in data.image_files(12):
        Path(url).unlink()
    assert images_sha256(data, 12) is None
    write_parts(shards, data, None)
    assert is_one_file(data)
    assert ids_of(data) == IDS
    assert read_images(data, 11, ["image_id"])["image_id"].to_pylist() == IDS[-1:]
    assert images_sha256(data, 12) not in (None, parts)


def test_a_part_of_an_interrupted_start_does_not_count(data: DatasetLayout) -> None:
    write_images(listed(IDS), data, 2)
    write_images(listed(IDS[:12]), data, 2)  # two whole parts; there were four
    assert ids_of(data) == IDS[:12]


@pytest.mark.parametrize("held", [4, 2**20])
def test_the_first_duplicate_is_named_in_bounded_memory(
    data: DatasetLayout, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(duplicates, "HELD", held)
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


@pytest.mark.parametrize("one_file", [False, True])
def test_a_list_in_parts_grows(data: DatasetLayout, tmp_path: Path, one_file: bool) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in IDS[:17]:
        (photos / name).write_bytes(b"a photo")
    pets = DatasetConfig.model_validate(
        {"name": "pets", "kind": "folder", "images": str(photos), "classes": ["cat"]}
    )
    counts = write_images(open_source(pets, ["cat"]).images(), data, 2)
    if one_file:
        shards = list(stored_shards(data))
        for url in data.image_files(9):
            Path(url).unlink()
        write_parts(shards, data, None)
    storage.write_json(data.marker, {**counts, "images_sha256": images_sha256(data, 9)})
    for name in IDS[17:]:
        (photos / name).write_bytes(b"a photo")
    (photos / IDS[8]).unlink()
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    changes = grow(pets, data, [], Growth(2, drops=True, applies=False, since=since))
    assert (changes.new, changes.removed) == (6, 1)
    assert ids_of(data) == [*IDS[:8], *IDS[9:]]
    assert shard_sizes(data) == [2, 2, 2, 2, 1, 2, 2, 2, 1, 2, 2, 2]
    assert is_one_file(data) == one_file
    facts = storage.read_json(data.marker)
    assert (facts["images"], facts["shards"]) == (22, 12)
    assert facts["images_sha256"] == images_sha256(data, 12)
