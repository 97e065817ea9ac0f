"""Looks: how an experiment sees a unit's stored scores, with more prompts or other singletons.

No image is looked at: prompts that were not asked about are scored with the stored embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import ray
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import SIMULATED
from sparc_dist.core.debias import Scores
from sparc_dist.core.simulation import ScoreModel
from sparc_dist.errors import UserError
from sparc_dist.pipeline.cluster import capacity
from sparc_dist.pipeline.embed import embed_prompts
from sparc_dist.pipeline.passes import remote
from sparc_dist.pipeline.unit import Unit
from sparc_dist.pipeline.waiting import result
from sparc_dist.plan import PROCESS_BYTES, plan_scorers
from sparc_dist.plug_in import MethodName, PlugIn, none_found, prepared, read_plug_in
from sparc_dist.prompts.bank import PromptBank
from sparc_dist.prompts.compound import CompoundPrompt
from sparc_dist.shards import UnitShards
from sparc_dist.simulate import score_model


class More(Protocol):
    """Scores of prompts that the run did not ask about."""

    def scores(
        self, shards: UnitShards, shard: int, ids: Sequence[str], embedding: NDArray[np.float32]
    ) -> NDArray[np.floating]:
        """The scores (n, P') of a shard's images, whose embeddings (n, d) are given."""
        ...


@dataclass(frozen=True)
class Rescored:
    """From embeddings: those of the prompts are ``texts`` (P', d)."""

    texts: NDArray[np.float32]

    def scores(
        self, shards: UnitShards, shard: int, ids: Sequence[str], embedding: NDArray[np.float32]
    ) -> NDArray[np.floating]:
        """One product of matrices."""
        # An empty shard does not tell how wide embeddings are.
        return embedding @ self.texts.T if len(ids) else np.zeros((0, len(self.texts)))


@dataclass(frozen=True)
class Redrawn:
    """Of a simulation, which has no embeddings: drawn from labels, as its other scores are."""

    model: ScoreModel
    mentioned: Sequence[Sequence[int]]

    def scores(
        self, shards: UnitShards, shard: int, ids: Sequence[str], embedding: NDArray[np.float32]
    ) -> NDArray[np.floating]:
        """What these prompts make of the same images."""
        return self.model.more(shard, shards.labels(shard, ids)[1], self.mentioned)


@dataclass(frozen=True)
class Looks:
    """How the scores of a unit are looked at.

    more: scores of more compound prompts, which stand behind the stored ones.
    plug_in: another method's scores in the place of the singleton's; an image that has none is
    left out.
    """

    more: More | None = None
    plug_in: PlugIn | None = None

    def scores(self, shards: UnitShards, shard: int) -> tuple[list[str], Scores]:
        """The ids and scores of a shard."""
        ids, scores, embedding = shards.embedded(shard)
        names: list[str] = ids.to_pylist()
        if self.more is not None:
            more = self.more.scores(shards, shard, names, embedding)
            compound = np.concatenate([scores.compound, more], axis=1)
            scores = Scores(scores.singleton, scores.auxiliary, compound)
        if self.plug_in is not None:
            known, rows = self.plug_in.rows(names)
            names = [name for name, there in zip(names, known, strict=True) if there]
            scores = Scores(rows, scores.auxiliary[known], scores.compound[known])
        return names, scores


def looks_with(
    units: Sequence[Unit], prompts: Sequence[CompoundPrompt]
) -> tuple[dict[str, Any], dict[str, str]]:
    """References to looks at a data set's units with more prompts, by backbone.

    The second: of backbones whose text tower cannot be had, why; their looks have no more prompts.
    """
    looks: dict[str, Any] = dict.fromkeys((unit.backbone.name for unit in units), ray.put(Looks()))
    if not prompts:
        return looks, {}
    drawn = [unit for unit in units if unit.backbone.model == SIMULATED]
    for unit in drawn:
        mentioned = [prompt.class_ids for prompt in prompts]
        redrawn = Redrawn(score_model(unit.data.config), mentioned)
        looks[unit.backbone.name] = ray.put(Looks(redrawn))
    scored = [unit for unit in units if unit not in drawn]
    if not scored:
        return looks, {}
    resources = units[0].config.resources
    scorers = plan_scorers(resources, capacity(), PROCESS_BYTES)
    bank = PromptBank((), tuple(prompts))
    backbones = [unit.backbone for unit in scored]
    embedded = embed_prompts(backbones, bank, scorers, resources.no_progress_seconds)
    failures = dict(embedded.failures)
    texts = ray.get(embedded.texts)
    for unit in scored:
        name = unit.backbone.name
        if name in embedded.loaded:
            try:
                unit.todo()
                unit.scoring(embedded.loaded[name])  # the weights that made the embeddings
                looks[name] = ray.put(Looks(Rescored(texts[name].compound)))
            except UserError as error:
                failures[name] = str(error)
    return looks, failures


def plugged_in(unit: Unit, url: str, method: MethodName) -> tuple[Any, int]:
    """A reference to looks at a unit with another method's scores, and how many images have them.

    The file is read on a worker: its matrix may be large.
    """
    limit = unit.config.resources.no_progress_seconds
    task = remote(_read_plug_in, returns=2)
    looks, found = task.remote(unit.shards, unit.data.bank.classes, url, method)
    return looks, result(found, limit, f"Reading {url}")


def _read_plug_in(
    shards: UnitShards, classes: Sequence[str], url: str, method: MethodName
) -> tuple[Looks, int]:
    plug_in = prepared(read_plug_in(url, classes), method)
    # All at once: that two images of different shards are given one row shows only here.
    ids = storage.read_table(shards.dataset.images, ["image_id"])["image_id"].to_pylist()
    found = int(plug_in.rows(ids)[0].sum())
    if not found:
        raise none_found(plug_in, ids)
    return Looks(plug_in=plug_in), found
