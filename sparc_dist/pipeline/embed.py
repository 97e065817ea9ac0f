"""The text pass: embeds the prompt bank with each backbone, once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparc_dist.config import BackboneConfig
from sparc_dist.errors import explain
from sparc_dist.pipeline.executor import Needs, current, get, share
from sparc_dist.pipeline.progress import heartbeat
from sparc_dist.planning import Scorers
from sparc_dist.prompts import PromptBank, TextEmbeddings


@dataclass(frozen=True)
class Loaded:
    """Facts about a backbone that are known once it has been loaded.

    input: the images that it takes. text_seconds: the time that its texts took.
    """

    input: dict[str, Any]
    weights_sha256: str
    device: str
    text_seconds: float


@dataclass(frozen=True)
class EmbeddedPrompts:
    """A prompt bank under several backbones.

    texts: a reference to {backbone: TextEmbeddings}. failures: why other backbones have none.
    """

    texts: Any
    loaded: dict[str, Loaded]
    failures: dict[str, str]


def embed_prompts(
    backbones: Sequence[tuple[BackboneConfig, str]],
    bank: PromptBank,
    scorers: Scorers,
    limit: float,
    known: Mapping[str, TextEmbeddings] | None = None,
) -> EmbeddedPrompts:
    """Runs the text towers on as many workers as there are scorers, on devices like theirs.

    backbones: each with the file that keeps its texts. known: embeddings that a labeler has, by the
    name of the backbone; with them, the backbone is only loaded.
    """
    # A GPU machine may declare no CPU.
    needs = Needs(cpus=0 if scorers.gpus else 1, gpus=scorers.gpus)
    workers = min(scorers.actors, len(backbones))
    parts = [(backbones[i::workers], bank, scorers, known or {}) for i in range(workers)]
    jobs = [current().submit(_embed_prompts, part, needs) for part in parts]
    names = ", ".join(backbone.name for backbone, _ in backbones)
    doing = f"loading {names}" + ("" if known else f", embedding {bank.texts:,} texts")
    texts: dict[str, TextEmbeddings] = {}
    facts: dict[str, Loaded | str] = {}
    with heartbeat(doing):
        for job in jobs:
            embedded, loaded = get(job, limit, f"{doing[0].upper()}{doing[1:]}")
            texts |= embedded
            facts |= loaded
    return EmbeddedPrompts(
        # The driver keeps these megabytes: if a node that held them were lost, they would be
        # computed again, on a GPU that a scorer holds while it waits for them.
        share(texts),
        {name: fact for name, fact in facts.items() if isinstance(fact, Loaded)},
        {name: fact for name, fact in facts.items() if isinstance(fact, str)},
    )


def _embed_prompts(
    backbones: Sequence[tuple[BackboneConfig, str]],
    bank: PromptBank,
    scorers: Scorers,
    known: Mapping[str, TextEmbeddings],
) -> tuple[dict[str, TextEmbeddings], dict[str, Loaded | str]]:
    """Embeds with one backbone after the other, so that a worker holds one at a time."""
    # Here and not above: the driver does not load torch.
    from sparc_dist.backbones.devices import pick_device
    from sparc_dist.backbones.models import Backbone

    device = pick_device(scorers.gpus, scorers.threads)
    texts: dict[str, TextEmbeddings] = {}
    facts: dict[str, Loaded | str] = {}
    for config, store in backbones:
        try:
            backbone = Backbone(config, device)
            start = time.perf_counter()
            texts[config.name] = known.get(config.name) or backbone.embed(bank, store)
            facts[config.name] = Loaded(
                backbone.input,
                backbone.weights_sha256,
                backbone.device.type,
                time.perf_counter() - start,
            )
        except Exception as error:  # one backbone's error must not fail the others
            facts[config.name] = explain(error, f"Backbone {config.name}")
    return texts, facts
