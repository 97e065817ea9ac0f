"""The text tower: the prompt bank in each backbone's space, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError
from sparc_dist.pipeline.score import device
from sparc_dist.pipeline.waiting import result
from sparc_dist.plan import Scorers
from sparc_dist.prompts.bank import PromptBank

if TYPE_CHECKING:
    from sparc_dist.backbones import TextEmbeddings


@dataclass(frozen=True)
class Loaded:
    """What is known of a backbone once it has been loaded."""

    image_size: int
    weights_sha256: str
    device: str


@dataclass(frozen=True)
class EmbeddedPrompts:
    """A prompt bank under several backbones: the embeddings stay in Ray's object store.

    texts: references to {backbone: TextEmbeddings}. failures: of backbones that have none.
    """

    texts: list[Any]
    loaded: dict[str, Loaded]
    failures: dict[str, str]


def embed_prompts(
    backbones: Sequence[BackboneConfig], bank: PromptBank, scorers: Scorers, limit: float
) -> EmbeddedPrompts:
    """Run the text towers, on as many workers as there are scorers, on devices like theirs."""
    # Declared with its GPUs, not by options(): only so does Ray end the worker after the task
    # and with it the memory that the model held on the GPU. And a machine with GPUs may declare
    # no CPU.
    cpus = 0 if scorers.gpus else 1
    task = ray.remote(num_cpus=cpus, num_gpus=scorers.gpus, num_returns=2)(_embed_prompts)
    workers = min(scorers.actors, len(backbones))
    jobs = [task.remote(backbones[i::workers], bank, scorers) for i in range(workers)]
    found = EmbeddedPrompts([texts for texts, _ in jobs], {}, {})
    what = f"Loading {', '.join(b.name for b in backbones)} and embedding the prompts"
    for _, facts in jobs:
        for name, fact in result(facts, limit, what).items():
            if isinstance(fact, Loaded):
                found.loaded[name] = fact
            else:
                found.failures[name] = fact
    return found


def _embed_prompts(
    backbones: Sequence[BackboneConfig], bank: PromptBank, scorers: Scorers
) -> tuple[dict[str, TextEmbeddings], dict[str, Loaded | str]]:
    """One backbone after the other, so that a worker holds one at a time."""
    import torch  # here and not above: the driver needs none of it

    from sparc_dist.backbones import Backbone

    torch.set_num_threads(scorers.threads)
    texts: dict[str, TextEmbeddings] = {}
    facts: dict[str, Loaded | str] = {}
    for config in backbones:
        try:
            backbone = Backbone(config, device(scorers))
            texts[config.name] = backbone.embed(bank)
            facts[config.name] = Loaded(
                backbone.image_size, backbone.weights_sha256(), backbone.device.type
            )
        except UserError as error:
            facts[config.name] = str(error)
    return texts, facts
