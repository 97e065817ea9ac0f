"""The labeler of an ensemble: one file, every model, the answers of the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sparc_dist.cli import main
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.runs.ensemble_file import EnsembleLabeler, read_any_labeler, write_any_labeler
from sparc_dist.runs.run import open_unit
from sparc_dist.serving import Labeler
from tests.conftest import FEW
from tests.support.openai_form import write_openai_form
from tests.support.running import go
from tests.support.small_clip import SMALL, small_clip


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, scenes: Path) -> Path:
    """The output of a run with two models that take images of 64 and of 96 pixels."""
    folder = tmp_path_factory.mktemp("pair")
    write_openai_form(small_clip(), folder / "small.pt")
    data = {"name": "scenes", "kind": "folder", "images": str(scenes), "classes": FEW}
    small = {"name": "small", "model": SMALL, "weights": "small.pt", "image_size": 96}
    config = {
        "output": "run",
        "datasets": [data | {"background": "none"}],
        "backbones": [{"name": "tiny", "model": "sparc-tiny"}, small],
        "resources": {"executor": "process"},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    with using(InProcess()):
        assert not go(folder).failures
    return folder / "run"


@pytest.fixture(scope="module")
def labeler(pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Labeler:
    """Loaded from a copy of the file alone."""
    place = tmp_path_factory.mktemp("alone") / "labeler.safetensors"
    shutil.copy(pair / "scenes" / "ensemble" / "labeler.safetensors", place)
    return Labeler.load(place)


def test_it_answers_as_the_run_did(labeler: Labeler, pair: Path) -> None:
    assert (labeler.classes, labeler.fitted_on, labeler.size) == (FEW, 60, 96)
    for shard in open_unit(str(pair), backbone="ensemble").labels():
        answers = labeler(shard.uris)
        for row, answer in enumerate(answers):
            scores = np.array([*answer.scores.values()], np.float32)
            assert scores.tobytes() == shard.scores[row].tobytes()
            probability = np.array([*answer.probabilities.values()], np.float32)
            assert probability.tolist() == shard.probability[row].tolist()
            assert {*answer.labels} == {FEW[i] for i in np.flatnonzero(shard.present[row])}


def test_it_says_why_and_goes_on_after_what_is_no_image(labeler: Labeler, scenes: Path) -> None:
    first, broken = labeler([sorted(scenes.iterdir())[0], b"no image"])
    assert "not an image" in str(broken.error)
    alone = labeler(sorted(scenes.iterdir())[0])
    assert alone.labels == first.labels
    present = [image for image in labeler(sorted(scenes.iterdir())[:10]) if image.labels]
    reasons = present[0].because[present[0].labels[0]]
    assert all(present[0].labels[0] in text for text, _ in reasons)


def test_the_file_comes_back_with_every_bit(pair: Path, tmp_path: Path) -> None:
    file = pair / "scenes" / "ensemble" / "labeler.safetensors"
    fitted = read_any_labeler(str(file))
    assert isinstance(fitted, EnsembleLabeler)
    assert [*fitted.members] == ["tiny", "small"]
    write_any_labeler(str(tmp_path / "again.safetensors"), fitted)
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


def test_weights_are_named_by_backbone(pair: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="an ensemble of tiny, small; name a file for each"):
        Labeler.load(pair, backbone="ensemble", weights="openai")
    with pytest.raises(UserError, match="has no backbone large; it has tiny, small"):
        Labeler.load(pair, backbone="ensemble", weights={"large": "x.pt"})
    with pytest.raises(UserError, match=r"there is no weights file .*gone\.pt"):
        Labeler.load(pair, backbone="ensemble", weights={"small": str(tmp_path / "gone.pt")})


def test_apply_refuses_it_with_the_remedy(
    pair: Path, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    command = ["apply", str(pair), str(scenes), "--backbone", "ensemble", "--out", out]
    assert main(command) == 2
    assert "is an ensemble of tiny, small" in capsys.readouterr().err
    assert not Path(out).exists()
