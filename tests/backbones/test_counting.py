"""The cost of an image, compared with published figures and with a measured forward pass."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from sparc_dist.backbones import Cost, cost_of
from sparc_dist.backbones.cost import _known_costs, cost_key
from sparc_dist.backbones.counting import HUB_TEXT_TOWERS, count_cost
from sparc_dist.backbones.towers import embed_with_patches
from sparc_dist.config import OPENAI, TINY, BackboneConfig
from sparc_dist.errors import UserError

#: Input size and GFLOP of the paper's nine.
NINE = {
    "RN50x64": (448, 529),
    "ViT-L-14-336": (336, 382),
    "ViT-L-14": (224, 162),
    "RN50x16": (384, 149),
    "RN50x4": (288, 43),
    "ViT-B-16": (224, 35),
    "RN101": (224, 20),
    "RN50": (224, 12),
    "ViT-B-32": (224, 9),
}

#: Input size, GFLOP and millions of parameters, as open_clip's documentation profiles them.
OTHERS = {
    "ViT-B-16-SigLIP-512": (512, 216.24, 203.79),
    "ViT-SO400M-14-SigLIP-384": (384, 670.35, 877.96),
    "EVA02-L-14-336": (336, 381.86, 428.08),
    "convnext_large_d": (256, 89.76, 351.77),
    "swin_base_patch4_window7_224": (224, 30.86, 178.56),
    "vit_relpos_medium_patch16_cls_224": (224, 16.03, 101.94),
    "ViT-H-14-CLIPA-336": (336, 781.45, 968.64),
    "coca_ViT-B-32": (224, 9.19, 253.56),
    "coca_roberta-ViT-B-32": (224, 8.82, 420.37),
    "mt5-xl-ViT-H-14": (224, 334.59, 2306.75),
    "nllb-clip-base": (224, 8.82, 501.89),
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails any test that opens a connection."""

    def refuse(*arguments: Any) -> None:
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def backbone(model: str, image_size: int | None = None, features: str = "global") -> BackboneConfig:
    weights = None if model == TINY else "weights.pt"
    fields = {"name": "b", "model": model, "weights": weights, "image_size": image_size}
    return BackboneConfig.model_validate({**fields, "features": features})


def cost(model: str, image_size: int | None = None, features: str = "global") -> Cost:
    return count_cost(backbone(model, image_size, features))


@pytest.mark.parametrize("name", NINE)
def test_the_papers_nine(name: str) -> None:
    model, _ = OPENAI[name]
    size, gflop = NINE[name]
    found = cost(model)
    assert found.image_size == size
    assert found.gflop == pytest.approx(gflop, abs=0.5)
    assert found.width == open_clip.get_model_config(model)["embed_dim"]


@pytest.mark.parametrize("key", _known_costs())
def test_what_is_counted_is_what_the_package_holds(key: str) -> None:
    name, _, patches = key.partition(" with ")
    model, _, size = name.partition("@")
    found = cost(model, int(size) if size else None, "both" if patches else "global")
    assert found == _known_costs()[key]


@pytest.mark.parametrize("size", [None, 448, 512])
@pytest.mark.parametrize("features", ["global", "local", "both"])
def test_the_paper_needs_no_counting(size: int | None, features: str) -> None:
    for model, _ in OPENAI.values():
        if size is None or model.startswith("RN"):
            assert cost_key(backbone(model, size, features)) in _known_costs()


def test_a_model_that_is_not_held_is_counted() -> None:
    other = BackboneConfig(name="b", model="RN50", weights="weights.pt")
    assert cost_key(other) not in _known_costs()
    assert cost_of(other) == count_cost(other)


@pytest.mark.parametrize("model", OTHERS)
def test_other_architectures(model: str) -> None:
    size, gflop, millions = OTHERS[model]
    found = cost(model)
    assert found.image_size == size
    assert found.gflop == pytest.approx(gflop, rel=0.01)
    assert found.parameters == pytest.approx(millions * 1e6, rel=0.01)
    assert found.width == open_clip.get_model_config(model)["embed_dim"]
    assert found.activation_bytes > 3 * 4 * size**2


@pytest.mark.parametrize("model", ["MobileCLIP-S1", "PE-Core-T-16-384", "ViTamin-S"])
def test_architectures_without_a_published_profile(model: str) -> None:
    assert cost(model).gflop > 1


def test_the_bundled_model() -> None:
    found = cost(TINY)
    assert (found.image_size, found.width) == (64, 128)


@pytest.mark.parametrize(("model", "side", "width"), [("ViT-B-32", 7, 768), ("RN50", 7, 2048)])
def test_patches_cost_what_their_projections_cost(model: str, side: int, width: int) -> None:
    plain, local = cost(model), cost(model, features="both")
    assert (plain.patches, local.patches) == (0, side**2)
    # Of a ViT: values, output, the MLP of four times the width; of a ResNet: values.
    weights = 10 * width**2 if model == "ViT-B-32" else width**2
    expected = 2e-9 * side**2 * (weights + width * local.width)
    assert local.gflop - plain.gflop == pytest.approx(expected, rel=1e-6)
    assert plain.scoring_gflop(3200) == plain.gflop
    products = 2e-9 * side**2 * local.width * 3200
    assert local.scoring_gflop(3200) - local.gflop == pytest.approx(products, rel=1e-6)


def test_every_text_tower_of_the_hub_is_known() -> None:
    texts = [open_clip.get_model_config(name)["text_cfg"] for name in open_clip.list_models()]
    used = {text["hf_model_name"] for text in texts if "hf_model_name" in text}
    assert used <= set(HUB_TEXT_TOWERS)


@pytest.mark.parametrize("model", ["RN50-quickgelu", "ViT-S-32-alt", "ViT-B-16-SigLIP"])
def test_twice_the_side_is_four_times_the_cost(model: str) -> None:
    native, double = cost(model), cost(model, 448)
    assert (native.image_size, double.image_size) == (224, 448)
    # More than four times for ViTs: attention grows with the square of the number of patches.
    assert 3.8 < double.gflop / native.gflop < 4.6
    assert 3.8 < double.activation_bytes / native.activation_bytes < 4.2
    assert double.width == native.width


@pytest.mark.parametrize("model", [TINY, "ViT-S-32-alt", "RN50-quickgelu"])
@pytest.mark.parametrize("features", ["global", "local"])
def test_a_real_model_needs_what_was_counted(model: str, features: str, tmp_path: Path) -> None:
    found = cost(model, None, features)
    network = open_clip.create_model(model, load_weights=False).eval()
    assert found.parameters == sum(values.numel() for values in network.parameters())
    # A batch, so that the CPU's copy of a convolution's weights is small in comparison.
    images = 2 if model.startswith("RN") else 8
    batch = torch.zeros(images, 3, found.image_size, found.image_size)
    encode = network.encode_image
    if features == "local":
        encode = partial(embed_with_patches, network)
    peak = batch.nbytes + allocated(encode, batch, tmp_path / "trace.json")
    assert peak / images == pytest.approx(found.activation_bytes, rel=0.1)


def allocated(encode: Callable[[torch.Tensor], Any], batch: torch.Tensor, trace: Path) -> int:
    """Returns the peak memory of a forward pass, as torch's profiler reports it."""
    with (
        torch.inference_mode(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured,
    ):
        encode(batch)
    measured.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    memory = sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"])
    return max(accumulate(int(event["args"]["Bytes"]) for event in memory))


def test_an_unknown_model_is_an_error() -> None:
    with pytest.raises(UserError, match=r"b: open_clip has no model ViT-Z; did you mean ViT-.*\?"):
        cost("ViT-Z")


def test_a_size_that_the_model_cannot_take_is_an_error() -> None:
    with pytest.raises(UserError, match=r"Backbone b: ViT-B-32 .*\(.*size.*\).*`image_size`"):
        cost("ViT-B-32", 16)


def test_the_cost_is_counted_once_whatever_the_name() -> None:
    one, other = (BackboneConfig(name=name, model=TINY) for name in ("one", "other"))
    assert cost_of(one) is cost_of(other)


def test_nothing_is_logged_while_counting(caplog: pytest.LogCaptureFixture) -> None:
    cost("ViT-S-32-alt", 64)
    assert not caplog.records
