"""Trials on Ray: every way to fuse a unit's scores in the same four passes over them.

No image is looked at: prompts that were not asked about are scored with the stored embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core.average_precision import Positives, Reached, average_precision
from sparc_dist.core.debias import Scores
from sparc_dist.core.moments import Floats
from sparc_dist.core.trials import Each, Trial, Trials
from sparc_dist.errors import UserError
from sparc_dist.pipeline.cluster import capacity
from sparc_dist.pipeline.embed import embed_prompts
from sparc_dist.pipeline.passes import Group, remote, total
from sparc_dist.pipeline.unit import Unit
from sparc_dist.pipeline.waiting import result
from sparc_dist.plan import PROCESS_BYTES, plan_scorers
from sparc_dist.plug_in import MethodName, PlugIn, none_found, prepared, read_plug_in
from sparc_dist.prompts.bank import PromptBank
from sparc_dist.prompts.compound import CompoundPrompt
from sparc_dist.shards import UnitShards

#: Images at a time: all trials together make many final scores of each.
ROWS = 1024


@dataclass(frozen=True)
class Looks:
    """How the scores of a unit are looked at.

    texts: embeddings (P', d) of more compound prompts; their scores stand behind the stored ones.
    plug_in: another method's scores in the place of the singleton's; an image that has none is
    left out.
    """

    texts: NDArray[np.float32] | None = None
    plug_in: PlugIn | None = None

    def scores(self, shards: UnitShards, shard: int) -> tuple[list[str], Scores]:
        """The ids and scores of a shard."""
        if self.texts is None:
            ids, scores = shards.scores(shard)
        else:
            ids, scores, embedding = shards.embedded(shard)
            # An empty shard does not tell how wide embeddings are.
            more = embedding @ self.texts.T if len(ids) else np.zeros((0, len(self.texts)))
            compound = np.concatenate([scores.compound, more], axis=1)
            scores = Scores(scores.singleton, scores.auxiliary, compound)
        names: list[str] = ids.to_pylist()
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
    resources = units[0].config.resources
    scorers = plan_scorers(resources, capacity(), PROCESS_BYTES)
    bank = PromptBank((), tuple(prompts))
    backbones = [unit.backbone for unit in units]
    embedded = embed_prompts(backbones, bank, scorers, resources.no_progress_seconds)
    failures = dict(embedded.failures)
    texts = ray.get(embedded.texts)
    for unit in units:
        name = unit.backbone.name
        if name in embedded.loaded:
            try:
                unit.todo()
                unit.scoring(embedded.loaded[name])  # the weights that made the embeddings
                looks[name] = ray.put(Looks(texts[name].compound))
            except UserError as error:
                failures[name] = str(error)
    return looks, failures


def try_all(unit: Unit, trials: Trials, looks: Any) -> dict[Trial, list[float | None]]:
    """The AP of every class under every trial. looks: a reference to ``Looks``."""
    passes, watch = unit.passes(), unit.stages.watch
    at = (unit.shards, trials)
    moments = passes.merged("trials_moments", watch, partial(_moments, *at), looks)
    scatters = passes.merged("trials_scatters", watch, partial(_scatters, *at), looks, moments)
    weights = remote(Trials.weights).remote(ray.put(trials), scatters)
    fitted = (looks, moments, weights)
    positives = passes.merged("trials_positives", watch, partial(_positives, *at), *fitted)
    reached = passes.merged("trials_reached", watch, partial(_reached, *at), *fitted, positives)
    job = remote(average_precision).remote(positives, reached)
    aps = result(job, passes.limit, "The last step of the trials")
    width = len(unit.data.bank.classes)
    return {trial: aps[i * width : (i + 1) * width] for i, trial in enumerate(trials.trials)}


def _moments(shards: UnitShards, trials: Trials, group: Group, looks: Looks) -> Each:
    found: Each = total(trials.moments(scores) for _, _, scores in _slices(shards, group, looks))
    return found


def _scatters(
    shards: UnitShards, trials: Trials, group: Group, looks: Looks, moments: Each
) -> Each:
    parts = _slices(shards, group, looks)
    found: Each = total(trials.scatters(scores, moments) for _, _, scores in parts)
    return found


@dataclass(frozen=True)
class _Fitted:
    """What it takes to give the labelled images of a group their final scores."""

    shards: UnitShards
    trials: Trials
    looks: Looks
    moments: Each
    weights: list[list[Floats]]

    def final(self, group: Group) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """Final scores and labels (n, trials · N), slice by slice."""
        for shard, ids, scores in _slices(self.shards, group, self.looks):
            labelled, labels = self.shards.labels(shard, ids)
            final = self.trials.final(scores, self.moments, self.weights)[labelled]
            tiled = np.tile(labels[labelled], (1, len(self.trials.trials)))
            yield final.reshape(len(final), -1), tiled


def _positives(shards: UnitShards, trials: Trials, group: Group, *fitted: Any) -> Positives:
    final = _Fitted(shards, trials, *fitted).final(group)
    found: Positives = total(Positives.of(scores, labels) for scores, labels in final)
    return found


def _reached(shards: UnitShards, trials: Trials, group: Group, *arguments: Any) -> Reached:
    *fitted, positives = arguments
    final = _Fitted(shards, trials, *fitted).final(group)
    found: Reached = total(Reached.of(scores, positives) for scores, _ in final)
    return found


def _slices(
    shards: UnitShards, group: Group, looks: Looks
) -> Iterator[tuple[int, list[str], Scores]]:
    """(shard, ids, scores) of some images at a time; at least one of each shard, maybe empty."""
    for shard in group.shards:
        ids, scores = looks.scores(shards, shard)
        for start in range(0, max(len(ids), 1), ROWS):
            yield shard, ids[start : start + ROWS], scores[start : start + ROWS]


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
