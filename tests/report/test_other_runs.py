"""Another run as a side of a comparison: the images that both have, or a note in words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.report import read_results
from sparc_dist.report.exhibit import UnitExhibit
from sparc_dist.report.exhibits import build_exhibits
from sparc_dist.report.other_runs import OtherRun, read_other
from sparc_dist.report.scripts import compare_script
from sparc_dist.runs import RunLayout
from sparc_dist.runs.refit import Rule, refit
from sparc_dist.runs.run import open_unit
from tests.support.golden_unit import CLASSES, IDS, SHARD, write_unit
from tests.support.s3 import FaultProxy, S3Server
from tests.support.sealed import edit_json, flip_bit, write_list

KEY = ("voc", "tiny")


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[UnitExhibit]]:
    """A run and what its report shows: 120 images, to be quick."""
    root = tmp_path_factory.mktemp("now")
    write_unit(root, "duo")
    with using(InProcess()), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparc_dist.report.exhibit.MOST_IMAGES", 120)
        patch.setattr("sparc_dist.report.exhibit.FEWEST_IMAGES", 120)
        return str(root), list(build_exhibits(read_results(str(root)), 600).values())


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another run of the same images, with a high threshold."""
    root = tmp_path_factory.mktemp("stored") / "before"
    write_unit(root, "duo")
    refit(open_unit(str(root)), Rule(threshold=0.97))
    return root


@pytest.fixture
def before(stored: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    shutil.copytree(stored, tmp_path / "before", ignore=shutil.ignore_patterns("scores", "reduce"))
    return tmp_path / "before"


def other(place: Path | str, now: tuple[str, list[UnitExhibit]]) -> OtherRun:
    return read_other(read_results(str(place)), now[1], 600)


def test_images_of_another_run_have_its_decisions(
    before: Path, now: tuple[str, list[UnitExhibit]]
) -> None:
    found = other(before, now)
    assert list(found.notes()) == []
    theirs, (exhibit,) = found.units[KEY], now[1]
    assert theirs.classes == CLASSES
    assert set(theirs.images) == {image.image_id for image in exhibit.images.values()}
    table = open_unit(str(before)).table("labels", ["image_id", "class", "present"])
    present = {(row["image_id"], row["class"]): row["present"] for row in table.to_pylist()}
    for image_id, verdicts in theirs.images.items():
        listed = {CLASSES[place]: here for place, _, here in verdicts["duo"]}
        assert all(listed.get(name, False) == present[image_id, name] for name in CLASSES)
    # The page has them as a side, with the thumbnails and without the place of the run.
    script = compare_script(read_results(now[0]), now[1], [found]) or ""
    data = json.loads(script.removeprefix('window["compare"] = ').rstrip(";\n"))
    sides = {side["name"]: side["unit"] for side in data["sides"]}
    assert sides["before: voc × tiny: ZSCLIP"] is None
    assert sides["before: voc × tiny: SPARC"] == sides["before: voc × tiny: duo"] == 1
    assert len(data["units"][1]["images"]) == len(exhibit.images)
    assert str(before.parent) not in script


def test_only_shards_with_shown_images_are_read(
    before: Path, now: tuple[str, list[UnitExhibit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparc_dist.report.other_runs.MOST_IMAGES", 5)
    wanted = other(before, now).units[KEY].images
    needed = {IDS.index(name) // SHARD for name in wanted}
    assert len(wanted) == 5
    for path in (before / "voc" / "tiny" / "final").iterdir():
        if int(path.stem) not in needed:
            path.unlink()
    assert other(before, now).units[KEY].images.keys() == wanted.keys()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("metrics.json", "is not finished"),
        ("final/00003.parquet", "has missing or damaged files"),
        ("labeler.safetensors", "has missing or damaged files"),
        ("../images.parquet", "has missing or damaged files"),
    ],
)
def test_what_another_run_lacks_becomes_a_note(
    before: Path, now: tuple[str, list[UnitExhibit]], damage: str, told: str
) -> None:
    (before / "voc" / "tiny" / damage).unlink()
    (note,) = other(before, now).notes()
    assert note.startswith(f"before: voc × tiny {told}")
    assert str(before) not in note


def test_damaged_files_become_a_note(before: Path, now: tuple[str, list[UnitExhibit]]) -> None:
    flip_bit(before / "voc" / "tiny" / "final" / "00003.parquet")
    (note,) = other(before, now).notes()
    assert "damaged" in note


def test_other_images_and_other_data_sets_become_a_note(
    before: Path, now: tuple[str, list[UnitExhibit]]
) -> None:
    images = RunLayout(str(before)).dataset("voc").images
    table = pq.read_table(images)
    renamed = [f"new-{name}" for name in table["image_id"].to_pylist()]
    write_list(images, [table.drop_columns("image_id").append_column("image_id", [renamed])])
    (note,) = other(before, now).notes()
    assert note == "before: voc × tiny has none of the images that this report shows."
    edit_json(
        before / "run.json", lambda record: record["config"]["datasets"][0].update(name="pets")
    )
    assert list(other(before, now).notes()) == ["before has no data set that this report has."]


def test_another_run_may_be_on_s3(
    before: Path, now: tuple[str, list[UnitExhibit]], s3: S3Server, on_s3: FaultProxy
) -> None:
    url = "s3://runs/compared/before"
    for path in before.rglob("*"):
        if path.is_file() and not path.parent.name.startswith("labels"):
            storage.write_bytes(f"{url}/{path.relative_to(before)}", path.read_bytes())
    assert other(url, now).units[KEY].images == other(before, now).units[KEY].images
