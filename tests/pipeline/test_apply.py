"""sparc-dist apply: new images get labels from a fitted labeler, in one pass."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sparc_dist.cli import main
from sparc_dist.report.exhibits import build_exhibits
from sparc_dist.runs import Results, RunLayout, read_record
from sparc_dist.runs.labeler_file import read_facts, read_labeler, write_labeler
from sparc_dist.runs.run import open_unit
from tests.support.command import sparc_dist

UNIT = Path("run", "scenes", "tiny")


def labels(unit: Path) -> dict[str, bytes]:
    found = (unit / name for name in ("final", "labels", "labels-wide"))
    return {str(p.relative_to(unit)): p.read_bytes() for f in found for p in sorted(f.iterdir())}


def metrics(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "images" / "tiny" / "metrics.json").read_text())
    return found


@pytest.mark.parametrize("executor", ["light", pytest.param("cluster", marks=pytest.mark.ray)])
def test_the_images_of_the_fit_get_the_same_bytes(
    original: Path, tmp_path: Path, executor: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(executor)
    out = tmp_path / "out"
    source = str(original / "manifest.csv")
    assert (
        main(["apply", str(original / UNIT / "labeler.safetensors"), source, "--out", str(out)])
        == 0
    )
    unit = out / "images" / "tiny"
    assert labels(unit) == labels(original / UNIT)
    assert not (unit / "scores").exists()
    for name in ("labeler.safetensors", "decisions.json", "gallery.npz"):
        assert (unit / name).read_bytes() == (original / UNIT / name).read_bytes()
    layout = RunLayout(str(out))
    (shown,) = build_exhibits(Results.read(layout, read_record(layout)), 600).values()
    assert all(image.thumbnail and image.classes for image in shown.images.values())
    assert not any(found.prompts for image in shown.images.values() for found in image.classes)
    found = metrics(out)
    assert (found["images"], found["fitted_on"], found["notes"]) == (60, 60, [])
    assert found["drift"] < 0.05


def test_a_labeler_works_when_it_is_all_there_is(
    original: Path, tmp_path: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(original / UNIT / "labeler.safetensors", tmp_path / "mine.safetensors")
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in sorted(scenes.iterdir())[3:6]:
        shutil.copy(path, photos)
    (photos / "broken.jpg").write_bytes(b"no")
    out = tmp_path / "out"
    command = ["apply", str(tmp_path / "mine.safetensors"), str(photos), "--out", str(out)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "1 of 4 images could not be read: 1 × not an image in a known format" in shown
    assert f"The labels of 4 images are in {out}" in shown
    unit = open_unit(str(out))
    (shard,) = unit.labels()
    fitted = {row["image_id"]: row for row in pq.read_table(original / UNIT / "final").to_pylist()}
    for image_id, row in zip(shard.ids, shard.scores, strict=True):
        assert row.tolist() == pytest.approx(fitted[image_id]["duo"], abs=1e-4)
    assert metrics(out)["drift"] is None
    # Its output is a run like others.
    assert main(["status", str(out)]) == 0
    assert main(["export", str(out), "--format", "csv", "--out", str(tmp_path / "x.csv")]) == 0
    assert (tmp_path / "x.csv").read_text().count("\n") == 4


def test_resumed_it_reads_only_what_is_missing(
    original: Path, tmp_path: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, out = tmp_path / "photos", tmp_path / "out"
    shutil.copytree(scenes, photos)
    command = ["apply", str(original / "run"), str(photos), "--out", str(out)]
    assert main(command) == 0
    unit = out / "images" / "tiny"
    before = labels(unit)
    for name in ("metrics.json", "done/00002.json"):
        (unit / name).unlink()
    (unit / "final" / "00002.parquet").write_bytes(b"half")
    for path in sorted(photos.iterdir())[:20]:  # those of other shards are not opened again
        path.unlink()
    assert main(command) == 0
    assert labels(unit) == before
    assert metrics(out)["images"] == 60
    # Both messages name only options that this command has.
    said = capsys.readouterr().err
    assert "20 removed photos since the run; the run keeps to its own list, --overwrite" in said
    assert main(["apply", str(original / "run"), str(scenes), "--out", str(out)]) == 2
    assert "keep both with --out NEW, or replace it with --overwrite." in capsys.readouterr().err


def test_images_in_tar_files(original: Path, tmp_path: Path, scenes: Path) -> None:
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        for path in sorted(scenes.iterdir())[:4]:
            tar.add(path, path.name)
    out = tmp_path / "out"
    source = str(tmp_path / "photos.tar")
    assert main(["apply", str(original / "run"), source, "--out", str(out)]) == 0
    assert metrics(out)["images"] == 4


def test_a_config_names_a_labeler(
    original: Path, tmp_path: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(original / UNIT / "labeler.safetensors", tmp_path / "mine.safetensors")
    classes = list(read_facts(str(tmp_path / "mine.safetensors"))["classes"])
    data = {"name": "images", "kind": "folder", "images": str(scenes), "classes": classes}
    config = {
        "output": "out",
        "labeler": "mine.safetensors",  # beside the config
        "datasets": [data],
        "backbones": [{"name": "tiny", "model": "sparc-tiny"}],
        "shard_size": 10,
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    assert main(["run", str(tmp_path / "config.yaml")]) == 0
    assert labels(tmp_path / "out/images/tiny") == labels(original / UNIT)
    # Such a run has no embeddings for others, and other classes need another labeler.
    options = ["--embeddings-from", str(tmp_path / "out"), "--to", str(tmp_path / "new")]
    assert main(["run", str(tmp_path / "config.yaml"), *options]) == 2
    assert "keeps no embeddings" in capsys.readouterr().err
    data["classes"] = classes[1:]
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    assert main(["run", str(tmp_path / "config.yaml"), "--to", str(tmp_path / "new")]) == 1
    assert "has other classes than images" in capsys.readouterr().out


def test_other_weights_are_refused(original: Path, tmp_path: Path, scenes: Path) -> None:
    labeler = read_labeler(str(original / UNIT / "labeler.safetensors"))
    assert labeler.model is not None
    object.__setattr__(labeler.model, "weights_sha256", "0" * 64)
    write_labeler(str(tmp_path / "other.safetensors"), labeler)
    out = tmp_path / "out"
    done = sparc_dist("apply", tmp_path / "other.safetensors", scenes, "--out", out)
    assert done.returncode == 1
    assert (
        "was fitted with weights of sparc-tiny whose hash begins with 000000000000" in done.stdout
    )
    assert "name the right checkpoint as weights" in done.stdout


def test_other_images_are_told_apart(tmp_path: Path, original: Path) -> None:
    from PIL import Image

    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(24):  # plain colours are no scenes
        colour = (10 * number, 255 - 10 * number, 128)
        Image.new("RGB", (64, 64), colour).save(photos / f"{number}.png")
    done = sparc_dist("apply", original / "run", photos, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "The images differ from the 60 that the labeler was fitted on" in done.stdout
    assert metrics(tmp_path / "out")["drift"] > 0.35


@pytest.mark.parametrize(
    ("labeler", "message"),
    [
        ("nowhere.safetensors", "There is no labeler at"),
        ("nowhere", "There is no run at"),
    ],
)
def test_a_missing_labeler_is_refused_at_once(
    tmp_path: Path, scenes: Path, labeler: str, message: str
) -> None:
    done = sparc_dist("apply", tmp_path / labeler, scenes, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_labeler_of_score_matrices_labels_no_image(
    original: Path, tmp_path: Path, scenes: Path
) -> None:
    labeler = read_labeler(str(original / UNIT / "labeler.safetensors"))
    object.__setattr__(labeler, "model", None)
    write_labeler(str(tmp_path / "fused.safetensors"), labeler)
    done = sparc_dist("apply", tmp_path / "fused.safetensors", scenes, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "was fitted on scores, not on images, and has no model for images" in done.stderr
