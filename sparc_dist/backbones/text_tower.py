"""The text tower, without the padding: a short text needs a fraction of the context.

Texts are embedded in batches of one length and one size, so the embedding of a text does not depend
on the others: it has the same bits whether they are new or were embedded earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import open_clip
import torch

#: Texts per batch; the last batch of a length is filled up.
BATCH = 32


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
    """Gives a tower that ignores padding a context of ``length`` tokens."""
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
