"""Backbones return what open_clip returns, for pixels and texts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from sparc_dist.backbones.models import Backbone, Scorer
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError
from sparc_dist.prompts import PromptBank, TextEmbeddings, all_pairs
from tests.support.openai_form import write_openai_form
from tests.support.small_clip import SMALL, small_clip

CLASSES = ("cat", "potted plant", "bus")


@pytest.fixture(scope="module")
def tiny() -> Backbone:
    return Backbone(BackboneConfig(name="tiny", model="sparc-tiny"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint file of a real open_clip architecture with random weights."""
    path = tmp_path_factory.mktemp("weights") / "small.pt"
    torch.save(small_clip().state_dict(), path)
    return path


def test_a_checkpoint_in_torchs_old_format_has_the_same_weights(
    checkpoint: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.pt"
    torch.save(torch.load(checkpoint), old, _use_new_zipfile_serialization=False)
    found, expected = (
        Backbone(BackboneConfig(name="b", model=SMALL, weights=str(path))).weights_sha256
        for path in (old, checkpoint)
    )
    assert found == expected


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


def test_background_classes_are_embedded_after_the_classes(tiny: Backbone) -> None:
    texts = tiny.embed(PromptBank(CLASSES, (), ("boat", "kite")))
    alone = tiny.embed(PromptBank(CLASSES, ()))
    assert len(texts.singleton) == len(texts.auxiliary) == len(CLASSES) + 2
    np.testing.assert_allclose(texts.singleton[: len(CLASSES)], alone.singleton, atol=1e-6)
    np.testing.assert_allclose(texts.auxiliary[-2:], tiny.encode_texts(["boat", "kite"]), atol=1e-6)


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
    expected = small_clip()
    assert backbone.image_size == 64
    tokens = open_clip.get_tokenizer(SMALL)(["a cat"])
    with torch.inference_mode():
        text = expected.encode_text(tokens, normalize=True)
    np.testing.assert_allclose(backbone.encode_texts(["a cat"]), text, atol=1e-6)
    assert backbone.weights_sha256 == Backbone(config).weights_sha256


def test_another_architectures_checkpoint_is_an_error(checkpoint: Path) -> None:
    config = BackboneConfig(name="b", model="RN50-quickgelu", weights=str(checkpoint))
    with pytest.raises(UserError, match=r"Backbone b: the weights .* cannot be loaded"):
        Backbone(config)


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("form", ["checkpoint", "openai_form"])
def test_a_truncated_checkpoint_is_an_error(
    request: pytest.FixtureRequest, tmp_path: Path, form: str, share: float
) -> None:
    whole: Path = request.getfixturevalue(form)
    broken = tmp_path / "broken.pt"
    content = whole.read_bytes()
    broken.write_bytes(content[: int(share * len(content))])
    model = SMALL if form == "checkpoint" else "RN50-quickgelu"
    config = BackboneConfig(name="b", model=model, weights=str(broken))
    with pytest.raises(UserError, match=r"Backbone b: the weights .* cannot be loaded \(.*`wei"):
        Backbone(config)


def test_an_openai_checkpoint_of_another_architecture_is_an_error(openai_form: Path) -> None:
    config = BackboneConfig(name="b", model="RN101-quickgelu", weights=str(openai_form))
    with pytest.raises(UserError, match=r"the weights .* of RN101-quickgelu cannot be loaded"):
        Backbone(config)


def test_weights_that_are_not_numbers_are_an_error(checkpoint: Path, tmp_path: Path) -> None:
    state = torch.load(checkpoint)
    state["visual.proj"][0, 0] = float("nan")
    torch.save(state, tmp_path / "nan.pt")
    config = BackboneConfig(name="b", model=SMALL, weights=str(tmp_path / "nan.pt"))
    backbone = Backbone(config)
    rows = backbone.encode_texts(["a cat"]).numpy()
    scorer = Scorer(backbone, TextEmbeddings(rows, rows, rows))
    with pytest.raises(UserError, match=r"Backbone b: .* not numbers; its weights are damaged"):
        scorer.score(noise(2, backbone.image_size), 2)


def test_weights_of_another_activation_are_an_error() -> None:
    config = BackboneConfig(name="b", model="ViT-B-32", weights="metaclip_400m")
    with pytest.raises(UserError, match="write model: ViT-B-32-quickgelu"):
        Backbone(config)


@pytest.fixture(scope="module")
def openai_form(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as OpenAI publishes them: a TorchScript archive in half precision."""
    torch.manual_seed(1)
    model = open_clip.create_model("RN50-quickgelu", load_weights=False).eval()
    return write_openai_form(model, tmp_path_factory.mktemp("openai") / "RN50.pt")


@cache
def resnet(weights: Path, image_size: int | None = None) -> Backbone:
    config = BackboneConfig(
        name="r", model="RN50-quickgelu", weights=str(weights), image_size=image_size
    )
    return Backbone(config)


def test_a_checkpoint_in_openais_form(openai_form: Path) -> None:
    backbone = resnet(openai_form)
    torch.manual_seed(1)
    expected = open_clip.create_model("RN50-quickgelu", load_weights=False).eval()
    open_clip.convert_weights_to_fp16(expected)
    expected.float()
    pixels = noise(1, 224)
    batch = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    mean, std = (
        torch.tensor(v).view(1, 3, 1, 1)
        for v in (expected.visual.image_mean, expected.visual.image_std)
    )
    with torch.inference_mode():
        image = expected.encode_image((batch - mean) / std, normalize=True)
    np.testing.assert_allclose(backbone.encode_images(pixels, 1), image, atol=1e-5)


def test_a_resnet_at_its_native_size_is_unchanged_to_the_bit(openai_form: Path) -> None:
    pixels = noise(1, 224)
    forced = resnet(openai_form, 224).encode_images(pixels, 1)
    assert torch.equal(forced, resnet(openai_form).encode_images(pixels, 1))


@pytest.mark.parametrize("size", [448, 512])
def test_a_larger_resnet_agrees_with_an_attention_pool_computed_by_hand(
    openai_form: Path, size: int
) -> None:
    backbone, native = resnet(openai_form, size), resnet(openai_form)
    assert backbone.image_size == size
    features: list[torch.Tensor] = []
    pool = backbone.model.visual.attnpool
    pool.register_forward_pre_hook(lambda module, inputs: features.append(inputs[0]))
    found = backbone.encode_images(noise(1, size), 1)
    (grid,) = features
    positions = native.model.visual.attnpool.positional_embedding.detach().double()
    expected = attention_pool(pool, grid.double(), enlarged(positions, size // 32))
    np.testing.assert_allclose(found, expected / expected.norm(), atol=1e-5)


def enlarged(positions: torch.Tensor, side: int) -> torch.Tensor:
    """Returns position embeddings (1 + 7², d) on a larger grid, by Keys' cubic kernel."""

    def kernel(x: float) -> float:
        x = abs(x)
        if x < 1:
            return 1.25 * x**3 - 2.25 * x**2 + 1
        return -0.75 * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0

    matrix = torch.zeros(side, 7, dtype=torch.float64)
    for row in range(side):
        centre = (row + 0.5) * 7 / side - 0.5
        for tap in range(int(np.floor(centre)) - 1, int(np.floor(centre)) + 3):
            matrix[row, min(max(tap, 0), 6)] += kernel(centre - tap)
    grid = positions[1:].reshape(7, 7, -1)
    larger = torch.einsum("ai,bj,ijd->abd", matrix, matrix, grid)
    return torch.cat([positions[:1], larger.reshape(side * side, -1)])


def attention_pool(pool: Any, grid: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Returns the attention of the mean over all positions; grid (1, d, side, side)."""
    cells = grid.flatten(2)[0].T
    tokens = torch.cat([cells.mean(0, keepdim=True), cells]) + positions
    weights: dict[str, torch.Tensor] = {
        name: value.detach().double() for name, value in pool.named_parameters()
    }

    def project(name: str, values: torch.Tensor) -> torch.Tensor:
        return values @ weights[f"{name}_proj.weight"].T + weights[f"{name}_proj.bias"]

    heads = int(pool.num_heads)
    query = project("q", tokens[:1]).view(heads, -1)
    keys, values = (project(n, tokens).view(len(tokens), heads, -1) for n in ("k", "v"))
    attention = torch.softmax(
        torch.einsum("hd,nhd->hn", query, keys) / query.shape[1] ** 0.5, dim=1
    )
    pooled: torch.Tensor = torch.einsum("hn,nhd->hd", attention, values).reshape(1, -1)
    return project("c", pooled)


def test_a_resnets_size_must_fit_its_stride(openai_form: Path) -> None:
    with pytest.raises(UserError, match="multiple of 32, not 450"):
        resnet(openai_form, 450)


def test_openais_archive_with_a_model_without_quickgelu_is_an_error(openai_form: Path) -> None:
    config = BackboneConfig(name="r", model="RN50", weights=str(openai_form))
    with pytest.raises(UserError, match="write model: RN50-quickgelu"):
        Backbone(config)


def test_the_precision_follows_the_device_unless_it_is_set(tiny: Backbone) -> None:
    config = BackboneConfig(name="tiny", model="sparc-tiny")
    assert (config.precision, tiny.precision) == ("auto", "fp32")
    assert Backbone(config, "meta").precision == "fp16"  # a device without a chip
    exact = config.model_copy(update={"precision": "fp32"})
    assert Backbone(exact, "meta").precision == "fp32"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_lower_precision_gives_float32_scores_near_those_of_float32(
    tiny: Backbone, precision: str
) -> None:
    config = BackboneConfig.model_validate(
        {"name": "half", "model": "sparc-tiny", "precision": precision}
    )
    half, texts = Backbone(config), tiny.embed(PromptBank(CLASSES, ()))
    pixels = noise(4, half.image_size)
    scorer = Scorer(half, texts)
    scores, embedding = scorer.score(pixels, 2)
    exact, _ = Scorer(tiny, texts).score(pixels, 2)
    assert scores.singleton.dtype == embedding.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=1), 1, atol=1e-6)
    difference = scorer.difference(pixels, 2)
    assert difference is not None
    found = [np.abs(scores.singleton - exact.singleton), np.abs(scores.auxiliary - exact.auxiliary)]
    assert difference["largest_difference"] == pytest.approx(np.max(found), abs=1e-6)
    assert difference["mean_difference"] == pytest.approx(np.mean(found), abs=1e-6)
    assert difference["largest_difference"] > 0
    assert Scorer(tiny, texts).difference(pixels, 2) is None
