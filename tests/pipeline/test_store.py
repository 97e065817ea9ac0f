"""store and stored_precision: what is kept, that results follow, and that nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from sparc_dist.config import Config
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from tests.support.command import contents, sparc_dist
from tests.support.photo_runs import IMAGES, draw_photos, failure, go, table, write

CLASSES = {"classes": ["cat", "dog", "car"]}
KEPT = {
    "both": ["image_id", "singleton", "auxiliary", "compound", "embedding"],
    "scores": ["image_id", "singleton", "auxiliary", "compound"],
    "embeddings": ["image_id", "embedding"],
}
EMBEDDINGS: dict[str, Any] = {"store": "embeddings"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, a run that keeps all, and one that keeps embeddings only."""
    folder = tmp_path_factory.mktemp("source")
    draw_photos(folder)
    with using(InProcess()):
        assert not go(folder, folder / "both", CLASSES).failures
        assert not go(folder, folder / "embeddings", CLASSES, **EMBEDDINGS).failures
    return folder


@pytest.fixture
def copy(source: Path, tmp_path: Path) -> Path:
    """A copy of the run with embeddings only, to spoil."""
    shutil.copytree(source / "embeddings", tmp_path / "embeddings")
    return tmp_path / "embeddings"


def differences(ours: Path, theirs: Path) -> float:
    """Returns the largest difference between final scores."""
    a, b = table(ours, "final"), table(theirs, "final")
    assert a.pop("image_id") == b.pop("image_id")
    assert a.keys() == b.keys()
    return max(float(np.abs(a[name] - b[name]).max(initial=0)) for name in b)


@pytest.mark.parametrize("store", ["scores", "embeddings"])
@pytest.mark.parametrize(("precision", "largest"), [("fp32", 1e-4), ("fp16", 0.2)])
def test_final_scores_are_those_of_a_run_that_keeps_all(
    source: Path, tmp_path: Path, store: str, precision: str, largest: float
) -> None:
    new = tmp_path / "new"
    assert not go(source, new, CLASSES, store=store, stored_precision=precision).failures
    kept = pq.read_table(new / "photos/tiny/scores/00000.parquet")
    assert kept.column_names == KEPT[store]
    types = {str(field.type.value_type) for field in kept.schema if field.name != "image_id"}
    assert types == {"float" if precision == "fp32" else "halffloat"}
    found = differences(new, source / "both")
    assert found < largest
    if (store, precision) == ("scores", "fp32"):
        assert found == 0
    if precision == "fp16":
        assert found > 0  # scores are rounded, so they cannot be the same


def test_damaged_prompt_embeddings_are_made_again(copy: Path, source: Path) -> None:
    unit = copy / "photos" / "tiny"
    before = contents(unit)
    prompts = unit / "prompt-embeddings.parquet"
    prompts.write_bytes(prompts.read_bytes()[:-9])
    (unit / "metrics.json").unlink()
    shutil.rmtree(unit / "reduce")
    assert not go(source, copy, CLASSES, **EMBEDDINGS).failures
    assert contents(unit) == before


def test_lost_prompt_embeddings_cost_no_image(copy: Path, source: Path) -> None:
    unit = copy / "photos" / "tiny"
    written = {path: path.stat().st_mtime_ns for path in (unit / "scores").iterdir()}
    (unit / "prompt-embeddings.parquet").unlink()
    (unit / "metrics.json").unlink()
    shutil.rmtree(unit / "reduce")
    assert not go(source, copy, CLASSES, **EMBEDDINGS).failures
    assert written == {path: path.stat().st_mtime_ns for path in (unit / "scores").iterdir()}


def test_a_lost_shard_is_scored_again_to_the_same_bytes(copy: Path, source: Path) -> None:
    unit = copy / "photos" / "tiny"
    before = contents(unit)
    for name in ("metrics.json", "done/00001.json", "scores/00001.parquet"):
        (unit / name).unlink()
    (unit / "scores/00002.parquet").write_bytes(b"damaged")
    shutil.rmtree(unit / "reduce")
    assert not go(source, copy, CLASSES, **EMBEDDINGS).failures
    assert contents(unit) == before


def test_what_is_kept_is_part_of_a_run(copy: Path, source: Path) -> None:
    told = failure(source, copy, CLASSES)
    assert "store: embeddings → both" in told
    told = failure(source, copy, CLASSES, stored_precision="fp16", **EMBEDDINGS)
    assert "stored_precision: fp32 → fp16" in told


def test_new_classes_from_a_run_with_embeddings_only(source: Path, tmp_path: Path) -> None:
    other = {"classes": ["pizza", "dog"]}
    assert not go(source, tmp_path / "a", other, source / "both").failures
    assert not go(source, tmp_path / "b", other, source / "embeddings", **EMBEDDINGS).failures
    assert differences(tmp_path / "a", tmp_path / "b") < 1e-4
    assert not go(source, tmp_path / "none", CLASSES, store="scores").failures
    told = failure(source, tmp_path / "c", other, tmp_path / "none")
    assert "has store: scores and keeps no embeddings" in told


def test_images_that_join_later(source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    photos = shutil.copytree(source / "photos", tmp_path / "photos")
    later = photos / "19.png"
    later.rename(tmp_path / "later.png")
    folder: dict[str, Any] = {"kind": "folder", "images": str(photos), **CLASSES}
    assert not go(source, new, folder, **EMBEDDINGS).failures
    (tmp_path / "later.png").rename(later)
    config = str(write(source, new, folder, **EMBEDDINGS))
    result = sparc_dist("run", config, "--extend")
    assert result.returncode == 0, result.stderr
    assert len(table(new, "final")["image_id"]) == IMAGES - 1  # one is broken
    assert len(table(new, "scores")["embedding"]) == IMAGES - 1


def test_the_report_shows_prompts_without_kept_scores(source: Path) -> None:
    """The scores of prompts that a page explains an image with are computed for it."""
    pages = [
        {path.name: path.read_text() for path in (source / name / "report").rglob("*.html")}
        for name in ("both", "embeddings")
    ]
    assert pages[0].keys() == pages[1].keys()
    assert any("cat and dog" in page for page in pages[1].values())


@pytest.mark.parametrize(
    ("backbone", "what"),
    [
        ({"model": "sparc-tiny", "features": "local"}, "features: local"),
        ({"model": "simulated"}, "model: simulated"),
    ],
)
def test_scores_that_embeddings_do_not_make(backbone: dict[str, Any], what: str) -> None:
    raw = {
        "output": "out",
        "datasets": [{"name": "d", "images": "t.csv", **CLASSES}],
        "backbones": [{"name": "b", **backbone}],
    }
    Config.model_validate({**raw, "store": "scores"})
    with pytest.raises(ValidationError, match=f"backbone b has {what}.* store: both or scores"):
        Config.model_validate({**raw, **EMBEDDINGS})


def test_the_plan_counts_what_is_kept(source: Path, tmp_path: Path) -> None:
    totals = []
    for more in ({}, {"stored_precision": "fp16"}, EMBEDDINGS):
        config = str(write(source, tmp_path / "plan", CLASSES, **more))
        told = sparc_dist("plan", config).stdout
        totals.append(told.splitlines()[-1].split(",")[1])
    assert len({*totals}) == 3
