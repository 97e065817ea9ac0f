"""Looks: how an experiment sees a unit's stored scores, with more prompts or other singletons.

No image is looked at: prompts that were not asked about are scored with the stored embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import SIMULATED
from sparc_dist.core.debias import Scores
from sparc_dist.errors import UserError
from sparc_dist.external_scores import MethodName, PlugIn, none_found, prepared, read_plug_in
from sparc_dist.pipeline.cluster import capacity
from sparc_dist.pipeline.embed import EmbeddedPrompts, embed_prompts
from sparc_dist.pipeline.passes import remote, share
from sparc_dist.pipeline.unit import Unit
from sparc_dist.pipeline.waiting import get_with_timeout
from sparc_dist.planning import PROCESS_BYTES, plan_scorers
from sparc_dist.prompts import CompoundPrompt, PromptBank
from sparc_dist.runs import UnitShards
from sparc_dist.simulation import ScoreModel, score_model

#: Of more prompts the scores (rows, P') of some rows of a shard.
MoreScores = Callable[[slice], NDArray[np.floating]]


class More(Protocol):
    """Scores of prompts that the run did not ask about."""

    def of(self, shards: UnitShards, shard: int, embedding: NDArray[np.float32]) -> MoreScores:
        """Those of a shard, whose images' embeddings (n, d) are given."""
        ...


@dataclass(frozen=True)
class Rescored:
    """From embeddings: those of the prompts are ``texts`` (P', d)."""

    texts: NDArray[np.float32]

    def of(self, shards: UnitShards, shard: int, embedding: NDArray[np.float32]) -> MoreScores:
        """One product of matrices."""
        if not len(embedding):  # an empty shard does not tell how wide embeddings are
            return lambda rows: np.zeros((0, len(self.texts)))
        return lambda rows: embedding[rows] @ self.texts.T


@dataclass(frozen=True)
class Redrawn:
    """Of a simulation, which has no embeddings: drawn from labels, as its other scores are."""

    model: ScoreModel
    prompts: Sequence[tuple[str, Sequence[int]]]

    def of(self, shards: UnitShards, shard: int, embedding: NDArray[np.float32]) -> MoreScores:
        """What these prompts make of the same images, all of which a simulation has scored."""
        ids = storage.read_row_group(shards.dataset.images, shard, ["image_id"])["image_id"]
        labels = shards.labels(shard, ids.to_pylist())[1]
        drawn = self.model.more(shard, labels, self.prompts)
        return lambda rows: drawn[rows]


@dataclass(frozen=True)
class ScoreView:
    """How the scores of a unit are looked at.

    more: scores of more compound prompts, which stand behind the stored ones.
    plug_in: another method's scores in the place of the singleton's; an image that has none is
    left out.
    """

    more: More | None = None
    plug_in: PlugIn | None = None

    def slices(
        self, shards: UnitShards, shard: int, size: int
    ) -> Iterator[tuple[list[str], Scores]]:
        """The ids and scores of a shard, some images at a time; at least once, maybe empty."""
        ids, scores, more = self._shard(shards, shard)
        for start in range(0, max(len(ids), 1), size):
            rows = slice(start, start + size)
            names, part = ids[rows], scores[rows]
            if more is not None:
                compound = np.concatenate([part.compound, more(rows)], axis=1)
                part = Scores(part.singleton, part.auxiliary, compound)
            if self.plug_in is not None:
                known, own = self.plug_in.rows(names)
                names = [name for name, there in zip(names, known, strict=True) if there]
                part = Scores(own, part.auxiliary[known], part.compound[known])
            yield names, part

    def _shard(self, shards: UnitShards, shard: int) -> tuple[list[str], Scores, MoreScores | None]:
        if self.more is None:
            ids, scores = shards.scores(shard)
            return ids.to_pylist(), scores, None
        ids, scores, embedding = shards.embedded(shard)
        return ids.to_pylist(), scores, self.more.of(shards, shard, embedding)


def views_with(
    units: Sequence[Unit], prompts: Sequence[CompoundPrompt]
) -> tuple[dict[str, Any], dict[str, str]]:
    """References to view at a data set's units with more prompts, by backbone.

    The second: of backbones whose text tower cannot be had, why; their view have no more prompts.
    """
    plain = share(ScoreView())
    views: dict[str, Any] = {unit.backbone.name: plain for unit in units}
    if not prompts:
        return views, {}
    scored = [unit for unit in units if unit.backbone.model != SIMULATED]
    embedded = _embedded(scored, prompts)
    limit = units[0].config.resources.no_progress_seconds
    texts = get_with_timeout(embedded.texts, limit, "Fetching the prompts' embeddings")
    failures = dict(embedded.failures)
    for unit in units:
        name = unit.backbone.name
        if name in failures:
            continue
        try:
            if unit in scored:
                unit.check_weights(embedded.loaded[name])  # they must have made the embeddings
                more: More = Rescored(texts[name].compound)
            else:
                asked = [(prompt.text, prompt.class_ids) for prompt in prompts]
                more = Redrawn(score_model(unit.config.output, unit.data.config), asked)
            views[name] = share(ScoreView(more))
        except (UserError, OSError) as error:
            failures[name] = str(error)
    return views, failures


def _embedded(units: Sequence[Unit], prompts: Sequence[CompoundPrompt]) -> EmbeddedPrompts:
    """The text pass: prompts under each unit's backbone."""
    failures = {}
    if units:
        resources, backbones = units[0].config.resources, [unit.backbone for unit in units]
        try:
            if not any(unit.on_gpu() for unit in units):
                resources = resources.model_copy(update={"gpus_per_scorer": 0})
            scorers = plan_scorers(resources, capacity(), PROCESS_BYTES)
            bank = PromptBank((), tuple(prompts))
            return embed_prompts(backbones, bank, scorers, resources.no_progress_seconds)
        except UserError as error:  # what needs no text pass goes on
            failures = {backbone.name: str(error) for backbone in backbones}
    return EmbeddedPrompts(share({}), {}, failures)


def plugged_in(unit: Unit, url: str, method: MethodName) -> tuple[Any, int]:
    """A reference to view at a unit with another method's scores, and how many images have them.

    The file is read on a worker: its matrix may be large.
    """
    limit = unit.config.resources.no_progress_seconds
    task = remote(_read_plug_in, returns=2)
    view, found = task.remote(unit.shards, unit.data.bank.classes, url, method)
    return view, get_with_timeout(found, limit, f"Reading {url}")


def _read_plug_in(
    shards: UnitShards, classes: Sequence[str], url: str, method: MethodName
) -> tuple[ScoreView, int]:
    plug_in = prepared(read_plug_in(url, classes), method)
    # All at once: that two images of different shards are given one row shows only here.
    ids = storage.read_table(shards.dataset.images, ["image_id"])["image_id"].to_pylist()
    known, scores = plug_in.rows(ids)
    if not len(scores):
        raise none_found(plug_in, ids)
    found = [name for name, there in zip(ids, known, strict=True) if there]
    return ScoreView(plug_in=PlugIn(found, scores, plug_in.url)), len(found)
