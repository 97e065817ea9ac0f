"""Reading a shard: which errors may pass, and images that are absent at once."""

from __future__ import annotations

import pickle
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from sparc_dist.images import reading
from sparc_dist.images.decoding import BadImage
from sparc_dist.images.reading import decode_shard, read_image


def rows(scenes: Path, folder: Path, count: int = 12) -> list[dict[str, str]]:
    """Copies scenes into a folder; returns them as a shard."""
    folder.mkdir()
    paths = sorted(scenes.iterdir())[:count]
    copies = [shutil.copy(path, folder / path.name) for path in paths]
    return [{"image_id": Path(path).name, "uri": str(path)} for path in copies]


def pauses(monkeypatch: pytest.MonkeyPatch, also: object = None) -> list[float]:
    """Returns the pauses that are made; each calls ``also``."""
    made: list[float] = []

    def sleep(seconds: float) -> None:
        made.append(seconds)
        if callable(also):
            also()

    monkeypatch.setattr(time, "sleep", sleep)
    return made


def test_the_store_is_asked_again_for_what_is_absent_at_once(
    tmp_path: Path, scenes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    shard = rows(scenes, home)
    Path(shard[4]["uri"]).write_bytes(b"no image")
    there = decode_shard(shard, [16, 32])
    assert [error["passing"] for error in there.errors] == [False]
    moved = [dict(row, uri=row["uri"].replace("home", "moved")) for row in shard[::2]]
    mixed = [moved[i // 2] if i % 2 == 0 else row for i, row in enumerate(shard)]
    made = pauses(monkeypatch, lambda: shutil.copytree(home, tmp_path / "moved"))
    found = decode_shard(mixed, [16, 32])
    assert made == [reading.PAUSE]
    assert found.ids == there.ids
    for size in (16, 32):
        np.testing.assert_array_equal(found.squares[size], there.squares[size])
    assert [error["image_id"] for error in found.errors] == [shard[4]["image_id"]]


def test_what_stays_absent_is_written_down(
    tmp_path: Path, scenes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = rows(scenes, tmp_path / "home")
    made = pauses(monkeypatch)
    Path(shard[3]["uri"]).unlink()
    few = decode_shard(shard, [16])
    assert (made, len(few.ids), few.errors[0]["passing"]) == ([], 11, True)  # a twelfth: no pause
    Path(shard[8]["uri"]).unlink()
    found = decode_shard(shard, [16])
    assert made == [reading.PAUSE]
    assert [error["image_id"] for error in found.errors] == [shard[i]["image_id"] for i in (3, 8)]
    places = [i for i in range(11) if i != 7]  # of those of the first time
    np.testing.assert_array_equal(found.squares[16], few.squares[16][places])


@pytest.mark.parametrize(
    ("name", "passing"),
    [("missing.jpg", True), ("missing/x.jpg", True), (".", True), ("a\0b", False)],
)
def test_which_errors_of_local_files_may_pass(tmp_path: Path, name: str, passing: bool) -> None:
    found = read_image(str(tmp_path / name))
    assert isinstance(found, BadImage)
    assert found.passing == passing
    assert pickle.loads(pickle.dumps(found)).passing == passing
