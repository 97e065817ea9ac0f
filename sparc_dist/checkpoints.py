"""Models with their weights: from open_clip's tags, and from files in the forms people have."""

from __future__ import annotations

import math
import os
import zipfile
from typing import Any

import open_clip
import torch
from open_clip.model import resize_pos_embed

from sparc_dist.config import BackboneConfig, is_file_name
from sparc_dist.errors import UserError

RESNET_STRIDE = 32  # pixels of the input to a step of the attention pool
#: What OpenAI's archives hold beside weights.
_NO_WEIGHTS = ("input_resolution", "context_length", "vocab_size")


def create_model(config: BackboneConfig) -> Any:
    """The model of a config, in float32 on the CPU, at its input size."""
    if config.model not in open_clip.list_models():
        raise UserError(
            f"Backbone {config.name}: open_clip knows no model {config.model}; "
            "check its spelling against open_clip.list_models()."
        )
    if is_file_name(config.weights or "") and not os.path.isfile(config.weights or ""):
        raise UserError(
            f"Backbone {config.name}: there is no weights file {config.weights}; put the "
            f"checkpoint of {config.model} there, on every node."
        )
    _check_activation(config)
    # open_clip resizes the position embeddings of ViTs itself, those of ResNets it cannot.
    resnet = config.model.startswith("RN")
    try:
        model: Any = _with_weights(config, None if resnet else config.image_size)
    except Exception as error:  # the hub, torch and open_clip each raise their own
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"Backbone {config.name}: the weights {config.weights} of {config.model} cannot be "
            f"loaded ({reason}); name a checkpoint file of that model under `weights`."
        ) from None
    if resnet and config.image_size is not None:
        _resize_attention_pool(model.visual, config)
    return model


def _with_weights(config: BackboneConfig, image_size: int | None) -> Any:
    weights = config.weights or ""
    if not os.path.isfile(weights) or not _is_torchscript(weights):
        return open_clip.create_model(config.model, pretrained=weights, force_image_size=image_size)
    # The form in which OpenAI publishes its weights. open_clip reads it only after fetching it
    # by itself; only the tensors are taken, nothing in the archive is run.
    model = open_clip.create_model(config.model, load_weights=False, force_image_size=image_size)
    archive: Any = torch.jit.load(weights, map_location="cpu")  # type: ignore[no-untyped-call]
    state = archive.state_dict()
    kept = {name: value.float() for name, value in state.items() if name not in _NO_WEIGHTS}
    resize_pos_embed(kept, model)
    model.load_state_dict(kept)
    return model


def _is_torchscript(path: str) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _resize_attention_pool(visual: Any, config: BackboneConfig) -> None:
    """Fit a ResNet's attention pool to another input size (bicubic, class token kept)."""
    side, rest = divmod(config.image_size or 0, RESNET_STRIDE)
    if rest or not side:
        raise UserError(
            f"Backbone {config.name}: a ResNet's image_size must be a multiple of "
            f"{RESNET_STRIDE}, and {config.image_size} is not; change it."
        )
    positions = visual.attnpool.positional_embedding.data
    token, grid = positions[:1], positions[1:]
    old = math.isqrt(len(grid))
    if side != old:
        planes = torch.nn.functional.interpolate(
            grid.T.reshape(1, -1, old, old), (side, side), mode="bicubic", align_corners=False
        )
        grid = planes.reshape(-1, side * side).T
    visual.attnpool.positional_embedding = torch.nn.Parameter(torch.cat([token, grid]))
    visual.image_size = config.image_size


def _check_activation(config: BackboneConfig) -> None:
    """open_clip only warns when weights meet the wrong activation, and the scores are wrong."""
    weights = config.weights or ""
    tag = open_clip.get_pretrained_cfg(config.model, weights)
    quick = open_clip.get_model_config(config.model).get("quick_gelu", False)
    plain = config.model.removesuffix("-quickgelu")
    # Archives of OpenAI's form are OpenAI's, and those were trained with QuickGELU.
    openai = os.path.isfile(weights) and _is_torchscript(weights)
    missed = openai and not quick and f"{plain}-quickgelu" in open_clip.list_models()
    if missed or (tag and tag.get("quick_gelu", False) != quick):
        raise UserError(
            f"Backbone {config.name}: the weights {config.weights} give wrong scores under "
            f"{config.model}; write model: {plain if quick else plain + '-quickgelu'}."
        )
