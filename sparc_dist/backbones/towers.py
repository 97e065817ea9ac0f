"""Towers: the patches of the image tower, and the text tower without padding.

The embedding of an image averages small objects away. Its patches have embeddings in the space of
the texts, too, if the last attention is taken out of the tower: in a ResNet, the attention pool
then only projects each position; in a ViT, each token of the last block attends to itself.

A short text needs a fraction of the text tower's context. Texts are embedded in batches of one
length and one size, so the embedding of a text does not depend on the others: it has the same bits
whether they are new or were embedded earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import open_clip
import torch
from open_clip.modified_resnet import ModifiedResNet
from open_clip.transformer import ResidualAttentionBlock, VisionTransformer
from torch.nn.functional import linear, normalize

from sparc_dist.backbones.check import no_patches
from sparc_dist.backbones.cost import PRODUCTS
from sparc_dist.config import BackboneConfig

#: Texts per batch; the last batch of a length is filled up.
BATCH = 32


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
    if resnet:  # the last grid is (n, width, side, side)
        patches = last.c_proj(last.v_proj(inputs[0].flatten(2).transpose(1, 2)))
    else:
        patches = _of_tokens(visual, inputs[0])
    return embeddings, normalize(patches.float(), dim=-1)


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


@torch.inference_mode()
def encode_tokens(model: Any, tokens: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns embeddings (n, d) of length 1, on the device. tokens: (n, context), n ≥ 1."""
    lengths = torch.full((len(tokens),), tokens.shape[1])
    if ignores_padding(model):
        lengths = tokens.argmax(dim=1) + 1  # the token that ends a text has the highest number
    rows: list[torch.Tensor] = []
    order: list[torch.Tensor] = []
    for length in torch.unique(lengths).tolist():
        (places,) = torch.where(lengths == length)
        with shortened(model, length):
            for batch in torch.split(places, BATCH):
                filled = torch.cat([batch, batch[:1].expand(BATCH - len(batch))])
                encoded = model.encode_text(tokens[filled, :length].to(device), normalize=True)
                rows.append(encoded[: len(batch)].float())
        order.append(places)
    return torch.cat(rows)[torch.cat(order).argsort().to(device)]


def ignores_padding(model: Any) -> bool:
    """Whether what follows the end of a text has no influence on its embedding.

    So it is in CLIP's own text tower, where a token sees only those before it and the last one
    stands for the text. Others (SigLIP, towers from the hub) see all tokens.
    """
    return (
        isinstance(model, open_clip.CLIP)
        and model.text_pool_type == "argmax"
        and model.attn_mask is not None
    )


@contextmanager
def shortened(model: Any, length: int) -> Iterator[None]:
    """Shortens the context of a tower that ignores padding to ``length`` tokens, in the block."""
    if not ignores_padding(model):
        yield
        return
    positions, mask = model.positional_embedding, model.attn_mask
    try:
        model.positional_embedding = torch.nn.Parameter(positions[:length], requires_grad=False)
        model.attn_mask = mask[:length, :length]
        yield
    finally:
        model.positional_embedding, model.attn_mask = positions, mask
