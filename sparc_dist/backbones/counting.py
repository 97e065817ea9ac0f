"""Counts the cost of an image under a backbone from the architecture alone.

The model is built on torch's meta device, where tensors have shapes but no data. This needs
neither weights nor memory, and nothing is downloaded.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any
from weakref import WeakSet

import open_clip
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from sparc_dist.backbones import tiny
from sparc_dist.backbones.check import check_model
from sparc_dist.backbones.cost import Cost
from sparc_dist.backbones.towers import embed_with_patches, ignores_padding
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError, one_line

#: The usual length of a text with a class name, in tokens.
TOKENS = 12
#: Parameters of the text towers that open_clip takes from the hub. Their configs are stored there,
#: so they cannot be built here. From the table of profiles in open_clip's documentation.
HUB_TEXT_TOWERS = {
    "roberta-base": 124_900_000,
    "xlm-roberta-base": 278_300_000,
    "xlm-roberta-large": 560_900_000,
    "google/mt5-base": 277_900_000,
    "google/mt5-xl": 1_674_700_000,
    "facebook/nllb-200-distilled-600M": 414_000_000,
    "facebook/nllb-200-distilled-1.3B": 767_100_000,
}


def count_cost(backbone: BackboneConfig) -> Cost:
    """Returns the cost of an image under a backbone, at its input size."""
    tiny.register()
    check_model(backbone)
    try:
        return _cost(backbone.model, backbone.image_size, backbone.features != "global")
    except Exception as error:  # open_clip, timm and torch raise many types
        raise UserError(
            f"{backbone.place}: {backbone.model} cannot be built ({one_line(error)}); "
            "check its `image_size`, and that the packages it needs are installed."
        ) from None


@cache
def _cost(name: str, image_size: int | None, patches: bool) -> Cost:
    model, parameters = _on_meta(name, image_size)
    size = model.visual.image_size
    side = int(size[0] if isinstance(size, tuple | list) else size)
    # The mode entered last sees an operation first. _PeakMemory has to see attention as one
    # operation, as a device computes it, before FlopCounterMode decomposes it.
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter, _PeakMemory() as memory:
        image = torch.empty(1, 3, side, side, device="meta")
        if patches:
            embedding, cells = embed_with_patches(model, image)
        else:
            embedding, cells = model.encode_image(image), None
    gflop = counter.get_total_flops() / 1e9
    tower = (side, gflop, parameters, memory.peak, embedding.shape[1])
    return Cost(*tower, _text_gflop(model, parameters), 0 if cells is None else cells.shape[1])


def _text_gflop(model: Any, parameters: int) -> float:
    """Returns the cost of a text: two operations per weight and token, of which few are padding.

    parameters: of both towers; a tower from the hub counts with its embeddings of tokens.
    """
    names = ("token_embedding", "text.token_embedding")
    modules = dict(model.named_modules())
    embeddings = sum(_parameters(modules[name]) for name in names if name in modules)
    weights = parameters - _parameters(model.visual) - embeddings
    tokens = TOKENS if ignores_padding(model) else model.context_length
    return 2 * weights * tokens / 1e9


def _on_meta(name: str, image_size: int | None) -> tuple[Any, int]:
    """Returns a model without data, and its number of parameters."""
    text = open_clip.get_model_config(name)["text_cfg"]
    hub_name = text.get("hf_model_name")
    built_in = {key: value for key, value in text.items() if not key.startswith("hf_")}
    # open_clip warns that no weights are loaded, which is intended here.
    logging.disable(logging.WARNING)
    try:
        with torch.device("meta"):
            model: Any = open_clip.create_model(
                name,
                load_weights=False,
                device="meta",
                force_image_size=image_size,
                # A text tower of open_clip's own replaces the one from the hub.
                **({"text_cfg": built_in} if hub_name else {}),
            )
    finally:
        logging.disable(logging.NOTSET)
    model.eval().requires_grad_(False)
    parameters = _parameters(model)
    if hub_name:  # an unknown tower counts as the largest, to overestimate rather than run out
        tower = HUB_TEXT_TOWERS.get(hub_name, max(HUB_TEXT_TOWERS.values()))
        parameters += tower - _parameters(model.text)
    return model, parameters


def _parameters(module: torch.nn.Module) -> int:
    return sum(values.numel() for values in module.parameters())


class _PeakMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches a computation. peak: the most bytes of its tensors that were alive at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._alive: WeakSet[torch.UntypedStorage] = WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        # Views and in-place results use memory that already existed.
        self._alive |= _storages(result) - _storages((args, kwargs))
        self.peak = max(self.peak, sum(storage.nbytes() for storage in self._alive))
        return result


def _storages(tree: Any) -> set[torch.UntypedStorage]:
    """Returns the storages of all tensors in a tree of values."""
    tensors = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
    return {tensor.untyped_storage() for tensor in tensors}
