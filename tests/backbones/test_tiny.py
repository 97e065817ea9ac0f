"""The bundled model: it loads as it was trained, without drawing random weights."""

from __future__ import annotations

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from sparc_dist.backbones.checkpoints import NoDraws
from sparc_dist.backbones.texts import tiny_classes
from sparc_dist.backbones.tiny import MODEL_NAME, WEIGHTS, load_tiny_model, new_model, register
from sparc_dist.demo.objects import CLASSES
from sparc_dist.demo.scenes import SPLITS, draw_scene


@pytest.fixture(scope="module")
def model() -> open_clip.CLIP:
    return load_tiny_model()


def embed_texts(model: open_clip.CLIP, texts: list[str]) -> torch.Tensor:
    register()
    tokens = open_clip.get_tokenizer(MODEL_NAME)(texts)
    with torch.no_grad():
        return torch.as_tensor(model.encode_text(tokens, normalize=True))


def embed_images(model: open_clip.CLIP, images: list[Image.Image]) -> torch.Tensor:
    side = int(model.visual.image_size)
    squares = [image.resize((side, side), Image.Resampling.BICUBIC) for image in images]
    pixels = torch.from_numpy(np.stack([np.asarray(square) for square in squares]))
    inputs = pixels.permute(0, 3, 1, 2).float() / 255
    mean, std = (
        torch.tensor(values).view(1, 3, 1, 1)
        for values in (model.visual.image_mean, model.visual.image_std)
    )
    with torch.no_grad():
        return torch.as_tensor(model.encode_image((inputs - mean) / std, normalize=True))


def test_the_model_names_the_classes_that_are_drawn() -> None:
    assert tiny_classes() == CLASSES


def test_model_is_an_open_clip_model_ready_for_use(model: open_clip.CLIP) -> None:
    assert isinstance(model, open_clip.CLIP)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert tuple(model.visual.image_mean) == open_clip.OPENAI_DATASET_MEAN
    assert tuple(model.visual.image_std) == open_clip.OPENAI_DATASET_STD


def test_weights_are_small() -> None:
    assert WEIGHTS.stat().st_size < 8_000_000


def test_embeddings_are_finite_unit_vectors_and_differ(model: open_clip.CLIP) -> None:
    texts = embed_texts(model, [*CLASSES, "", "xylophone zeppelin 42 !?"])
    images = embed_images(model, [draw_scene(seed).image for seed in SPLITS["validation"][:8]])
    for rows in (texts, images):
        assert torch.isfinite(rows).all()
        assert torch.allclose(rows.norm(dim=1), torch.ones(len(rows)), atol=1e-5)
    names = texts[: len(CLASSES)]
    others = (names @ names.T)[~torch.eye(len(CLASSES), dtype=torch.bool)]
    assert others.max() < 0.999  # dog and horse are close, but no two classes are the same
    assert others.mean() < 0.8


def test_an_unknown_word_changes_little(model: open_clip.CLIP) -> None:
    plain, strange, other = embed_texts(
        model, ["a photo of a cat.", "a photo of a cat xylophone.", "a photo of a bus."]
    )
    assert plain @ strange > plain @ other + 0.2


def test_zero_shot_ranking_is_far_above_chance(model: open_clip.CLIP) -> None:
    scenes = [draw_scene(seed) for seed in SPLITS["validation"][:300]]
    present = np.zeros((len(scenes), len(CLASSES)), dtype=bool)
    for row, scene in enumerate(scenes):
        present[row, list(scene.labels)] = True
    texts = embed_texts(model, [f"a photo of a {name}." for name in CLASSES])
    scores = (embed_images(model, [scene.image for scene in scenes]) @ texts.T).numpy()
    # The area under the ROC curve per class: 0.5 is chance.
    areas = []
    for column in range(len(CLASSES)):
        yes, no = scores[present[:, column], column], scores[~present[:, column], column]
        areas.append(float((yes[:, None] > no[None, :]).mean()))
    assert np.mean(areas) > 0.75
    assert min(areas) > 0.55


def test_nothing_is_drawn_and_constants_are_set() -> None:
    before = torch.get_rng_state()
    with NoDraws():
        layers = [torch.nn.Linear(3, 3), torch.nn.Embedding(3, 3), torch.nn.Conv2d(3, 3, 3)]
        norm = torch.nn.LayerNorm(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(isinstance(layer.weight, torch.nn.Parameter) for layer in layers)
    assert norm.weight.tolist() == [1, 1, 1]
    torch.nn.Linear(3, 3)
    assert not torch.equal(torch.get_rng_state(), before)


def test_a_loaded_model_has_its_weights_and_a_new_one_random_ones() -> None:
    first, second = load_tiny_model().state_dict(), load_tiny_model().state_dict()
    assert all(torch.equal(values, second[name]) for name, values in first.items())
    drawn = new_model().state_dict()
    name = "transformer.resblocks.0.mlp.c_fc.weight"
    assert not torch.equal(drawn[name], new_model().state_dict()[name])
