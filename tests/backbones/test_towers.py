"""Patches against a loop over them, and the text tower against the one that open_clip runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from numpy.typing import NDArray

from sparc_dist.backbones import known_cost, towers
from sparc_dist.backbones.check import check_model
from sparc_dist.backbones.counting import _PeakMemory
from sparc_dist.backbones.models import Backbone, Scorer
from sparc_dist.backbones.towers import (
    BATCH,
    check_patches,
    embed_with_patches,
    encode_tokens,
    ignores_padding,
    local_similarities,
)
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError
from sparc_dist.prompts import PromptBank, all_pairs

Float64 = NDArray[np.float64]
CLASSES = ("cat", "sofa", "bus")
PROMPTS = 6
#: The image's embedding is the mean of the tokens, as in CLIPA.
AVERAGING = "ViT-S-32-alt, averaging"
CLIPA = {"no_ln_pre": True, "pool_type": "avg", "final_ln_after_pool": True}
#: Models, input sizes, not always their own, and numbers of patches. ViT-M scales in its blocks.
MODELS = [
    ("sparc-tiny", 64, 4),
    ("ViT-S-32-alt", 96, 9),
    ("ViT-M-16-alt", 64, 16),
    (AVERAGING, 96, 9),
    ("RN50-quickgelu", 96, 9),
    ("ViT-B-32-quickgelu", 96, 9),
]
#: Not open_clip's own ViT or ResNet, or one with an attentional pooler.
WITHOUT = ["ViT-B-16-SigLIP", "convnext_base", "EVA02-B-16", "MobileCLIP-S1", "coca_ViT-B-32"]
TEXTS = ["cat", "a photo of a traffic light", "cat and dog", *(f"number {i}" for i in range(40))]


def config(features: str, model: str = "sparc-tiny", **fields: Any) -> BackboneConfig:
    raw = {"name": "b", "model": model, "features": features, **fields}
    return BackboneConfig.model_validate(raw)


def noise(count: int, size: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 255, (count, size, size, 3), dtype=np.uint8)


def directions(*shape: int) -> torch.Tensor:
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(rows, dim=-1)


def tower(name: str, size: int) -> Any:
    """Returns the image tower of a model with random weights, with nothing left at 0 or 1."""
    if name == "sparc-tiny":
        return Backbone(config("global")).model.visual.requires_grad_(False)
    torch.manual_seed(0)
    parts = open_clip.get_model_config(name.partition(",")[0])
    vision = {**parts["vision_cfg"], "image_size": size, **(CLIPA if name == AVERAGING else {})}
    quick = parts.get("quick_gelu", False)
    visual = open_clip.model._build_vision_tower(parts["embed_dim"], vision, quick).eval()
    for key, values in visual.named_parameters():
        if values.ndim == 1:  # norms, biases and scales
            torch.nn.init.uniform_(values, 0.1, 0.3 if "bn" in key else 1.0)
    return visual.requires_grad_(False)


class ImageTower:
    """As much of a model as images need: the text towers are large."""

    def __init__(self, visual: Any) -> None:
        self.visual = self.encode_image = visual


def affine(x: Float64, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    return weight.numpy() @ x + bias.numpy()


def normed(x: Float64, norm: Any) -> Any:
    return (x - x.mean()) / np.sqrt(x.var() + norm.eps) * norm.weight.numpy() + norm.bias.numpy()


def patch_of_a_resnet(pool: Any, cell: Float64) -> Any:
    value = affine(cell, pool.v_proj.weight, pool.v_proj.bias)
    return affine(value, pool.c_proj.weight, pool.c_proj.bias)


def patch_of_a_vit(visual: Any, token: Float64) -> Any:
    block, width = visual.transformer.resblocks[-1], len(token)
    weights, biases = block.attn.in_proj_weight, block.attn.in_proj_bias
    value = affine(normed(token, block.ln_1), weights[2 * width :], biases[2 * width :])
    scales = [getattr(getattr(block, name), "gamma", torch.ones(1)) for name in ("ls_1", "ls_2")]
    first, second = (scale.numpy() for scale in scales)
    out, mlp = block.attn.out_proj, block.mlp
    token = token + first * affine(value, out.weight, out.bias)
    hidden = affine(normed(token, block.ln_2), mlp.c_fc.weight, mlp.c_fc.bias)
    active = mlp.gelu(torch.from_numpy(hidden)).numpy()
    token = token + second * affine(active, mlp.c_proj.weight, mlp.c_proj.bias)
    return normed(token, visual.ln_post) @ visual.proj.numpy()


def patches_of(visual: Any, image: torch.Tensor) -> list[Float64]:
    """Returns the embedding of each patch of an image (3, S, S), one after the other.

    What follows the trunk is computed in float64.
    """
    x = image[None]
    if hasattr(visual, "attnpool"):
        for part in (visual.stem, visual.layer1, visual.layer2, visual.layer3, visual.layer4):
            x = part(x)
        rows, columns = range(x.shape[2]), range(x.shape[3])
        cells = [x[0, :, row, column].double().numpy() for row in rows for column in columns]
        pool = visual.attnpool.double()
        return [patch_of_a_resnet(pool, cell) for cell in cells]
    x = visual.conv1(x)[0].flatten(1).T
    x = visual.ln_pre(torch.cat([visual.class_embedding[None], x]) + visual.positional_embedding)
    for block in visual.transformer.resblocks[:-1]:
        x = block(x[None])[0]
    visual.double()
    return [patch_of_a_vit(visual, token.double().numpy()) for token in x[1:]]


def local_score(patches: list[Float64], text: Float64, scale: float) -> float:
    similarities = [float(patch @ text) / float(np.sqrt(patch @ patch)) for patch in patches]
    total, weighted = 0.0, 0.0
    for similarity in similarities:
        weight = np.exp(scale * (similarity - max(similarities)))
        total += weight
        weighted += weight * similarity
    return weighted / total


@pytest.mark.parametrize(("name", "size", "count"), MODELS)
@torch.inference_mode()
def test_local_scores_are_those_of_a_loop_over_patches(name: str, size: int, count: int) -> None:
    visual = tower(name, size)
    image = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1))
    embedding, patches = embed_with_patches(ImageTower(visual), image)
    assert torch.equal(embedding, visual(image))
    assert patches.shape == (1, count, embedding.shape[1])
    texts = directions(PROMPTS, embedding.shape[1])
    expected = patches_of(visual, image[0])
    for scale in (100.0, 5.0):
        found = local_similarities(patches, texts, scale)
        for column, text in enumerate(texts.double().numpy()):
            score = local_score(expected, text, scale)
            assert float(found[0, column]) == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("products", [1, 100, 2**22])
def test_scores_do_not_depend_on_the_parts_in_which_products_are_made(
    products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches, texts = directions(5, 9, 16), directions(7, 16)
    similarities = torch.einsum("npd,jd->njp", patches, texts)
    expected = (torch.softmax(50 * similarities, dim=-1) * similarities).sum(-1)
    monkeypatch.setattr(towers, "PRODUCTS", products)
    np.testing.assert_allclose(local_similarities(patches, texts, 50), expected, atol=1e-6)
    assert local_similarities(patches, texts[:0], 50).shape == (5, 0)


def test_products_of_patches_and_prompts_take_the_planned_memory() -> None:
    images, prompts = 64, 3200  # all products at once: 642 MB, three times
    patches, texts = (
        torch.empty(*shape, 1024, device="meta") for shape in ((images, 784), (prompts,))
    )
    cost = known_cost(config("local"))
    assert cost is not None
    with torch.inference_mode(), _PeakMemory() as memory:
        local_similarities(patches, texts, 100)
    assert 0 < memory.peak - 3 * 4 * images * prompts < cost.product_bytes < 51e6


@pytest.mark.parametrize("features", ["local", "both"])
def test_a_scorer_scores_all_kinds_of_prompts_with_the_features(features: str) -> None:
    bank = PromptBank(CLASSES, tuple(all_pairs(CLASSES)))
    plain, backbone = Backbone(config("global")), Backbone(config(features, local_scale=40))
    texts, pixels = plain.embed(bank), noise(5, plain.image_size)
    scores, embedding = Scorer(backbone, texts).score(pixels, 2)
    whole, stored = Scorer(plain, texts).score(pixels, 2)
    np.testing.assert_array_equal(embedding, stored)  # the image's own, whatever the features
    _, patches = backbone.encode_patches(torch.from_numpy(pixels))
    for kind in ("singleton", "auxiliary", "compound"):
        rows = torch.from_numpy(getattr(texts, kind))
        expected = local_similarities(patches, rows, 40).numpy()
        if features == "both":
            expected = (expected + getattr(whole, kind)) / 2
        found = getattr(scores, kind)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_lower_precision_is_compared_with_float32_on_local_scores() -> None:
    exact, half = Backbone(config("both")), Backbone(config("both", precision="bf16"))
    texts, pixels = exact.embed(PromptBank(CLASSES, ())), noise(4, exact.image_size)
    found = Scorer(half, texts).difference(pixels, 2)
    (low, _), (high, _) = (Scorer(each, texts).score(pixels, 2) for each in (half, exact))
    parts = [np.abs(low.singleton - high.singleton), np.abs(low.auxiliary - high.auxiliary)]
    assert found is not None
    assert found["largest_difference"] == pytest.approx(np.max(parts), abs=1e-6)
    assert found["largest_difference"] > 0


@pytest.mark.parametrize("model", WITHOUT)
def test_a_model_without_patches_is_refused_by_name(model: str) -> None:
    check_model(config("global", model, weights="w.pt"))
    with pytest.raises(UserError, match=rf"Backbone b: {model} has no local features.*features: g"):
        check_model(config("local", model, weights="w.pt"))


def test_a_tower_that_its_config_does_not_show_is_refused_when_it_is_made() -> None:
    parts = open_clip.get_model_config("ViT-S-32-alt")
    for change in ({"attentional_pool": True}, {"scale_attn": True}):
        with torch.device("meta"):
            build = open_clip.model._build_vision_tower
            visual = build(parts["embed_dim"], {**parts["vision_cfg"], **change})
        with pytest.raises(UserError, match="b: ViT-S-32-alt has no local features"):
            check_patches(config("both", "ViT-S-32-alt", weights="w.pt"), visual)


def test_every_model_of_open_clip_is_accepted_or_refused_as_its_config_says() -> None:
    refused = set()
    models = {*open_clip.list_models()} - {"sparc-tiny"}
    for model in models:
        try:
            check_model(config("both", model, weights="w.pt"))
        except UserError:
            refused.add(model)
    assert not {name for name in models if name.startswith("RN")} & refused
    assert {"ViT-B-32-quickgelu", "ViT-L-14-336", "ViT-H-14-CLIPA"}.isdisjoint(refused)
    assert {*WITHOUT} <= refused


def model_of(name: str) -> Any:
    torch.manual_seed(0)
    small = {"layers": 1, "width": 64, "heads": 2}
    model = open_clip.create_model(
        name, load_weights=False, vision_cfg={"layers": 1, "width": 64}, text_cfg=small
    )
    return model.eval()


def assert_as_open_clip(model: Any, tokens: torch.Tensor) -> None:
    with torch.inference_mode():
        expected = model.encode_text(tokens, normalize=True)
    found = encode_tokens(model, tokens, torch.device("cpu"))
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


def test_embeddings_are_those_of_the_whole_context() -> None:
    model = model_of("ViT-B-32-quickgelu")
    assert_as_open_clip(model, open_clip.get_tokenizer("ViT-B-32-quickgelu")(TEXTS))


def test_a_tower_that_sees_padding_is_not_shortened() -> None:
    model = model_of("ViT-B-16-SigLIP")
    assert not ignores_padding(model)
    assert_as_open_clip(model, torch.randint(1, 1000, (3, model.context_length)))


def test_a_text_has_the_same_bits_in_any_company() -> None:
    model = model_of("ViT-B-32-quickgelu")
    tokens = open_clip.get_tokenizer("ViT-B-32-quickgelu")(TEXTS)
    cpu = torch.device("cpu")
    whole = encode_tokens(model, tokens, cpu)
    assert len(TEXTS) > BATCH
    for places in ([0], [2, 0, 1], list(range(5, 43, 3))):
        assert torch.equal(encode_tokens(model, tokens[places], cpu), whole[places])


def test_the_model_is_left_as_it_was() -> None:
    model = model_of("ViT-B-32-quickgelu")
    before = {name: values.clone() for name, values in model.state_dict().items()}
    encode_tokens(model, open_clip.get_tokenizer("ViT-B-32-quickgelu")(TEXTS), torch.device("cpu"))
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
