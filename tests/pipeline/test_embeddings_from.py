"""New classes and prompts from the embeddings of another run: no image, the same scores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.config import load_config
from sparc_dist.core import Knowledge
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.pipeline.small import EMBEDDED, unit_sizes
from sparc_dist.runs import EmbeddedRun, RunLayout
from sparc_dist.runs.refit import Rule, refit
from sparc_dist.runs.run import open_unit
from tests.support.command import contents, sparc_dist
from tests.support.photo_runs import IMAGES, SHARD, draw_photos, failure, go, table, write
from tests.support.sealed import edit_json, write_list

OLD = ["cat", "dog", "car"]
#: Other classes, other prompts, other templates.
CHANGES: list[dict[str, Any]] = [
    {"classes": ["pizza", "dog", "cat"]},
    {"classes": OLD, "prompts": {"source": "all-pairs", "templates": ["with", "or"]}},
    {"classes": OLD, "templates": "openai", "background": ["tree", "sky"]},
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, one of them broken, a table, and a run of them."""
    folder = tmp_path_factory.mktemp("source")
    draw_photos(folder)
    with using(InProcess()):
        assert not go(folder, folder / "old", {"classes": OLD}).failures
    return folder


@pytest.fixture
def copy(source: Path, tmp_path: Path) -> Path:
    """A copy of the run to spoil; its photos and table are where they were."""
    shutil.copytree(source / "old", tmp_path / "old")
    return tmp_path


def labels(run_folder: Path) -> list[list[int] | None]:
    found: list[list[int] | None] = pq.read_table(run_folder / "photos" / "images.parquet")[
        "labels"
    ].to_pylist()
    return found


@pytest.fixture
def _no_photos(source: Path) -> Iterator[None]:
    (source / "photos").rename(source / "gone")
    yield
    (source / "gone").rename(source / "photos")


@pytest.mark.parametrize("dataset", CHANGES)
def test_scores_are_those_of_a_run_from_images(
    source: Path, tmp_path: Path, dataset: dict[str, Any]
) -> None:
    assert not go(source, tmp_path / "images", dataset).failures
    (source / "photos").rename(source / "gone")
    try:
        # The shards are those of the old run, whatever the new config says.
        new = go(source, tmp_path / "stored", dataset, source / "old", shard_size=5)
    finally:
        (source / "gone").rename(source / "photos")
    assert not new.failures
    for what, tolerance in (("scores", 1e-5), ("final", 1e-4)):
        ours, fresh = table(tmp_path / "stored", what), table(tmp_path / "images", what)
        assert ours.pop("image_id") == fresh.pop("image_id")
        for name in fresh:
            np.testing.assert_allclose(ours[name], fresh[name], atol=tolerance, err_msg=name)
    assert labels(tmp_path / "stored") == labels(tmp_path / "images")
    metrics, reference = (
        json.loads((tmp_path / name / "photos/tiny/metrics.json").read_text())
        for name in ("stored", "images")
    )
    same = ("images", "errors", "weights_sha256", "prompts_sha256", "device", "labelled")
    assert {key: metrics[key] for key in same} == {key: reference[key] for key in same}
    assert metrics["errors"]["images"] == 1
    assert "embedding" in metrics["stages"]
    errors = "photos/tiny/errors/00001.parquet"
    assert pq.read_table(tmp_path / "stored" / errors).equals(
        pq.read_table(tmp_path / "images" / errors)
    )
    record = json.loads((tmp_path / "stored" / "run.json").read_text())
    assert record["embeddings_from"] == str(source / "old")


def test_answers_about_classes_of_the_same_name_are_taken_over(source: Path, copy: Path) -> None:
    rule = Rule(Knowledge({0: 0.3, 2: 0.1}), {"3": {0: True, 2: False}, "4": {1: True}}, top=1)
    refit(open_unit(str(copy / "old")), rule)
    outcome = go(source, copy / "new", {"classes": ["pizza", "dog", "cat"]}, copy / "old")
    assert not outcome.failures
    *_, note = outcome.metrics["photos", "tiny"]["notes"]
    assert note == (
        f"Applied again from {copy}/old/photos/tiny: 2 answers, 1 given prevalence. Left out, "
        "because the classes have changed: 1 answer, 1 given prevalence, --top 1."
    )
    unit = copy / "new" / "photos" / "tiny"
    rules = json.loads((unit / "decisions.json").read_text())["duo"]["classes"]
    assert [rules[name]["status"] for name in ("dog", "cat")] == ["labelled", "labelled"]
    # From now on it is its own.
    shutil.rmtree(copy / "old")
    (unit / "metrics.json").unlink()
    outcome = go(source, copy / "new", {"classes": ["pizza", "dog", "cat"]})
    *_, note = outcome.metrics["photos", "tiny"]["notes"]
    assert note == "Applied again: 2 answers, 1 given prevalence."


@pytest.mark.usefixtures("_no_photos")
def test_labels_without_the_table(source: Path, tmp_path: Path) -> None:
    (source / "table.csv").rename(source / "gone.csv")
    try:
        fewer = go(source, tmp_path / "fewer", {"classes": ["dog", "car"]}, source / "old")
        other = go(source, tmp_path / "other", {"classes": ["dog", "pizza"]}, source / "old")
    finally:
        (source / "gone.csv").rename(source / "table.csv")
    assert not fewer.failures
    assert not other.failures
    assert labels(tmp_path / "fewer")[:4] == [[0], [0], [1], []]
    assert labels(tmp_path / "other") == [None] * IMAGES
    (note,) = json.loads((tmp_path / "other/photos/dataset.json").read_text())["notes"]
    assert f"{source}/old/photos/images.parquet has no labels of pizza, so" in note


def test_a_folder_has_no_labels_and_may_have_changed(source: Path, tmp_path: Path) -> None:
    photos = shutil.copytree(source / "photos", tmp_path / "photos")
    folder: dict[str, Any] = {"kind": "folder", "images": str(photos)}
    first = go(source, tmp_path / "first", {**folder, "classes": OLD})
    assert not first.failures
    second = go(source, tmp_path / "b", {**folder, "classes": ["pizza"]}, tmp_path / "first")
    assert not second.failures
    assert labels(tmp_path / "b") == [None] * IMAGES
    assert not second.changes
    assert json.loads((tmp_path / "b/photos/dataset.json").read_text())["notes"] == []
    (photos / "0.png").unlink()
    third = go(source, tmp_path / "c", {**folder, "classes": ["sofa"]}, tmp_path / "first")
    assert not third.failures
    assert third.changes == {"photos": "20 → 19: 1 removed photo since the run"}
    assert len(labels(tmp_path / "c")) == IMAGES


def test_another_table_of_the_same_images_has_their_labels(source: Path, tmp_path: Path) -> None:
    rows = [f"{source}/photos/{number}.png,{number},zebra" for number in range(IMAGES)]
    (tmp_path / "new.csv").write_text("\n".join(["uri,image_id,labels", *rows, ""]))
    dataset = {"images": str(tmp_path / "new.csv"), "classes": ["cat", "zebra"]}
    assert not go(source, tmp_path / "new", dataset, source / "old").failures
    assert labels(tmp_path / "new") == [[1]] * IMAGES
    # One image fewer: not the same images.
    (tmp_path / "new.csv").write_text("\n".join(["uri,image_id,labels", *rows[:-1], ""]))
    told = failure(source, tmp_path / "newer", dataset, source / "old")
    assert f"{tmp_path}/new.csv does not list the same images as {source}/old/" in told
    assert not (tmp_path / "newer").exists()


def test_what_is_missing_is_scored_and_nothing_else(source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert not go(source, new, CHANGES[0], source / "old").failures
    unit = new / "photos" / "tiny"
    before = contents(unit)
    kept = (unit / "scores" / "00000.parquet").stat().st_mtime_ns
    (unit / "metrics.json").unlink()
    (unit / "done" / "00001.json").unlink()
    (unit / "scores" / "00003.parquet").write_bytes(b"damaged")
    shutil.rmtree(unit / "reduce")
    again = go(source, new, CHANGES[0], source / "old")
    assert not again.failures
    assert contents(unit) == before
    assert (unit / "scores" / "00000.parquet").stat().st_mtime_ns == kept
    # The option is no part of what a run is: without it, the images are scored.
    (unit / "metrics.json").unlink()
    (unit / "done" / "00002.json").unlink()
    assert not go(source, new, CHANGES[0]).failures
    assert go(source, new, CHANGES[0], source / "old").nothing_to_do


def test_a_run_that_began_with_other_shards_is_not_mixed(source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert not go(source, new, CHANGES[0], shard_size=5).failures
    (new / "photos" / "tiny" / "metrics.json").unlink()
    (new / "photos" / "tiny" / "done" / "00001.json").unlink()
    told = failure(source, new, CHANGES[0], source / "old", shard_size=5)
    assert "scores/00001.parquet has other images than shard 1 of" in told


@pytest.mark.slow
def test_on_ray_it_has_the_same_bytes(source: Path, tmp_path: Path, started: str) -> None:
    from sparc_dist.pipeline.on_ray import OnRay

    kept: dict[str, Any] = {"store": "embeddings"}  # so scores are computed where they are read
    resources = {"scorers": 1, "gpus_per_scorer": 0}
    assert not go(source, tmp_path / "here", CHANGES[0], source / "old", **kept).failures
    with using(OnRay()):
        rays = go(source, tmp_path / "ray", CHANGES[0], source / "old", resources=resources, **kept)
    assert not rays.failures
    here, ray = (tmp_path / name / "photos" / "tiny" for name in ("here", "ray"))
    assert contents(here) == contents(ray)


def change_markers(run_folder: Path, **changes: str) -> None:
    """Changes what the shards of a run were scored with."""
    for path in (run_folder / "photos" / "tiny" / "done").iterdir():
        edit_json(path, lambda marker: marker["scoring"].update(changes))


def test_other_weights_and_damaged_files_are_refused(source: Path, copy: Path) -> None:
    unit = copy / "old" / "photos" / "tiny"
    shutil.copytree(unit, copy / "good")
    change_markers(copy / "old", weights_sha256="0" * 64)
    told = failure(source, copy / "new", CHANGES[0], copy / "old")
    assert f"embedded the images ({unit}/done/00000.json: 000000000000…) are not those" in told
    assert not list((copy / "new" / "photos").glob("tiny/scores/*"))
    shutil.rmtree(unit)
    shutil.copytree(copy / "good", unit)
    for name in ("errors/00001.parquet", "scores/00002.parquet"):
        content = (unit / name).read_bytes()
        (unit / name).write_bytes(content + b"!")
        told = failure(source, copy / "new", CHANGES[0], copy / "old")
        assert told.startswith(f"{unit}/{name} is missing or damaged")
        (unit / name).write_bytes(content)
    # The shards before it are done.
    again = go(source, copy / "new", CHANGES[0], copy / "old")
    assert again.metrics["photos", "tiny"]["stages"]["scoring"]["images"] == IMAGES - 2 * SHARD


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda old: (old / "photos/tiny/done/00001.json").unlink(), "1 of the 4 shards of"),
        (lambda old: (old / "photos/dataset.json").unlink(), "there are no embeddings to use"),
        (lambda old: change_markers(old, images_sha256="0" * 64), "scored with other images than"),
        (lambda old: shutil.rmtree(old), "There is no run at"),
    ],
)
def test_an_unfit_run_is_refused_before_anything_is_written(
    source: Path, copy: Path, spoil: Any, told: str
) -> None:
    spoil(copy / "old")
    assert told in failure(source, copy / "new", CHANGES[0], copy / "old")
    assert not (copy / "new").exists()


def test_a_changed_list_of_images_is_refused(source: Path, copy: Path) -> None:
    images = copy / "old" / "photos" / "images.parquet"
    write_list(images, [pq.read_table(images).slice(1)])
    told = failure(source, copy / "new", CHANGES[0], copy / "old")
    assert told.startswith(f"{images} was changed after it was written")


def test_what_is_small(source: Path, tmp_path: Path) -> None:
    config = load_config(str(write(source, tmp_path / "new", CHANGES[0])))
    pending = {"photos": list(config.backbones)}
    run_of_them = EmbeddedRun.open(str(source / "old"), config.output)
    layout = RunLayout(config.output)
    assert list(unit_sizes(config, pending, layout)) == [IMAGES]
    assert list(unit_sizes(config, pending, layout, run_of_them)) == [IMAGES // EMBEDDED]


def test_names_places_and_models_that_do_not_fit(source: Path, copy: Path) -> None:
    told = failure(source, copy / "old", {"classes": OLD}, copy / "old")
    assert "--embeddings-from names the output of this run" in told
    bf16 = [{"name": "other", "model": "sparc-tiny", "precision": "bf16"}]
    told = failure(source, copy / "new", CHANGES[0], copy / "old", backbones=bf16)
    assert "Backbone other has precision bf16, and tiny of" in told
    # A precision that is left open is that of the embeddings.
    path = copy / "old" / "run.json"
    edit_json(path, lambda record: record["config"]["backbones"][0].update(precision="fp32"))
    # The only data set and the only backbone may have other names, several may not.
    fine = [{"name": "other", "model": "sparc-tiny"}]
    renamed = {**CHANGES[0], "name": "pictures"}
    assert not go(source, copy / "new", renamed, copy / "old", backbones=fine).failures
    record = storage.read_json(str(path))
    for section in ("backbones", "datasets"):
        (first,) = record["config"][section]
        record["config"][section] = [first, first | {"name": "second"}]
        storage.write_json(str(path), record)
        told = failure(source, copy / "newer", renamed, copy / "old", backbones=fine)
        assert f"only {first['name']}, second; use one of these names" in told


@pytest.mark.usefixtures("_no_photos")
def test_the_command(source: Path, tmp_path: Path) -> None:
    new = write(source, tmp_path / "new", {"classes": ["zebra", "cat"], "background": "auto"})
    old = source / "old.yaml"
    done = sparc_dist("run", new, "--embeddings-from", old)
    assert done.returncode == 0, done.stderr
    assert "embedding" in done.stderr
    assert "20/20 images" in done.stderr
    assert (tmp_path / "new" / "report" / "index.html").exists()
    assert sparc_dist("run", new, "--embeddings-from", old).returncode == 0
    done = sparc_dist("run", old, "--embeddings-from", source / "old")
    assert done.returncode == 2
    assert "names the output of this run" in done.stderr
