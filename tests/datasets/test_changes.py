"""What became of the images of a data set since its run began."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets import image_changes, open_source, write_images
from sparc_dist.datasets.images import SCHEMA, stored_shards
from sparc_dist.runs import DatasetLayout, RunLayout

EARLIER, WRITTEN = 1_700_000_000, 1_700_001_000


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of five photos."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(5):
        photo(folder / f"{number}.jpg")
    return folder


def photo(path: Path, content: bytes = b"a photo", written: int = WRITTEN) -> None:
    path.write_bytes(content)
    os.utime(path, (written, written))


def dataset(images: object, kind: str = "folder") -> DatasetConfig:
    raw = {"name": "pets", "kind": kind, "images": str(images), "classes": ["cat"]}
    return DatasetConfig.model_validate(raw)


def changes(data: DatasetConfig, tmp_path: Path) -> str:
    """Returns what changed; the first call prepares the run."""
    layout = layout_of(tmp_path)
    if storage.read_if_exists(layout.marker) is None:
        source = open_source(data)
        storage.write_json(layout.marker, write_images(source.images(), layout, 2))
    found = image_changes(data, layout)
    assert found is not None
    return found


def layout_of(tmp_path: Path) -> DatasetLayout:
    return RunLayout(str(tmp_path / "run")).dataset("pets")


def test_nothing_changed(photos: Path, tmp_path: Path) -> None:
    assert changes(dataset(photos), tmp_path) == ""
    assert changes(dataset(photos), tmp_path) == ""


def test_new_removed_and_changed_photos_are_counted(photos: Path, tmp_path: Path) -> None:
    changes(dataset(photos), tmp_path)
    for number in range(10, 20):
        photo(photos / f"{number}.jpg")
    (photos / "0.jpg").unlink()
    photo(photos / "1.jpg", b"another")
    photo(photos / "1.jpg", written=EARLIER)
    told = "5 → 14: 10 new photos, 1 removed, 1 changed since the run"
    assert changes(dataset(photos), tmp_path) == told


@pytest.mark.parametrize(
    ("content", "written"),
    [(b"another", EARLIER), (b"a larger photo", WRITTEN), (b"a photo", WRITTEN + 1)],
    ids=["older, of the same size", "of the same time, larger", "touched"],
)
@pytest.mark.parametrize("pattern", ["", "/*.jpg", "/1.jpg"])
def test_a_replaced_photo_has_changed(
    photos: Path, tmp_path: Path, content: bytes, written: int, pattern: str
) -> None:
    data = dataset(f"{photos}{pattern}")
    assert changes(data, tmp_path) == ""
    photo(photos / "1.jpg", content, written)
    assert changes(data, tmp_path) == "1 changed photo since the run"


def test_photos_of_a_table_and_of_tars(photos: Path, tmp_path: Path) -> None:
    table = tmp_path / "photos.csv"
    table.write_text("uri\n" + "".join(f"photos/{number}.jpg\n" for number in range(4)))
    data = dataset(table, "manifest")
    assert changes(data, tmp_path) == ""
    photo(photos / "1.jpg", b"another", EARLIER)
    assert changes(data, tmp_path) == "1 changed photo since the run"

    shutil.rmtree(tmp_path / "run")
    shutil.make_archive(str(tmp_path / "two"), "tar", photos)
    data = dataset(tmp_path / "two.tar", "webdataset")
    assert changes(data, tmp_path) == ""
    os.utime(tmp_path / "two.tar", (EARLIER, EARLIER))
    assert changes(data, tmp_path) == "5 changed photos since the run"


@pytest.mark.s3
@pytest.mark.usefixtures("on_s3")
@pytest.mark.parametrize("pattern", ["", "/*.jpg"])
def test_an_object_that_was_replaced(tmp_path: Path, pattern: str) -> None:
    place = f"s3://runs/etags{len(pattern)}"
    for number in range(3):
        storage.write_bytes(f"{place}/{number}.jpg", b"a photo")
    data = dataset(f"{place}{pattern}")
    assert changes(data, tmp_path) == ""
    storage.write_bytes(f"{place}/1.jpg", b"another")
    assert changes(data, tmp_path) == "1 changed photo since the run"


@pytest.mark.parametrize("stored", [True, False])
def test_an_unknown_version_says_nothing(photos: Path, tmp_path: Path, stored: bool) -> None:
    """It is unknown in the run, or of a photo that is gone while its table lists it."""
    table = tmp_path / "photos.csv"
    table.write_text("uri\n" + "".join(f"photos/{number}.jpg\n" for number in range(4)))
    data = dataset(table, "manifest")
    changes(data, tmp_path)
    if stored:
        unknown = pa.nulls(2, pa.string())
        column = SCHEMA.get_field_index("version")
        old = [rows.set_column(column, "version", unknown) for rows in stored_shards_of(tmp_path)]
        write_images(old, layout_of(tmp_path), 2)
        photo(photos / "1.jpg", b"another one", EARLIER)
    else:
        (photos / "1.jpg").unlink()
    assert changes(data, tmp_path) == ""
    table.write_text(table.read_text().replace("photos/2.jpg", "./2.jpg"))
    assert changes(data, tmp_path) == "1 new photo, 1 removed since the run"


def stored_shards_of(tmp_path: Path) -> list[pa.Table]:
    return list(stored_shards(layout_of(tmp_path)))


def test_one_photo_in_place_of_another(photos: Path, tmp_path: Path) -> None:
    changes(dataset(photos), tmp_path)
    (photos / "0.jpg").rename(photos / "9.jpg")
    assert changes(dataset(photos), tmp_path) == "1 new photo, 1 removed since the run"


def test_before_the_run_has_a_list_nothing_is_compared(photos: Path, tmp_path: Path) -> None:
    assert image_changes(dataset(photos), layout_of(tmp_path)) is None
