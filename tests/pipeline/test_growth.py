"""Runs that grow: new images become new shards, and only they are read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.cli import main
from sparc_dist.config import load_config
from sparc_dist.datasets import growth
from sparc_dist.runner import run
from sparc_dist.runs.labeler_file import read_facts
from sparc_dist.runs.storing import matrix

WriteConfig = Callable[..., str]
CLASSES = "cat,dog,sofa,car,pizza,clock,bird,boat,tree,chair"


@pytest.fixture
def photos(tmp_path: Path, scenes: Path) -> Path:
    """A folder of the first 40 scenes; the other 20 are new later."""
    folder = tmp_path / "photos"
    folder.mkdir()
    add(folder, scenes, range(40))
    return folder


def add(folder: Path, scenes: Path, numbers: range) -> None:
    for number, path in enumerate(sorted(scenes.iterdir())):
        if number in numbers:
            shutil.copy(path, folder)


def blind(folder: Path, names: set[str]) -> None:
    """Makes photos unreadable, of the same size and time: who reads them again is found out."""
    for name in names:
        stat = (folder / name).stat()
        (folder / name).write_bytes(b"x" * stat.st_size)
        os.utime(folder / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def label(folder: Path, out: Path, *options: str) -> int:
    command = ["label", str(folder), "--classes", CLASSES, "--model", "sparc-tiny"]
    return main([*command, "--out", str(out), *options])


def rows(out: Path) -> dict[str, list[str]]:
    """The lines of labels.csv by image."""
    found: dict[str, list[str]] = {}
    for line in (out / "labels.csv").read_text().splitlines()[1:]:
        found.setdefault(line.partition(",")[0], []).append(line)
    return found


def final(unit: Path) -> dict[str, list[float]]:
    table = pq.read_table(unit / "final")
    return dict(zip(table["image_id"].to_pylist(), table["duo"].to_pylist(), strict=True))


def test_a_photo_folder_that_grows(
    tmp_path: Path, photos: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert label(photos, out) == 0
    first, unit = rows(out), out / "images" / "model"
    fitted = (unit / "labeler.safetensors").read_bytes()
    old = {path.name for path in photos.iterdir()}
    removed = set(sorted(old)[:3])
    blind(photos, old)
    for name in removed:
        (photos / name).unlink()
    add(photos, scenes, range(40, 60))
    capsys.readouterr()

    assert label(photos, out) == 0
    told = capsys.readouterr()
    assert "40 → 57: 20 new photos, 3 removed since the run; new ones are labelled" in told.err
    assert "The classes of all 57 images" in told.out
    second = rows(out)
    assert set(second) == {path.name for path in photos.iterdir()}
    assert all(second[name] == first[name] for name in old - removed)
    assert (unit / "labeler.safetensors").read_bytes() == fitted
    metrics = json.loads((unit / "metrics.json").read_text())
    assert (metrics["images"], metrics["errors"]["images"], metrics["fitted_on"]) == (57, 0, 40)

    # Nothing has changed: nothing is done.
    assert label(photos, out) == 0
    assert "already finished" in capsys.readouterr().err
    assert rows(out) == second

    # A new fit reads no photo again, not even those that the labeler has labelled.
    blind(photos, {path.name for path in photos.iterdir()})
    assert label(photos, out, "--refit") == 0
    assert set(rows(out)) == set(second)
    assert rows(out) != second
    assert read_facts(str(unit / "labeler.safetensors"))["images"] == 57


def test_a_refit_is_a_fresh_fit_but_for_rounding(
    tmp_path: Path, photos: Path, scenes: Path
) -> None:
    out = tmp_path / "out"
    assert label(photos, out) == 0
    for path in sorted(photos.iterdir())[:3]:
        path.unlink()
    add(photos, scenes, range(40, 60))
    assert label(photos, out, "--refit") == 0
    assert label(photos, tmp_path / "fresh") == 0
    ours, fresh = (final(folder / "images" / "model") for folder in (out, tmp_path / "fresh"))
    assert set(ours) == set(fresh)
    for name, scores in fresh.items():
        np.testing.assert_allclose(ours[name], scores, atol=2e-4)


@pytest.mark.parametrize("seconds", [100, -100, 0])
def test_a_changed_photo_is_read_again(tmp_path: Path, photos: Path, seconds: int) -> None:
    """A newer one, an older one, and one of the same time and another size; and no others."""
    out = tmp_path / "out"
    assert label(photos, out) == 0
    first = rows(out)
    name, other = sorted(path.name for path in photos.iterdir())[5:7]
    time = (photos / name).stat().st_mtime_ns + seconds * 10**9
    shutil.copyfile(photos / other, photos / name)
    os.utime(photos / name, ns=(time, time))
    blind(photos, {*first} - {name})
    assert label(photos, out) == 0
    second = rows(out)
    assert set(second) == set(first)
    assert second[name] != first[name]
    assert all(second[each] == first[each] for each in {*first} - {name})
    for mine, others in zip(second[name], second[other], strict=True):
        assert mine.split(",")[1] == others.split(",")[1]
        assert float(mine.split(",")[4]) == pytest.approx(float(others.split(",")[4]), abs=1e-3)


def test_an_interrupted_growth_is_completed(
    tmp_path: Path, photos: Path, scenes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    assert label(photos, out) == 0
    shutil.copytree(out, other)
    sorted(photos.iterdir())[0].unlink()
    add(photos, scenes, range(40, 60))
    assert label(photos, other) == 0
    counts = growth._counts

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    # The list of images is written, the marker that counts it is not.
    monkeypatch.setattr(growth, "_counts", interrupted)
    assert label(photos, out) == 130
    monkeypatch.setattr(growth, "_counts", counts)
    assert label(photos, out) == 0
    assert rows(out) == rows(other)  # as if it had not been interrupted


@pytest.mark.parametrize("lost", ["metrics.json", "decisions.json", "labels/00000.parquet"])
def test_lost_results_are_made_again_before_new_photos_are_labelled(
    tmp_path: Path, photos: Path, scenes: Path, lost: str
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    assert label(photos, out) == 0
    shutil.copytree(out, other)
    add(photos, scenes, range(40, 60))
    assert label(photos, other) == 0
    (out / "images" / "model" / lost).unlink()
    assert label(photos, out) == 0
    assert rows(out) == rows(other)


def test_a_lost_list_of_images_is_not_replaced(
    tmp_path: Path, photos: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert label(photos, out) == 0
    before = rows(out)
    (out / "images" / "dataset.json").unlink()
    add(photos, scenes, range(40, 60))
    assert label(photos, out) == 2
    assert "dataset.json is missing, although run.json calls" in capsys.readouterr().err
    assert rows(out) == before


def test_a_shard_without_its_marker_is_not_labelled_again_as_if_it_were_new(
    tmp_path: Path, photos: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert label(photos, out) == 0
    before = rows(out)
    (out / "images" / "model" / "done" / "00000.json").unlink()
    min(photos.iterdir()).unlink()
    add(photos, scenes, range(40, 60))
    assert label(photos, out) == 1
    assert "done/00000.json is missing, although its photos have labels" in capsys.readouterr().out
    assert rows(out) == before
    assert main(["verify", str(out)]) == 1
    assert label(photos, out) == 0
    assert rows(out).keys() == {path.name for path in photos.iterdir()}


def test_a_removed_photo_is_not_left_in_scores_that_are_out_of_reach(
    tmp_path: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert label(photos, out) == 0
    scores = out / "images" / "model" / "scores" / "00000.parquet"
    hidden = scores.rename(tmp_path / "hidden")
    min(photos.iterdir()).unlink()
    assert label(photos, out) == 1
    assert "scores/00000.parquet" in capsys.readouterr().err
    hidden.rename(scores)
    assert label(photos, out) == 0
    names = {path.name for path in photos.iterdir()}
    assert {*pq.read_table(scores)["image_id"].to_pylist()} == rows(out).keys() == names


def test_extend_equals_a_fresh_run_to_the_bit(
    tmp_path: Path, write_config: WriteConfig, scenes: Path
) -> None:
    names = sorted(path.name for path in scenes.iterdir())

    def write(count: int, to: str) -> str:
        table = tmp_path / "images.csv"
        lines = [f"{scenes / name},{name},cat" for name in names[:count]]
        table.write_text("\n".join(["uri,image_id,labels", *lines, ""]))
        manifest = {"kind": "manifest", "images": str(table), "classes": CLASSES.split(",")}
        return write_config(manifest, output=to, shard_size=16)

    # 32 images fill two shards, so those of a fresh run of 60 have the same edges.
    assert not run(load_config(write(32, "run"))).failures
    times = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "run/scenes/tiny/scores").iterdir()
    }
    grown = load_config(write(60, "run"))
    assert main(["run", str(tmp_path / "config.yaml"), "--extend"]) == 0
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    assert not run(load_config(write(60, "fresh"))).failures
    ours, fresh = (tmp_path / name / "scenes" / "tiny" for name in ("run", "fresh"))
    for name in ("scores", "final", "labels", "labels-wide", "errors"):
        for path in sorted((fresh / name).iterdir()):
            assert (ours / name / path.name).read_bytes() == path.read_bytes(), path
    assert (ours / "labeler.safetensors").read_bytes() == (
        fresh / "labeler.safetensors"
    ).read_bytes()
    # The run is that of the longer table now.
    assert run(grown).nothing_to_do


def test_extend_keeps_removed_images(
    tmp_path: Path, photos: Path, write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config({"images": str(photos)})
    assert main(["run", path]) == 0
    before = final(tmp_path / "run" / "scenes" / "tiny")
    sorted(photos.iterdir())[0].unlink()
    capsys.readouterr()
    assert main(["run", path, "--extend"]) == 0
    assert "1 removed photo since the run" in capsys.readouterr().err
    assert final(tmp_path / "run" / "scenes" / "tiny") == before


def test_decide_asks_for_a_fit_over_all(
    tmp_path: Path, photos: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert label(photos, out) == 0
    add(photos, scenes, range(40, 44))
    assert label(photos, out) == 0
    capsys.readouterr()
    assert main(["decide", str(out), "--per-image", "2"]) == 2
    assert "--refit" in capsys.readouterr().err
    table = pq.read_table(out / "images" / "model" / "final")
    assert matrix(table["duo"], 10).shape == (44, 10)


def told(unit: Path) -> tuple[str, list[str]]:
    """The status of the first class, and the notes of a unit."""
    decisions = json.loads((unit / "decisions.json").read_text())
    notes = json.loads((unit / "metrics.json").read_text())["notes"]
    return decisions["duo"]["classes"]["cat"]["status"], notes


def answer(path: Path, photos: Path) -> str:
    """Writes answers about all photos of a folder."""
    names = sorted(photo.name for photo in photos.iterdir())
    rows = [f"{name},cat,{'yes' if i % 3 else 'no'}" for i, name in enumerate(names)]
    path.write_text("\n".join(["image_id,class,answer", *rows, ""]))
    return str(path)


def test_answers_survive_new_and_removed_photos(
    tmp_path: Path, photos: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, answers = tmp_path / "out", answer(tmp_path / "a.csv", photos)
    unit = out / "images" / "model"
    assert label(photos, out) == 0
    assert main(["decide", str(out), "--answers", answers, "--prevalence", "dog=0.2"]) == 0
    decided = (unit / "decisions.json").read_bytes()
    for path in sorted(photos.iterdir())[:3]:
        path.unlink()
    add(photos, scenes, range(40, 60))

    # The labeler labels the new photos; it holds the decisions.
    assert label(photos, out) == 0
    assert (unit / "decisions.json").read_bytes() == decided
    assert told(unit)[0] == "labelled"

    capsys.readouterr()
    assert label(photos, out, "--refit") == 0
    status, (note,) = told(unit)
    assert (status, note) == (
        "labelled",
        "Applied again: 37 answers, 1 given prevalence. Left out: 3 answers about images that are "
        "gone or unreadable.",
    )
    assert note in capsys.readouterr().out
    assert note in (out / "report" / "tables.md").read_text()
    # It is what `decide` makes of the same answers.
    again = {name: (unit / name).read_bytes() for name in ("labels/00000.parquet", "gallery.npz")}
    assert main(["decide", str(out), "--answers", answers, "--prevalence", "dog=0.2"]) == 0
    assert again == {name: (unit / name).read_bytes() for name in again}
    assert told(unit) == ("labelled", [])
    # None of the photos with answers is left.
    for path in sorted(photos.iterdir())[:37]:
        path.unlink()
    assert label(photos, out, "--refit") == 0
    assert told(unit)[0] != "labelled"
    assert "1 given prevalence. Left out: 40 answers" in told(unit)[1][-1]
    # Starting over forgets.
    assert label(photos, out, "--overwrite") == 0
    assert not any("Applied again" in note for note in told(unit)[1])
    assert not (unit / "knowledge.json").exists()


def test_a_fit_that_is_interrupted_before_answers_are_applied_is_not_finished(
    tmp_path: Path,
    photos: Path,
    scenes: Path,
    write_config: WriteConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, unit = write_config({"images": str(photos)}), tmp_path / "run" / "scenes" / "tiny"
    assert main(["run", path]) == 0
    answers = answer(tmp_path / "a.csv", photos)
    assert main(["decide", str(tmp_path / "run"), "--answers", answers]) == 0
    add(photos, scenes, range(40, 50))

    def interrupted(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("sparc_dist.runs.refit.write_any_labeler", interrupted)
        assert main(["run", path, "--extend"]) == 1
    assert "unfinished" in storage.read_json(str(unit / "metrics.json"))
    assert main(["run", path, "--extend"]) == 0
    assert told(unit) == ("labelled", ["Applied again: 40 answers."])


def test_extend_and_overwrite_contradict(write_config: WriteConfig) -> None:
    assert main(["run", write_config(), "--extend", "--overwrite"]) == 2
