"""jpeg_scaling is part of what a run is: no run, and no labeler, mixes two ways of decoding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sparc_dist.cli import main
from sparc_dist.config import load_config
from sparc_dist.demo.scenes import SPLITS, draw_scene
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.runner import run
from sparc_dist.serving import Labeler
from tests.support.running import go

UNIT = Path("run", "photos", "tiny")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos large enough to be decoded at 1/4 for the bundled model, whose input is 64 pixels."""
    folder = tmp_path_factory.mktemp("photos")
    for seed in SPLITS["validation"][:8]:
        image = draw_scene(seed).image.resize((800, 600), Image.Resampling.BICUBIC)
        image.save(folder / f"{seed}.jpg", quality=90)
    return folder


def start(folder: Path, photos: Path, **changes: Any) -> Path:
    """Runs a config in the folder; returns the folder of its unit."""
    dataset = {"name": "photos", "kind": "folder", "images": str(photos), "background": "none"}
    config = {
        "output": "run",
        "shard_size": 4,
        "datasets": [dataset | {"classes": ["cat", "dog", "car"]}],
        "backbones": [{"name": "tiny", "model": "sparc-tiny"}],
        "resources": {"executor": "process"},
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(json.dumps(config | changes))
    assert not go(folder).failures
    return folder / UNIT


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> dict[bool, Path]:
    """The folders of a run with scaling and of one without."""
    folder = tmp_path_factory.mktemp("runs")
    with using(InProcess()):
        for on in (True, False):
            start(folder / str(on), photos, jpeg_scaling=on)
    return {on: folder / str(on) for on in (True, False)}


def embeddings(unit: Path) -> np.ndarray[Any, Any]:
    return np.stack(pq.read_table(unit / "scores")["embedding"].to_pylist())


def test_it_changes_the_scores_a_little_and_a_run_keeps_to_it(
    runs: dict[bool, Path], photos: Path
) -> None:
    scaled, full = (embeddings(runs[on] / UNIT) for on in (True, False))
    assert 0 < np.abs(scaled - full).max() < 0.02
    with pytest.raises(UserError, match=r"another config \(jpeg_scaling: True → False\)"):
        start(runs[True], photos, jpeg_scaling=False)


@pytest.mark.parametrize("on", [True, False])
def test_a_labeler_decodes_as_its_fit_did(
    runs: dict[bool, Path], photos: Path, tmp_path: Path, on: bool
) -> None:
    unit = runs[on] / UNIT
    expected = pq.read_table(unit / "final")
    labeler = unit / "labeler.safetensors"
    assert main(["apply", str(labeler), str(photos), "--out", str(tmp_path / "out")]) == 0
    assert pq.read_table(tmp_path / "out" / "images" / "tiny" / "final").equals(expected)
    # A config whose own setting is another one.
    applied = start(tmp_path / "config", photos, labeler=str(labeler), jpeg_scaling=not on)
    assert pq.read_table(applied / "final").equals(expected)
    answers = Labeler.load(labeler)([photos / name for name in expected["image_id"].to_pylist()])
    scores = np.array([[*answer.scores.values()] for answer in answers], np.float32)
    # A product of another number of rows or threads may end in other bits.
    np.testing.assert_allclose(scores, np.stack(expected["duo"].to_pylist()), rtol=0, atol=2e-6)


def test_embeddings_of_another_way_of_decoding_are_refused(
    runs: dict[bool, Path], photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.yaml").write_text((runs[False] / "config.yaml").read_text())
    config = load_config(str(tmp_path / "new.yaml"), str(tmp_path / "new"))
    other = config.model_copy(update={"jpeg_scaling": True})
    with pytest.raises(UserError, match="were made with jpeg_scaling: false; write this into"):
        run(other, embeddings_from=str(runs[False] / "run"))
    assert not run(config, embeddings_from=str(runs[False] / "run")).failures
