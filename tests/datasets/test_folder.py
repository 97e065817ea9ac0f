"""Images by their place: folders as they lie on people's disks, single images, patterns."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from sparc_dist.config import DatasetConfig, parse
from sparc_dist.datasets import folder, open_source
from sparc_dist.datasets.folder import Folder
from sparc_dist.errors import UserError
from sparc_dist.runs import RunLayout, claim


def listed(*places: Path | str) -> tuple[list[str], list[str]]:
    """Returns the ids of the images, and the notes."""
    source = Folder([str(place) for place in places])
    ids = [name for table in source.images() for name in table["image_id"].to_pylist()]
    return ids, source.notes


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def test_hidden_and_other_files_are_skipped_and_counted(tmp_path: Path) -> None:
    write(tmp_path, "b.AVIF", "sub/a.jpg", "._b.jpg", ".git/x.png")
    write(tmp_path, "n.txt", "v.mp4", "w.mp4", "x.mp4", "Makefile")
    ids, notes = listed(tmp_path)
    assert ids == ["b.AVIF", "sub/a.jpg"]
    assert notes == ["Skipped: 3 .mp4, 2 hidden, 1 without a suffix, 1 .txt."]


def test_heic_without_its_package_is_counted_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "SUFFIXES", (".jpg",))
    write(tmp_path, "a.jpg", "b.HEIC")
    ids, notes = listed(tmp_path)
    assert ids == ["a.jpg"]
    assert notes == ["Skipped: 1 .heic (install pillow-heif to read them)."]
    with pytest.raises(UserError, match=r"contains no images \(skipped: 1 .heic \(install"):
        listed(tmp_path / "b.HEIC")


def test_images_in_an_archive_are_listed_among_other_places(tmp_path: Path) -> None:
    write(tmp_path, "photos/a.jpg", "b.jpg")
    with ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.write(tmp_path / "b.jpg", "c.jpg")
        archive.write(tmp_path / "b.jpg", "notes.txt")
    inside = [f"zip://{name}::{tmp_path}/more.zip" for name in ("c.jpg", "notes.txt")]
    ids, notes = listed(tmp_path / "photos", *inside)
    assert len(ids) == 2
    assert ids[0].endswith("photos/a.jpg")
    assert ids[1] == inside[0]
    assert notes == ["Skipped: 1 .txt."]


def test_the_files_of_a_run_are_not_listed(tmp_path: Path) -> None:
    images = {"name": "pets", "kind": "folder", "images": str(tmp_path), "classes": ["cat"]}
    raw = {"datasets": [images], "backbones": [{"name": "tiny", "model": "sparc-tiny"}]}
    for out in (tmp_path / "out", tmp_path):  # below the folder, and the folder itself
        claim(RunLayout(str(out)), parse({**raw, "output": str(out)}, "test"))
        write(out, "report/figures/a.png", "pets/b.png", "experiments/main.png")
    write(tmp_path, "a.jpg", "out/mine.jpg", "other/c.jpg")
    (tmp_path / "other" / "run.json").write_text(json.dumps({"speed": 3}))  # not ours
    assert listed(tmp_path)[0] == ["a.jpg", "other/c.jpg", "out/mine.jpg"]


def test_several_places_have_ids_from_what_they_have_in_common(tmp_path: Path) -> None:
    write(tmp_path, "x/a.jpg", "x/b.jpg", "y/a.jpg", "y/z/c.png", "y/n.txt")
    assert listed(tmp_path / "x/a.jpg", tmp_path / "x/b.jpg")[0] == ["a.jpg", "b.jpg"]
    assert listed(tmp_path / "x/a.jpg", tmp_path / "y")[0] == ["x/a.jpg", "y/a.jpg", "y/z/c.png"]
    ids, notes = listed(tmp_path / "x/a.jpg", tmp_path / "y/n.txt", tmp_path / "x/a.jpg")
    assert (ids, notes) == (["x/a.jpg"], ["Skipped: 1 .txt."])


def test_patterns(tmp_path: Path) -> None:
    write(tmp_path, "x/a.jpg", "x/b.jpg", "x/.c.jpg", "x/n.txt", "y/a.jpg", "odd [1].jpg")
    assert listed(f"{tmp_path}/x/*")[0] == ["a.jpg", "b.jpg"]
    assert listed(f"{tmp_path}/?/a.jpg")[0] == ["x/a.jpg", "y/a.jpg"]
    assert listed(f"{tmp_path}/**/a.jpg")[0] == ["x/a.jpg", "y/a.jpg"]
    assert listed(f"file://{tmp_path}/x/*")[0] == ["a.jpg", "b.jpg"]
    assert listed(tmp_path / "odd [1].jpg")[0] == ["odd [1].jpg"]
    with pytest.raises(UserError, match="No file matches"):
        listed(f"{tmp_path}/*.bmp")


def test_a_config_may_list_places_of_a_folder_only(tmp_path: Path) -> None:
    write(tmp_path, "a.jpg", "b.jpg")
    raw = {"name": "p", "classes": ["cat"], "images": [f"{tmp_path}/a.jpg", f"{tmp_path}/b.jpg"]}
    config = DatasetConfig.model_validate({**raw, "kind": "folder"})
    assert sum(map(len, open_source(config).images())) == 2
    with pytest.raises(ValueError, match="a list only with kind: folder"):
        DatasetConfig.model_validate({**raw, "kind": "manifest"})
    with pytest.raises(ValueError, match="names no image; name at least one place"):
        DatasetConfig.model_validate({**raw, "kind": "folder", "images": []})
