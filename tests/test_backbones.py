"""Backbones give what open_clip gives, for pixels and texts alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from sparc_dist.backbones import Backbone, Scorer
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError
from sparc_dist.prompts.bank import PromptBank
from sparc_dist.prompts.compound import all_pairs

CLASSES = ("cat", "potted plant", "bus")
SMALL = "ViT-S-32-alt"


@pytest.fixture(scope="module")
def tiny() -> Backbone:
    return Backbone(BackboneConfig(name="tiny", model="sparc-tiny"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint file of a real open_clip architecture under random weights."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "small.pt"
    torch.save(open_clip.create_model(SMALL, load_weights=False).state_dict(), path)
    return path


def noise(count: int, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 255, (count, size, size, 3), dtype=np.uint8)


def test_pixels_are_normalised_as_open_clips_own_transform_does(tiny: Backbone) -> None:
    pixels = noise(3, tiny.image_size)
    transform = open_clip.image_transform(
        tiny.image_size,
        is_train=False,
        mean=tiny.model.visual.image_mean,
        std=tiny.model.visual.image_std,
    )
    batch = torch.stack([transform(Image.fromarray(image)) for image in pixels])
    with torch.inference_mode():
        expected = tiny.model.encode_image(batch, normalize=True)
    np.testing.assert_allclose(tiny.encode_images(pixels, 2), expected, atol=1e-5)


def test_a_singleton_is_the_normalised_mean_of_its_80_templates(tiny: Backbone) -> None:
    bank = PromptBank(CLASSES, tuple(all_pairs(CLASSES)))
    texts = tiny.embed(bank)
    assert len(open_clip.OPENAI_IMAGENET_TEMPLATES) == 80
    for index, name in enumerate(CLASSES):
        each = [template(name) for template in open_clip.OPENAI_IMAGENET_TEMPLATES]
        mean = tiny.encode_texts(each).mean(0)
        np.testing.assert_allclose(texts.singleton[index], mean / mean.norm(), atol=1e-6)
    np.testing.assert_allclose(texts.auxiliary, tiny.encode_texts(CLASSES), atol=1e-6)
    compound = tiny.encode_texts(["cat and potted plant", "cat and bus", "potted plant and bus"])
    np.testing.assert_allclose(texts.compound, compound, atol=1e-6)


def test_scores_are_cosines_in_float32(tiny: Backbone) -> None:
    bank = PromptBank(CLASSES, ())
    scores, embedding = Scorer(tiny, tiny.embed(bank)).score(noise(5, tiny.image_size), 2)
    assert scores.singleton.dtype == np.float32
    assert scores.compound.shape == (5, 0)
    cosine = embedding @ tiny.embed(bank).auxiliary.T
    np.testing.assert_allclose(scores.auxiliary, cosine, atol=1e-6)
    assert np.abs(scores.auxiliary).max() <= 1


def test_weights_from_a_checkpoint_file(checkpoint: Path) -> None:
    config = BackboneConfig(name="small", model=SMALL, weights=str(checkpoint))
    backbone = Backbone(config)
    torch.manual_seed(0)
    expected = open_clip.create_model(SMALL, load_weights=False).eval()
    assert backbone.image_size == 224
    tokens = open_clip.get_tokenizer(SMALL)(["a cat"])
    with torch.inference_mode():
        text = expected.encode_text(tokens, normalize=True)
    np.testing.assert_allclose(backbone.encode_texts(["a cat"]), text, atol=1e-6)
    assert backbone.weights_sha256() == Backbone(config).weights_sha256()


def test_another_architectures_checkpoint_is_refused_in_a_sentence(checkpoint: Path) -> None:
    config = BackboneConfig(name="b", model="RN50-quickgelu", weights=str(checkpoint))
    with pytest.raises(UserError, match=r"Backbone b: the weights .* cannot be loaded"):
        Backbone(config)


def test_weights_under_the_wrong_activation_are_refused() -> None:
    config = BackboneConfig(name="b", model="ViT-B-32", weights="metaclip_400m")
    with pytest.raises(UserError, match="write model: ViT-B-32-quickgelu"):
        Backbone(config)
