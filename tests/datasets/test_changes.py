"""What became of the images of a data set since its run began."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets import class_names, image_changes, open_source, write_images
from sparc_dist.runs import RunLayout

EARLIER, STARTED, LATER = 1_700_000_000, 1_700_001_000, 1_700_002_000


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of five photos, older than the run."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(5):
        photo(folder / f"{number}.jpg", EARLIER)
    return folder


def photo(path: Path, written: int) -> None:
    path.write_bytes(b"a photo")
    os.utime(path, (written, written))


def dataset(photos: Path) -> DatasetConfig:
    raw = {"name": "pets", "kind": "folder", "images": str(photos), "classes": ["cat"]}
    return DatasetConfig.model_validate(raw)


def changes(photos: Path, tmp_path: Path) -> str:
    """Returns what changed; the first call prepares the run."""
    data = dataset(photos)
    layout = RunLayout(str(tmp_path / "run")).dataset("pets")
    if storage.read_if_exists(layout.marker) is None:
        source = open_source(data, class_names(data))
        storage.write_json(layout.marker, write_images(source.images(), layout, 2))
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(STARTED))
    found = image_changes(data, layout, started)
    assert found is not None
    return found


def test_nothing_changed(photos: Path, tmp_path: Path) -> None:
    assert changes(photos, tmp_path) == ""


def test_new_removed_and_changed_photos_are_counted(photos: Path, tmp_path: Path) -> None:
    changes(photos, tmp_path)
    for number in range(10, 20):
        photo(photos / f"{number}.jpg", EARLIER)
    (photos / "0.jpg").unlink()
    photo(photos / "1.jpg", LATER)
    told = "5 → 14: 10 new photos, 1 removed, 1 changed since the run"
    assert changes(photos, tmp_path) == told


def test_one_photo_in_place_of_another(photos: Path, tmp_path: Path) -> None:
    changes(photos, tmp_path)
    (photos / "0.jpg").rename(photos / "9.jpg")
    assert changes(photos, tmp_path) == "1 new photo, 1 removed since the run"


def test_before_the_run_has_a_list_nothing_is_compared(photos: Path, tmp_path: Path) -> None:
    data = dataset(photos)
    layout = RunLayout(str(tmp_path / "run")).dataset("pets")
    assert image_changes(data, layout, "2023-11-14T22:30:00Z") is None
