"""Models with their weights: from open_clip's tags, and from files in the forms people have."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from typing import Any

import open_clip
import torch
from open_clip.model import resize_pos_embed

from sparc_dist.backbones.weights import find_checkpoint
from sparc_dist.config import SIMULATED, BackboneConfig
from sparc_dist.errors import UserError, one_line

RESNET_STRIDE = 32  # pixels of the input to a step of the attention pool
#: What OpenAI's archives hold beside weights.
_NO_WEIGHTS = ("input_resolution", "context_length", "vocab_size")
_POSITIONS = "visual.positional_embedding"


def check_model(config: BackboneConfig) -> None:
    """Refuse a model that nobody knows."""
    if config.model == SIMULATED:
        raise UserError(
            f"Backbone {config.name}: {SIMULATED} is no model that could look at an image; make "
            "its scores with sparc-dist simulate."
        )
    if config.model not in open_clip.list_models():
        raise UserError(
            f"Backbone {config.name}: open_clip knows no model {config.model}; "
            "check its spelling against open_clip.list_models()."
        )


def create_model(config: BackboneConfig) -> Any:
    """The model of a config, in float32 on the CPU, at its input size."""
    check_model(config)
    tag = open_clip.get_pretrained_cfg(config.model, config.weights)
    if tag:
        _check_activation(config, tag.get("quick_gelu", False))
    path = find_checkpoint(config)
    if _is_torchscript(path):
        # Archives of OpenAI's form are OpenAI's, and those were trained with QuickGELU.
        _check_activation(config, True)
    # open_clip resizes the position embeddings of ViTs itself, those of ResNets it cannot.
    resnet = config.model.startswith("RN")
    try:
        model: Any = _with_weights(config, path, None if resnet else config.image_size)
    except Exception as error:  # torch and open_clip each raise their own
        kept = "" if path == config.weights else f", kept in {path},"
        raise UserError(
            f"Backbone {config.name}: the weights {config.weights} of {config.model}{kept} cannot "
            f"be loaded ({one_line(error, 200)}); name a checkpoint file of that model under "
            "`weights`."
        ) from None
    if resnet and config.image_size is not None:
        _resize_attention_pool(model.visual, config)
    return model


def _with_weights(config: BackboneConfig, path: str, image_size: int | None) -> Any:
    options = {"force_image_size": image_size, "force_preprocess_cfg": _normalisation(config)}
    if not _is_torchscript(path):
        return open_clip.create_model(config.model, pretrained=path, **options)
    # The form in which OpenAI publishes its weights. open_clip reads it only after fetching it
    # by itself; only the tensors are taken, nothing in the archive is run.
    model = open_clip.create_model(config.model, load_weights=False, **options)
    archive: Any = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
    state = {name: v for name, v in archive.state_dict().items() if name not in _NO_WEIGHTS}
    if _POSITIONS in state:  # torch interpolates nothing in half precision
        state[_POSITIONS] = state[_POSITIONS].float()
    resize_pos_embed(state, model)
    # What else is in half precision becomes float32 on its way into the model: so the whole of it
    # is never in memory twice.
    model.load_state_dict(state)
    return model


def _normalisation(config: BackboneConfig) -> dict[str, tuple[float, ...]]:
    """The mean and SD of the pixels that the weights were trained on.

    open_clip knows them of its tags. A file is taken to want what most tags of its model do: of
    SigLIP and MobileCLIP, for instance, that is not what open_clip takes for files, CLIP's.
    """
    named = open_clip.get_pretrained_cfg(config.model, config.weights)
    tags = open_clip.list_pretrained_tags_by_model(config.model)
    known = [named] if named else [open_clip.get_pretrained_cfg(config.model, tag) for tag in tags]
    used = Counter((tuple(tag["mean"]), tuple(tag["std"])) for tag in known if "mean" in tag)
    for (mean, std), _ in used.most_common(1):
        return {"mean": mean, "std": std}
    return {}


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


def _check_activation(config: BackboneConfig, quick: bool) -> None:
    """open_clip only warns when weights meet the wrong activation, and the scores are wrong."""
    plain = config.model.removesuffix("-quickgelu")
    right = f"{plain}-quickgelu" if quick else plain
    own = open_clip.get_model_config(config.model).get("quick_gelu", False)
    if own != quick and right in open_clip.list_models():
        raise UserError(
            f"Backbone {config.name}: the weights {config.weights} give wrong scores under "
            f"{config.model}; write model: {right}."
        )
