"""Score views: a unit's stored scores with prompts that the run lacks, or with other singletons.

No image is read: the prompts of a set that are not the run's own are scored with the stored image
embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from sparc_dist.config import SIMULATED, PairTemplate
from sparc_dist.core import Mentions, Scores, mentions_of
from sparc_dist.errors import UserError
from sparc_dist.pipeline.embed import EmbeddedPrompts, TextTower, embed_prompts
from sparc_dist.pipeline.executor import capacity, get, share
from sparc_dist.pipeline.unit import Unit
from sparc_dist.planning import PROCESS_BYTES, plan_scorers
from sparc_dist.prompts import (
    CompoundPrompt,
    PromptBank,
    all_pairs,
    from_sets,
    in_templates,
    random_prompts,
)
from sparc_dist.research.plug_in_scores import PlugIn
from sparc_dist.research.simulation import score_model
from sparc_dist.research.simulation_model import ScoreModel
from sparc_dist.runs import UnitShards
from sparc_dist.runs.shards import read_images

#: The sets of compound prompts that ablations compare; the first are those of the run.
STORED = "stored"
ALL_PAIRS, PAIRS, RANDOM = "all pairs", "filtered pairs", "random"
ALL_TEMPLATES = "all templates"
TEMPLATES: tuple[PairTemplate, ...] = get_args(PairTemplate)
RANDOM_PER_CLASS, SEED = 30, 0


def in_template(template: str) -> str:
    """Returns the name of the set of filtered pairs in a template."""
    return f"pairs with {template!r}"


def prompts_of(name: str, bank: PromptBank) -> Sequence[CompoundPrompt]:
    """Returns the prompts of a set."""
    classes = bank.classes
    if name == STORED:
        return bank.compound
    if name == ALL_PAIRS:
        return all_pairs(classes)
    if name == RANDOM:
        return random_prompts(classes, RANDOM_PER_CLASS, SEED)
    # Each pair of classes once, whatever template the run used; none with a background class.
    pairs_of_run = (p.class_ids for p in bank.compound if p.origin == "pair")
    sets = dict.fromkeys(ids for ids in pairs_of_run if max(ids) < len(classes))
    pairs = from_sets(classes, list(sets))
    templates = [word for word in TEMPLATES if name in (in_template(word), ALL_TEMPLATES)]
    if templates == ["and not"]:  # the paper uses it together with "and", never alone
        templates = ["and", "and not"]
    return in_templates(classes, pairs, templates) if templates else pairs


@dataclass
class Columns:
    """The column of each prompt's scores: the run's prompts first, then the extra ones.

    extra: the prompts that the run has no scores of.
    """

    bank: PromptBank
    extra: list[CompoundPrompt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._column = {prompt.text: i for i, prompt in enumerate(self.bank.compound)}

    def mentions(self, name: str) -> Mentions:
        """Returns for each class the columns of a set's prompts that mention it."""
        prompts = prompts_of(name, self.bank)
        for prompt in prompts:
            if prompt.text not in self._column:
                self._column[prompt.text] = len(self._column)
                self.extra.append(prompt)
        columns = np.array([self._column[prompt.text] for prompt in prompts], dtype=np.int64)
        mentions = mentions_of([prompt.class_ids for prompt in prompts], len(self.bank.columns))
        return [columns[indices] for indices in mentions[: len(self.bank.classes)]]

    def is_available(self, name: str) -> bool:
        """Whether a set has prompts; the run's own set is available even if empty."""
        return name == STORED or bool(prompts_of(name, self.bank))

    def is_stored(self, name: str) -> bool:
        """Whether the run has scores of all prompts of a set."""
        stored = {prompt.text for prompt in self.bank.compound}
        return all(prompt.text in stored for prompt in prompts_of(name, self.bank))


class ExtraPrompts(Protocol):
    """Prompts that the run has no scores of."""

    def scores(
        self, shards: UnitShards, shard: int, embedding: NDArray[np.float32]
    ) -> NDArray[np.floating]:
        """Returns their scores (n, P') of a shard's images, which have these embeddings (n, d)."""
        ...


@dataclass(frozen=True)
class EmbeddedExtra:
    """Extra prompts scored with embeddings. texts: (P', d), the embeddings of the prompts."""

    texts: NDArray[np.float32]

    def scores(
        self, shards: UnitShards, shard: int, embedding: NDArray[np.float32]
    ) -> NDArray[np.floating]:
        """Returns the product of the embeddings of images and prompts."""
        if not len(embedding):  # the embeddings of an empty shard have no width
            return np.zeros((0, len(self.texts)))
        product: NDArray[np.floating] = embedding @ self.texts.T
        return product


@dataclass(frozen=True)
class SimulatedExtra:
    """Extra prompts of a simulation: drawn from labels, because it has no embeddings."""

    model: ScoreModel
    prompts: Sequence[tuple[str, Sequence[int]]]

    def scores(
        self, shards: UnitShards, shard: int, embedding: NDArray[np.float32]
    ) -> NDArray[np.floating]:
        """Draws the scores of a shard; a simulation has scores of all its images."""
        ids = read_images(shards.dataset, shard, ["image_id"])["image_id"]
        return self.model.more(shard, shards.labels(shard, ids.to_pylist())[1], self.prompts)


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
        ids, scores = self._shard(shards, shard)
        if self.plug_in is not None:
            scored, singleton = self.plug_in.rows(ids)
            ids = list(compress(ids, scored))
            scores = Scores(singleton, scores.auxiliary[scored], scores.compound[scored])
        for start in range(0, max(len(ids), 1), size):
            rows = slice(start, start + size)
            yield ids[rows], scores[rows]

    def _shard(self, shards: UnitShards, shard: int) -> tuple[list[str], Scores]:
        """Returns the ids of a shard's images and all their scores."""
        if self.extra is None:
            column, scores = shards.scores(shard)
            return column.to_pylist(), scores
        column, scores = shards.scores(shard, embedded=True)
        assert scores.embedding is not None
        extra = self.extra.scores(shards, shard, scores.embedding)
        compound = np.concatenate([scores.compound, extra], axis=1)
        return column.to_pylist(), Scores(scores.singleton, scores.auxiliary, compound)


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
