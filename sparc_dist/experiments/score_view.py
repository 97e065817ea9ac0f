"""Score views: a unit's stored scores with extra prompts, or with another method's singletons.

No image is read: extra prompts are scored with the stored image embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sparc_dist.config import SIMULATED
from sparc_dist.core import Scores
from sparc_dist.errors import UserError
from sparc_dist.external_scores import MethodName, PlugIn, none_found, prepared, read_plug_in
from sparc_dist.pipeline.embed import EmbeddedPrompts, TextTower, embed_prompts
from sparc_dist.pipeline.executor import capacity, get, share, submit
from sparc_dist.pipeline.unit import Unit
from sparc_dist.planning import PROCESS_BYTES, plan_scorers
from sparc_dist.prompts import CompoundPrompt, PromptBank
from sparc_dist.runs import UnitShards
from sparc_dist.runs.image_list import image_shards, read_images
from sparc_dist.simulation import ScoreModel, score_model

#: Returns the scores (rows, P') of P' extra prompts for some rows of a shard.
RowScores = Callable[[slice], NDArray[np.floating]]


class ExtraPrompts(Protocol):
    """Prompts that the run has no scores of."""

    def scorer(self, shards: UnitShards, shard: int, embedding: NDArray[np.float32]) -> RowScores:
        """Returns the scorer of a shard with the image embeddings (n, d)."""
        ...


@dataclass(frozen=True)
class EmbeddedExtra:
    """Extra prompts scored with embeddings. texts: (P', d), the embeddings of the prompts."""

    texts: NDArray[np.float32]

    def scorer(self, shards: UnitShards, shard: int, embedding: NDArray[np.float32]) -> RowScores:
        """Returns the scorer of a shard: a matrix product."""
        if not len(embedding):  # the embeddings of an empty shard have no width
            return lambda rows: np.zeros((0, len(self.texts)))
        return lambda rows: embedding[rows] @ self.texts.T


@dataclass(frozen=True)
class SimulatedExtra:
    """Extra prompts of a simulation: drawn from labels, because it has no embeddings."""

    model: ScoreModel
    prompts: Sequence[tuple[str, Sequence[int]]]

    def scorer(self, shards: UnitShards, shard: int, embedding: NDArray[np.float32]) -> RowScores:
        """Returns the scorer of a shard; a simulation has scores of all its images."""
        ids = read_images(shards.dataset, shard, ["image_id"])["image_id"]
        labels = shards.labels(shard, ids.to_pylist())[1]
        drawn = self.model.more(shard, labels, self.prompts)
        return lambda rows: drawn[rows]


@dataclass(frozen=True)
class ScoreView:
    """A view of the scores of a unit.

    extra: compound prompts whose scores follow the stored ones. plug_in: another method's scores
    in place of the singleton's; images without them are left out.
    """

    extra: ExtraPrompts | None = None
    plug_in: PlugIn | None = None

    def slices(
        self, shards: UnitShards, shard: int, size: int
    ) -> Iterator[tuple[list[str], Scores]]:
        """Yields ids and scores, ``size`` images at a time; one empty slice for an empty shard."""
        ids, scores, extra_scores = self._shard(shards, shard)
        for start in range(0, max(len(ids), 1), size):
            rows = slice(start, start + size)
            names, part = ids[rows], scores[rows]
            if extra_scores is not None:
                compound = np.concatenate([part.compound, extra_scores(rows)], axis=1)
                part = Scores(part.singleton, part.auxiliary, compound)
            if self.plug_in is not None:
                scored, singleton = self.plug_in.rows(names)
                names = list(compress(names, scored))
                part = Scores(singleton, part.auxiliary[scored], part.compound[scored])
            yield names, part

    def _shard(self, shards: UnitShards, shard: int) -> tuple[list[str], Scores, RowScores | None]:
        if self.extra is None:
            ids, scores = shards.scores(shard)
            return ids.to_pylist(), scores, None
        ids, scores, embedding = shards.embedded(shard)
        return ids.to_pylist(), scores, self.extra.scorer(shards, shard, embedding)


def views_with(
    units: Sequence[Unit], prompts: Sequence[CompoundPrompt]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns references to views of a data set's units with extra prompts, by backbone.

    Also returns, by backbone, why the prompts could not be scored; those views are plain.
    """
    plain = share(ScoreView())
    views: dict[str, Any] = {unit.backbone.name: plain for unit in units}
    if not prompts:
        return views, {}
    local = [unit.backbone for unit in units if unit.backbone.features != "global"]
    scored = [unit for unit in units if unit.backbone.model != SIMULATED]
    if scored and scored[0].config.store == "scores":
        why = "store: scores keeps no embeddings; score these prompts in a run of their own"
        return views, {unit.backbone.name: why for unit in units}
    embedded = _embed([unit for unit in scored if unit.backbone not in local], prompts)
    limit = units[0].config.resources.no_progress_seconds
    texts = get(embedded.texts, limit, "Fetching the prompts' embeddings")
    failures = dict(embedded.failures)
    failures |= {
        backbone.name: f"features: {backbone.features} need the images again, and no patches are "
        "stored; score these prompts in a run of their own"
        for backbone in local
    }
    for unit in units:
        name = unit.backbone.name
        if name in failures:
            continue
        try:
            if unit in scored:
                # The stored image embeddings must come from the same weights.
                unit.check_weights(embedded.loaded[name])
                extra: ExtraPrompts = EmbeddedExtra(texts[name][0].compound)
            else:
                pairs = [(prompt.text, prompt.class_ids) for prompt in prompts]
                model = score_model(unit.config.output, unit.data.config, name)
                extra = SimulatedExtra(model, pairs)
            views[name] = share(ScoreView(extra))
        except (UserError, OSError) as error:
            failures[name] = str(error)
    return views, failures


def _embed(units: Sequence[Unit], prompts: Sequence[CompoundPrompt]) -> EmbeddedPrompts:
    """Embeds prompts with the text tower of each unit's backbone."""
    failures = {}
    if units:
        resources = units[0].config.resources
        towers = [TextTower(unit.backbone, unit.layout.texts) for unit in units]
        try:
            if not any(unit.on_gpu() for unit in units):
                resources = resources.model_copy(update={"gpus_per_scorer": 0})
            scorers = plan_scorers(resources, capacity(), PROCESS_BYTES)
            bank = PromptBank((), tuple(prompts))
            return embed_prompts(towers, bank, scorers, resources.no_progress_seconds)
        except UserError as error:  # variants without extra prompts still work
            failures = {unit.backbone.name: str(error) for unit in units}
    return EmbeddedPrompts(share({}), {}, failures)


def plug_in_view(unit: Unit, url: str, method: MethodName) -> tuple[Any, int]:
    """Returns a reference to a view with another method's scores, and the number of its images.

    The file is read on a worker because its matrix may be large.
    """
    limit = unit.config.resources.no_progress_seconds
    given = (unit.shards, unit.data.bank.classes, url, method)
    view, images = submit(_read_plug_in, *given, returns=2)
    return view, get(images, limit, f"Reading {url}")


def _read_plug_in(
    shards: UnitShards, classes: Sequence[str], url: str, method: MethodName
) -> tuple[ScoreView, int]:
    plug_in = prepared(read_plug_in(url, classes), method)
    # All ids at once: this also finds images of different shards that match the same row.
    parts = image_shards(shards.dataset, ["image_id"])
    ids = [image_id for rows in parts for image_id in rows["image_id"].to_pylist()]
    scored, scores = plug_in.rows(ids)
    if not len(scores):
        raise none_found(plug_in, ids)
    names = list(compress(ids, scored))
    return ScoreView(plug_in=PlugIn(names, scores, plug_in.url)), len(names)
