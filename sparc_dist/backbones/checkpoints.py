"""Models with their weights, from open_clip's tags or from checkpoint files."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from typing import Any

import open_clip
import torch
from open_clip.model import resize_pos_embed
from torch.nn import init
from torch.overrides import TorchFunctionMode
from torch.utils.serialization import config as serialization

from sparc_dist.backbones.check import check_model
from sparc_dist.backbones.torchscript import is_torchscript, read_tensors
from sparc_dist.backbones.weights import find_checkpoint
from sparc_dist.config.backbone import WEIGHTS, WRITE_MODEL, BackboneConfig
from sparc_dist.errors import UserError, one_line

RESNET_STRIDE = 32  # input pixels per step of the attention pool
#: Entries of OpenAI's archives that are not weights.
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size")
_POSITIONS = "visual.positional_embedding"
#: What fills a tensor with random numbers.
DRAWS = {
    init.kaiming_uniform_,
    init.normal_,
    init.trunc_normal_,
    init.uniform_,
    init.xavier_uniform_,
}


def create_model(config: BackboneConfig) -> tuple[Any, str]:
    """Returns the model of a config, in float32 on the CPU, and the path of its weights."""
    check_model(config)
    tag = open_clip.get_pretrained_cfg(config.model, config.tag)
    if tag:
        _check_activation(config, tag.get("quick_gelu", False))
    path = find_checkpoint(config)
    # open_clip resizes the position embeddings of ViTs, but not those of ResNets.
    resnet = config.model.startswith("RN")
    try:
        with NoDraws():
            model: Any = _load_model(config, path, None if resnet else config.image_size)
    except UserError:
        raise
    except Exception as error:  # torch and open_clip raise many types
        location = "" if path == config.weights else f", stored in {path},"
        raise UserError(
            f"{config.place}: the weights {config.weights} of {config.model}{location} "
            f"cannot be loaded ({one_line(error, 200)}); set {WEIGHTS} to a checkpoint of "
            "that model."
        ) from None
    if resnet and config.image_size is not None:
        _resize_attention_pool(model.visual, config)
    return model, path


def _load_model(config: BackboneConfig, path: str, image_size: int | None) -> Any:
    """Returns the model with the tensors of a file; no code in the file is run."""
    options = {"force_image_size": image_size, "force_preprocess_cfg": _normalisation(config)}
    if is_torchscript(path):
        # Archives in this form are OpenAI's, whose models were trained with QuickGELU.
        _check_activation(config, True)
        return _load_openai_form(config, path, options)
    zipped = zipfile.is_zipfile(path)
    # Mapped into memory, a file is copied once, into the model; torch's old format cannot be.
    with serialization.patch({"load.mmap": zipped}):  # type: ignore[attr-defined]
        if not path.endswith((".safetensors", ".npz", ".npy")):
            _check_tensors_only(path, zipped)
        return open_clip.create_model(config.model, pretrained=path, weights_only=True, **options)


def _load_openai_form(config: BackboneConfig, path: str, options: dict[str, Any]) -> Any:
    """Returns the model with the tensors of a TorchScript archive."""
    model = open_clip.create_model(
        config.model, load_weights=False, pretrained_text=False, **options
    )
    state = {name: v for name, v in read_tensors(path).items() if name not in _NOT_WEIGHTS}
    if _POSITIONS in state:  # torch cannot interpolate in half precision
        state[_POSITIONS] = state[_POSITIONS].float()
    resize_pos_embed(state, model)
    # The other tensors become float32 as they are copied into the model, so that there is never a
    # second float32 copy of all weights in memory.
    model.load_state_dict(state)
    return model


def _check_tensors_only(path: str, zipped: bool) -> None:
    """Raises an error for a checkpoint that has more than tensors, or compressed ones.

    open_clip reads a file that raises TypeError a second time, in the way of torch's environment
    variables, which may allow code; the file has been read without an error before.
    """
    if zipped:
        with zipfile.ZipFile(path) as archive:
            if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
                raise ValueError("its records are compressed, which torch never does")
    torch.load(path, "cpu", weights_only=True)


def _normalisation(config: BackboneConfig) -> dict[str, tuple[float, ...]]:
    """Returns the mean and SD of the pixels that the weights were trained on.

    open_clip knows them for its tags. A file is assumed to use those of most tags of its model;
    open_clip would assume CLIP's, which are wrong for SigLIP and MobileCLIP, for example.
    """
    named = open_clip.get_pretrained_cfg(config.model, config.tag)
    names = open_clip.list_pretrained_tags_by_model(config.model)
    tags = [named] if named else [open_clip.get_pretrained_cfg(config.model, n) for n in names]
    counts = Counter((tuple(tag["mean"]), tuple(tag["std"])) for tag in tags if "mean" in tag)
    for (mean, std), _ in counts.most_common(1):
        return {"mean": mean, "std": std}
    return {}


def _resize_attention_pool(visual: Any, config: BackboneConfig) -> None:
    """Resizes a ResNet's attention pool to another input size (bicubic, keeps the class token)."""
    side, remainder = divmod(config.image_size or 0, RESNET_STRIDE)
    if remainder or not side:
        raise UserError(
            f"{config.place}: a ResNet's image_size must be a multiple of "
            f"{RESNET_STRIDE}, not {config.image_size}; change it."
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


def _check_activation(config: BackboneConfig, quick_gelu: bool) -> None:
    """Raises UserError if the weights were trained with another activation function.

    open_clip only warns, and the scores would be wrong.
    """
    plain = config.model.removesuffix("-quickgelu")
    expected = f"{plain}-quickgelu" if quick_gelu else plain
    actual = open_clip.get_model_config(config.model).get("quick_gelu", False)
    if actual != quick_gelu and expected in open_clip.list_models():
        raise UserError(
            f"{config.place}: the weights {config.weights} give wrong scores with "
            f"{config.model}; {WRITE_MODEL} {expected}."
        )


class NoDraws(TorchFunctionMode):
    """Leaves the tensors of new models as they are, which saves half the time of loading one.

    Only for models whose weights are then loaded, all of them.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls a function of torch, unless it draws."""
        if func in DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
