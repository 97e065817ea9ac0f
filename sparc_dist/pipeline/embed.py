"""The text pass: embeds the prompt bank with each backbone, once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sparc_dist.config import BackboneConfig
from sparc_dist.errors import explain
from sparc_dist.pipeline.executor import MOST_OF_A_CPU, Needs, current, get, share
from sparc_dist.pipeline.progress import heartbeat
from sparc_dist.planning import Scorers
from sparc_dist.prompts import PromptBank, TextEmbeddings
from sparc_dist.runs import UnitLayout
from sparc_dist.runs.storing import keep_prompts

if TYPE_CHECKING:
    from sparc_dist.backbones.models import Backbone


@dataclass(frozen=True)
class Loaded:
    """Facts about a backbone that are known once it has been loaded.

    input: the images that it takes. text_seconds: the time that its texts took. kept_sha256: the
    hash of the embeddings of its prompts, where they are kept in place of scores.
    """

    input: dict[str, Any]
    weights_sha256: str
    device: str
    text_seconds: float
    kept_sha256: str = ""


#: The embeddings of a prompt bank by a backbone, or why there are none.
Embedded = tuple[TextEmbeddings, Loaded] | str
#: These by the name of the backbone.
Texts = Mapping[str, Embedded]
#: Waits for them. It is given the backbones that this process has loaded, by name.
WaitForTexts = Callable[[Mapping[str, "Backbone"]], Texts]


def _accept(loaded: Loaded) -> None:
    """Accepts any backbone."""


@dataclass(frozen=True)
class TextTower:
    """What embeds a prompt bank.

    store: the file that keeps its texts. known: embeddings that a labeler has; with them, the
    backbone is only loaded. check: raises UserError if a backbone is not the one that is wanted.
    keeps: the unit that keeps embeddings of prompts in place of scores, if it does.
    """

    backbone: BackboneConfig
    store: str
    known: TextEmbeddings | None = None
    check: Callable[[Loaded], None] = _accept
    keeps: UnitLayout | None = None


@dataclass(frozen=True)
class EmbeddedPrompts:
    """A prompt bank under several backbones.

    texts: a reference to Texts. failures: why backbones have none.
    """

    texts: Any
    loaded: dict[str, Loaded]
    failures: dict[str, str]


@dataclass(frozen=True)
class OwnTexts:
    """The text pass of a scorer that is alone: it has all models, which are loaded only once.

    bank: a reference to the prompts.
    """

    towers: Sequence[TextTower]
    bank: Any
    scorers: Scorers


def fetch_texts(
    parts: Sequence[Any], held: Mapping[str, Backbone], fetch: Callable[[Any], Any]
) -> dict[str, Embedded]:
    """Returns the embeddings of prompts by all backbones, in a scorer.

    parts: of a text pass. held: the backbones that the scorer has loaded. fetch: returns what a
    reference stands for.
    """
    texts: dict[str, Embedded] = {}
    for part in parts:
        if isinstance(part, OwnTexts):
            texts |= _embed_prompts(part.towers, fetch(part.bank), part.scorers, held)
        else:
            texts |= fetch(part)
    return texts


@dataclass(frozen=True)
class TextPass:
    """A text pass under way. parts: references to Texts, or OwnTexts. limit: seconds for each."""

    parts: Sequence[Any]
    doing: str
    limit: float

    def wait(self) -> EmbeddedPrompts:
        """Returns the embeddings; says meanwhile what is being done."""
        texts: dict[str, Embedded] = {}
        with heartbeat(self.doing):
            for part in self.parts:
                texts |= get(part, self.limit, f"{self.doing[0].upper()}{self.doing[1:]}")
        # The driver keeps these megabytes: if a node that held them were lost, they would be
        # computed again, on a GPU that a scorer holds while it waits for them.
        return EmbeddedPrompts(
            share(texts),
            {name: found[1] for name, found in texts.items() if not isinstance(found, str)},
            {name: found for name, found in texts.items() if isinstance(found, str)},
        )


def embed_prompts(
    towers: Sequence[TextTower], bank: PromptBank, scorers: Scorers, limit: float
) -> EmbeddedPrompts:
    """Embeds a bank and waits for it, see ``start_texts``."""
    return start_texts(towers, bank, scorers, limit).wait()


def start_texts(
    towers: Sequence[TextTower],
    bank: PromptBank,
    scorers: Scorers,
    limit: float,
    by_scorer: bool = False,
) -> TextPass:
    """Starts the text towers on as many workers as there are scorers, on devices like theirs.

    by_scorer: nothing is started, because the only scorer will do it.
    """
    names = ", ".join(tower.backbone.name for tower in towers)
    known = any(tower.known for tower in towers)
    doing = f"loading {names}" + ("" if known else f", embedding {bank.texts:,} texts")
    if by_scorer:
        return TextPass([OwnTexts(towers, share(bank), scorers)], doing, limit)
    # A GPU machine may declare no CPU. Scorers may start meanwhile, and take a trace of one.
    needs = Needs(cpus=0 if scorers.gpus else MOST_OF_A_CPU, gpus=scorers.gpus)
    workers = min(scorers.actors, len(towers))
    parts = [(towers[i::workers], bank, scorers) for i in range(workers)]
    jobs = [current().submit(_embed_prompts, part, needs) for part in parts]
    return TextPass(jobs, doing, limit)


def _embed_prompts(
    towers: Sequence[TextTower],
    bank: PromptBank,
    scorers: Scorers,
    held: Mapping[str, Backbone] = MappingProxyType({}),
) -> dict[str, Embedded]:
    """Embeds with one backbone after the other, so that a worker holds one at a time.

    held: those that are loaded already, by name.
    """
    # Here and not above: the driver does not load torch.
    from sparc_dist.backbones.devices import pick_device
    from sparc_dist.backbones.models import Backbone

    device = pick_device(scorers.gpus, scorers.threads)
    texts: dict[str, Embedded] = {}
    for tower in towers:
        name = tower.backbone.name
        try:
            backbone = held.get(name) or Backbone(tower.backbone, device)
            start = time.perf_counter()
            rows = tower.known or backbone.embed(bank, tower.store)
            facts = (backbone.input, backbone.weights_sha256, backbone.device.type)
            loaded = Loaded(*facts, time.perf_counter() - start)
            tower.check(loaded)
            if tower.keeps is not None:
                loaded = replace(loaded, kept_sha256=keep_prompts(tower.keeps, rows.by_kind))
            texts[name] = rows, loaded
        except Exception as error:  # one backbone's error must not fail the others
            texts[name] = explain(error, tower.backbone.place)
    return texts
