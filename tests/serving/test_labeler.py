"""The labeler in process: answers as the run did, whatever form an image comes in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sparc_dist.backbones.models import Backbone
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError
from sparc_dist.images.decoding import BadImage
from sparc_dist.runs.labeler_file import FittedLabeler, ImageModel, read_labeler, write_labeler
from sparc_dist.runs.run import open_unit
from sparc_dist.serving import Labeler
from sparc_dist.serving.labeler import Picture
from tests.conftest import FEW
from tests.support.golden_unit import write_unit
from tests.support.openai_form import write_openai_form
from tests.support.small_clip import SMALL, small_clip

Changed = Callable[..., Path]


@pytest.fixture(scope="module")
def labeler(labeler_file: Path) -> Labeler:
    return Labeler.load(labeler_file)


@pytest.fixture
def changed(labeler_file: Path, tmp_path: Path) -> Changed:
    """Writes the labeler with changes."""

    def write(**changes: Any) -> Path:
        place = tmp_path / "changed.safetensors"
        write_labeler(str(place), replace(read_labeler(str(labeler_file)), **changes))
        return place

    return write


def model_of(file: Path) -> ImageModel:
    model = read_labeler(str(file)).model
    assert model is not None
    return model


def test_it_answers_as_the_run_did(labeler: Labeler, fitted: Path) -> None:
    for shard in open_unit(str(fitted)).labels():
        answers = labeler(shard.uris)
        for row, answer in enumerate(answers):
            assert (
                np.array([*answer.scores.values()], np.float32).tobytes()
                == shard.scores[row].tobytes()
            )
            assert np.array([*answer.probabilities.values()], np.float32).tolist() == (
                shard.probability[row].tolist()
            )
            assert {*answer.labels} == {FEW[i] for i in np.flatnonzero(shard.present[row])}
            chances = [answer.probabilities[name] or 0 for name in answer.labels]
            assert chances == sorted(chances, reverse=True)


def test_it_says_what_it_is(labeler: Labeler, fitted: Path) -> None:
    assert labeler.classes == FEW
    assert (labeler.fitted_on, labeler.method, labeler.size) == (60, "duo", 64)
    assert Labeler.load(fitted, dataset="scenes", backbone="tiny").classes == FEW


def test_every_form_of_an_image_is_the_same(labeler: Labeler, scenes: Path) -> None:
    path = min(scenes.iterdir())
    with Image.open(path) as image:
        image.load()
    pixels = np.asarray(image)
    forms: list[Picture] = [path, str(path), path.read_bytes(), image, pixels]
    first, *others = (labeler(form) for form in forms)
    assert all(other == first for other in others)
    assert labeler(np.stack([pixels, pixels])) == labeler([path, path])


def test_a_grey_and_a_turned_picture_are_read_as_files_are(
    labeler: Labeler, tmp_path: Path
) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as turned:
        assert labeler(turned) == labeler(tmp_path / "turned.png") != labeler(image)
    grey = image.convert("L")
    assert labeler(grey) == labeler(np.asarray(grey))


def test_batches_do_not_change_the_labels(labeler: Labeler, scenes: Path) -> None:
    paths = sorted(scenes.iterdir())[:7]
    several = labeler(iter(paths), batch_size=3)
    for one, path in zip(several, paths, strict=True):
        alone = labeler(path)
        assert alone.labels == one.labels
        np.testing.assert_allclose([*alone.scores.values()], [*one.scores.values()], atol=1e-4)
    assert labeler([]) == []


def test_a_bad_image_is_told_and_spares_the_others(labeler: Labeler, scenes: Path) -> None:
    good = min(scenes.iterdir())
    with pytest.raises(BadImage, match="not an image"):
        labeler(b"no image")
    for wrong in (np.zeros((2, 2), np.float32), np.zeros((2, 2, 7), np.uint8)):
        with pytest.raises(BadImage):
            labeler(wrong)
    first, second, third = labeler([good, scenes / "none.jpg", b""])
    assert (first.error, second.error) == (None, "there is no such file")
    assert (third.error, third.labels, third.scores) == ("the file is empty", [], {})
    assert [answer.error for answer in labeler([b""])] == ["the file is empty"]


def test_it_names_the_prompts_that_added_most(labeler: Labeler, scenes: Path) -> None:
    answers = labeler(sorted(scenes.iterdir()))
    assert any(answer.labels for answer in answers)
    for answer in answers:
        assert {*answer.because} == {*answer.labels}
        for name, reasons in answer.because.items():
            assert all(name in text for text, _ in reasons)
            added = [value for _, value in reasons]
            assert added == sorted(added, reverse=True)
            assert 1 <= len(added) <= 3


def test_without_stored_embeddings_it_embeds_the_prompts(
    labeler: Labeler, changed: Changed, scenes: Path
) -> None:
    path = min(scenes.iterdir())
    found = Labeler.load(changed(texts={}))(path)
    np.testing.assert_allclose(
        [*found.scores.values()], [*labeler(path).scores.values()], atol=1e-3
    )


def test_other_weights_are_refused(labeler_file: Path, changed: Changed) -> None:
    other = replace(model_of(labeler_file), weights_sha256="0" * 64)
    with pytest.raises(UserError, match=r"begins with 000000000000, and these have .* name the"):
        Labeler.load(changed(model=other))


def test_another_input_size_is_refused(labeler_file: Path, changed: Changed) -> None:
    model = model_of(labeler_file)
    other = replace(model, input={**(model.input or {}), "size": 96})
    with pytest.raises(UserError, match=r"fitted on images of 96 pixels, .* takes 64"):
        Labeler.load(changed(model=other))


def test_weights_of_a_bundled_model_are_refused(labeler_file: Path) -> None:
    with pytest.raises(UserError, match="cannot be loaded: sparc-tiny takes no weights"):
        Labeler.load(labeler_file, weights="openai")


def test_a_labeler_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fitted on scores, not on images"):
        Labeler.load(write_unit(tmp_path).labeler)


def test_weights_may_be_elsewhere_but_must_be_the_same(changed: Changed, tmp_path: Path) -> None:
    model = small_clip()
    write_openai_form(model, tmp_path / "small.pt")
    with torch.no_grad():
        model.logit_scale += 1
    write_openai_form(model, tmp_path / "other.pt")
    config = {"name": "small", "model": SMALL, "weights": "/gone/small.pt"}
    here = BackboneConfig.model_validate(config | {"weights": str(tmp_path / "small.pt")})
    backbone = Backbone(here)
    made = ImageModel(config, backbone.weights_sha256, "cpu", backbone.input, 8, 8, True, None)
    file = changed(model=made, texts=_unit_vectors(read_labeler(str(changed()))))
    with pytest.raises(UserError, match=r"there is no weights file /gone/small\.pt"):
        Labeler.load(file)
    with pytest.raises(UserError, match="scores of other weights mean something else"):
        Labeler.load(file, weights=str(tmp_path / "other.pt"))
    assert Labeler.load(file, weights=str(tmp_path / "small.pt")).size == 64


def _unit_vectors(fitted: FittedLabeler) -> dict[str, Any]:
    """Embeddings of the width of that model, which need no text tower."""
    return {kind: np.eye(len(rows), 32, dtype=np.float32) for kind, rows in fitted.texts.items()}
