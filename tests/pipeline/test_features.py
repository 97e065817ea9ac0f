"""Local features from the config to labels: what is stored, what can be reused, and what cannot."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparc_dist.cli import main
from sparc_dist.config import load_config
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.runner import run
from sparc_dist.runs import Results
from sparc_dist.runs.labeler_file import read_labeler
from sparc_dist.serving import Labeler
from tests.conftest import FEW

FEATURES = ("global", "local", "both")
IMAGES, SHARD = 32, 16


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, scenes: Path, truth: dict[str, list[str]]
) -> Path:
    """A folder with a table of scenes and a run on them with each kind of features."""
    made = tmp_path_factory.mktemp("features")
    some = list(truth.items())[:IMAGES]
    rows = [f"{scenes / name},{name},{';'.join(labels)}" for name, labels in some]
    (made / "table.csv").write_text("\n".join(["uri,image_id,labels", *rows, ""]))
    with using(InProcess()):
        assert not go(made, made / "run").failures
    return made


def backbone(features: str, **fields: Any) -> dict[str, Any]:
    return {"name": features, "model": "sparc-tiny", "features": features, **fields}


def go(folder: Path, output: Path, embeddings_from: Path | None = None, **changes: Any) -> Results:
    section = {"name": "scenes", "images": str(folder / "table.csv"), "classes": FEW}
    section |= {"background": "none"}  # few prompts, so that a run is quick
    config = {
        "output": str(output),
        "shard_size": SHARD,
        "batch_size": 8,
        "datasets": [section],
        "backbones": [backbone(name) for name in FEATURES],
        "resources": {"executor": "process"},
        **changes,
    }
    path = output.with_suffix(".yaml")
    path.write_text(json.dumps(config))
    return run(
        load_config(str(path)), embeddings_from=str(embeddings_from) if embeddings_from else None
    )


def stored(unit: Path, kind: str, column: str) -> Any:
    return np.array(pq.read_table(unit / kind)[column].to_pylist())


def test_each_kind_of_features_has_its_scores_and_the_same_embeddings(folder: Path) -> None:
    units = {name: folder / "run" / "scenes" / name for name in FEATURES}
    for column in ("singleton", "auxiliary", "compound"):
        plain, local, both = (stored(unit, "scores", column) for unit in units.values())
        np.testing.assert_allclose(both, (plain + local) / 2, atol=1e-6)
        assert np.abs(plain - local).max() > 0.01
    plain, local, both = (stored(unit, "scores", "embedding") for unit in units.values())
    np.testing.assert_array_equal(plain, local)
    np.testing.assert_array_equal(plain, both)


def test_a_labeler_scores_with_the_features_of_its_fit(
    folder: Path, scenes: Path, tmp_path: Path
) -> None:
    unit = folder / "run" / "scenes" / "both"
    facts = read_labeler(str(unit / "labeler.safetensors")).image_model.backbone
    assert (facts["features"], facts["local_scale"]) == ("both", 100.0)
    labeler = Labeler.load(folder / "run", backbone="both")
    ids = pq.read_table(unit / "final")["image_id"].to_pylist()
    found = [image.scores for image in labeler([scenes / name for name in ids])]
    expected = stored(unit, "final", labeler.method)
    np.testing.assert_allclose([[row[name] for name in FEW] for row in found], expected, atol=1e-4)
    out = tmp_path / "applied"
    command = ["apply", str(unit / "labeler.safetensors"), str(folder / "table.csv")]
    assert main([*command, "--out", str(out)]) == 0
    applied = stored(out / "images" / "both", "final", labeler.method)
    np.testing.assert_array_equal(applied, expected)


def test_a_labeler_is_not_applied_with_other_features(folder: Path, tmp_path: Path) -> None:
    labeler = str(folder / "run" / "scenes" / "both" / "labeler.safetensors")
    for fields in (backbone("local"), backbone("both", local_scale=50)):
        out = tmp_path / fields["name"]
        (reason,) = go(folder, out, labeler=labeler, backbones=[fields]).failures.values()
        assert "was fitted on scores with" in reason


def test_stored_embeddings_serve_global_features_only(folder: Path, tmp_path: Path) -> None:
    source = folder / "run"
    for features in ("local", "both"):
        with pytest.raises(UserError, match=f"features: {features}, and .* need the images again"):
            go(folder, tmp_path / "new", source, backbones=[backbone(features)])
    plain = {"name": "both", "model": "sparc-tiny"}
    assert not go(folder, tmp_path / "plain", source, backbones=[plain]).failures
    found = stored(tmp_path / "plain" / "scenes" / "both", "scores", "compound")
    expected = stored(source / "scenes" / "global", "scores", "compound")
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_features_are_part_of_what_a_run_is(folder: Path) -> None:
    names = [backbone("global"), backbone("local"), backbone("both", local_scale=7)]
    with pytest.raises(UserError, match=r"both\.local_scale: 100\.0 → 7\.0"):
        go(folder, folder / "run", backbones=names)


def test_the_experiment_compares_units_that_differ_in_features_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", "compare", "--run", str(folder / "run")]) == 0
    page = capsys.readouterr().out
    assert "1,000 paired bootstrap draws" in page
    with (folder / "run" / "experiments" / "compare.csv").open() as file:
        rows = {(row["backbone"], row["method"]): row for row in csv.DictReader(file)}
    for name in FEATURES:
        metrics = json.loads((folder / "run" / "scenes" / name / "metrics.json").read_text())
        for title, method in (("ZSCLIP", "zsclip"), ("SPARC", "sparc"), ("duo", "duo")):
            row, base = rows[name, title], rows["global", title]
            assert float(row["mAP (%)"]) == pytest.approx(metrics[method]["mAP"])
            if name == "global":
                assert row["features"] == row["minus global"] == ""
                continue
            assert row["features"] == name
            columns = ("minus global", "global, low", "global, high")
            gap, low, high = (float(row[column]) for column in columns)
            assert gap == pytest.approx(float(row["mAP (%)"]) - float(base["mAP (%)"]))
            assert low <= high
            assert f"{gap:+.2f} [{low:+.2f}, {high:+.2f}]" in page


def test_new_prompts_are_not_scored_with_embeddings_where_patches_are_needed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", "templates", "--run", str(folder / "run")]) == 0
    page = capsys.readouterr().out
    assert "scenes × local: prompts that are not the run's own could not be scored: f" in page
    assert "need the images again" in page
    with (folder / "run" / "experiments" / "templates.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["template"] == "A or B"]
    assert {row["backbone"] for row in rows} == {"global", "average"}
