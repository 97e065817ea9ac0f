"""Patches: embeddings of the parts of an image, and how similar prompts are to them.

The embedding of an image averages small objects away. Its patches have embeddings in the space of
the texts, too, if the last attention is taken out of the tower: in a ResNet, the attention pool
then only projects each position; in a ViT, each token of the last block attends to itself.
"""

from __future__ import annotations

from typing import Any

import torch
from open_clip.modified_resnet import ModifiedResNet
from open_clip.transformer import ResidualAttentionBlock, VisionTransformer
from torch.nn.functional import linear, normalize

from sparc_dist.backbones.cost import PRODUCTS
from sparc_dist.backbones.names import no_patches
from sparc_dist.config import BackboneConfig


def check_patches(config: BackboneConfig, visual: Any) -> None:
    """Raises UserError if an image tower has no patches whose embeddings are known."""
    if isinstance(visual, ModifiedResNet):
        return
    # A block of another type may norm or scale what it attends to.
    plain = isinstance(visual, VisionTransformer) and visual.attn_pool is None
    if not plain or type(visual.transformer.resblocks[-1]) is not ResidualAttentionBlock:
        raise no_patches(config)


def embed_with_patches(model: Any, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns embeddings (n, d), and those of the patches (n, p, d) in float32 and of length 1.

    images: (n, 3, S, S), standardised. The tower runs once: the patches start from what goes into
    its last step.
    """
    visual = model.visual
    resnet = isinstance(visual, ModifiedResNet)
    last = visual.attnpool if resnet else visual.transformer.resblocks[-1]
    inputs: list[torch.Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    try:
        embeddings: torch.Tensor = model.encode_image(images)
    finally:
        hook.remove()
    patches = _of_grid(last, *inputs) if resnet else _of_tokens(visual, *inputs)
    return embeddings, normalize(patches.float(), dim=-1)


def _of_grid(pool: Any, grid: torch.Tensor) -> torch.Tensor:
    """Returns patches (n, p, d) of a ResNet's last grid (n, width, side, side)."""
    cells = grid.flatten(2).transpose(1, 2)
    patches: torch.Tensor = pool.c_proj(pool.v_proj(cells))
    return patches


def _of_tokens(visual: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Returns patches (n, p, d) of a ViT's tokens (n, 1 + p, width) before its last block."""
    block = visual.transformer.resblocks[-1]
    attention, width = block.attn, tokens.shape[-1]
    cells = tokens[:, 1:]  # without the class token
    # The weights of queries, keys and values are stored one above the other.
    weight, bias = attention.in_proj_weight[-width:], attention.in_proj_bias[-width:]
    values = linear(block.ln_1(cells), weight, bias)
    cells = cells + block.ls_1(attention.out_proj(values))
    cells = cells + block.ls_2(block.mlp(block.ln_2(cells)))
    patches: torch.Tensor = visual.ln_post(cells) @ visual.proj
    return patches


def local_similarities(patches: torch.Tensor, texts: torch.Tensor, scale: float) -> torch.Tensor:
    """Returns the similarities (n, P) of images and prompts: each prompt weighs the patches itself.

    patches: (n, p, d). texts: (P, d). All are of length 1 and in float32. A patch's weight is the
    softmax, over the patches, of ``scale`` times its similarity.
    """
    rows = []
    for part in torch.split(patches, max(1, PRODUCTS // patches.shape[1])):
        at_a_time = max(1, PRODUCTS // (part.shape[0] * part.shape[1]))
        columns = [_pooled(part, prompts, scale) for prompts in torch.split(texts, at_a_time)]
        rows.append(torch.cat(columns).T)
    return torch.cat(rows)


def _pooled(patches: torch.Tensor, texts: torch.Tensor, scale: float) -> torch.Tensor:
    """Returns the similarities (P, n) of so few patches and prompts that all products fit."""
    similarities = (texts @ patches.flatten(0, 1).T).view(-1, *patches.shape[:2])
    weights = torch.softmax(scale * similarities, dim=-1)
    return weights.mul_(similarities).sum(dim=-1)
