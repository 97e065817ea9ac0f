"""Scoring a group: units that go through the images of a data set together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.errors import UserError
from sparc_dist.pipeline.embed import start_texts
from sparc_dist.pipeline.embedded_phase import EmbeddedPhase
from sparc_dist.pipeline.executor import capacity, current
from sparc_dist.pipeline.map_phase import MapPhase, ShardOutcome, Todo
from sparc_dist.pipeline.progress import repeated
from sparc_dist.pipeline.unit import Unit
from sparc_dist.planning import BackboneGroup

SECONDS_BETWEEN_LINES = 5.0
#: Scores shards with the backbones that each asks for.
ScoreShards = Callable[[Todo], Iterator[ShardOutcome]]


def score_group(group: BackboneGroup, units: Sequence[Unit]) -> dict[str, str]:
    """Scores the missing shards of a data set's units; returns failures by backbone."""
    failures: dict[str, str] = {}
    todo = _todo(units, failures)
    named = [unit for unit in units if unit.backbone.name in todo]
    members = [unit for unit in named if len(todo[unit.backbone.name]) or unit.needs_texts]
    if members:
        failures |= _score_members(group, members, todo)
    for unit in units:
        if unit.compaction is not None:
            unit.compaction.finish(unit.config.resources.no_progress_seconds)
    return failures


def _score_members(
    group: BackboneGroup, members: Sequence[Unit], todo: Mapping[str, NDArray[np.int64]]
) -> dict[str, str]:
    """Scores the shards ``todo`` of units that have some; returns failures by backbone."""
    data, limit = members[0].data, members[0].config.resources.no_progress_seconds
    towers = [unit.text_tower for unit in members]
    # Where nothing is scored from images, no scorer is started that could wait for texts.
    early = data.embeddings is None and all(len(todo[unit.backbone.name]) for unit in members)
    alone = early and (group.scorers.actors == 1 or not current().concurrent)
    text_pass = start_texts(towers, data.bank, group.scorers, limit, by_scorer=alone)
    failures: dict[str, str] = {}
    texts = text_pass.parts
    if alone or (early and group.starts_early(capacity())):
        print(f"{text_pass.doing} …", file=sys.stderr, flush=True)
    else:
        prompts = text_pass.wait()
        texts, failures = [prompts.texts], dict(prompts.failures)
    ready = {unit.backbone.name: unit for unit in members if unit.backbone.name not in failures}
    if ready:
        score = _phase(group, ready, texts)
        failures |= _run(score, ready, {name: todo[name] for name in ready})
    return failures


def _phase(group: BackboneGroup, units: Mapping[str, Unit], texts: Sequence[Any]) -> ScoreShards:
    """Returns what scores shards: from stored embeddings if there are any, else from images.

    texts: references to Texts.
    """
    first = next(iter(units.values()))
    data, limit = first.data, first.config.resources.no_progress_seconds
    targets = {name: unit.target for name, unit in units.items()}
    if data.embeddings is not None:
        sources = {name: data.embeddings.unit(unit.backbone) for name, unit in units.items()}
        stored = EmbeddedPhase(data.layout, sources, targets)
        return partial(stored.run, texts=texts[0], limit=limit)
    sizes = zip(group.backbones, group.costs, strict=True)
    phase = MapPhase(
        data.layout,
        tuple(unit.backbone for unit in units.values()),
        {backbone.name: cost.image_size for backbone, cost in sizes},
        targets,
        texts,
        first.config.batch_size,
        first.jpeg_scaling,
        first.config.max_image_bytes,
    )
    return partial(phase.run, scorers=group.scorers, decoders=group.decoders, limit=limit)


def _todo(units: Sequence[Unit], failures: dict[str, str]) -> dict[str, NDArray[np.int64]]:
    """Returns the shards to score with each backbone."""
    todo = {}
    for unit in units:
        try:
            todo[unit.backbone.name] = unit.todo()
        except UserError as error:
            failures[unit.backbone.name] = str(error)
    return todo


def _run(
    score: ScoreShards, units: Mapping[str, Unit], todo: Mapping[str, NDArray[np.int64]]
) -> dict[str, str]:
    """Scores shards, reports the progress, and compacts the markers of complete segments."""
    compactions = {name: unit.compaction for name, unit in units.items() if unit.compaction}

    def begin(shards: int) -> None:
        for compaction in compactions.values():
            compaction.begin(shards)

    for name, unit in units.items():
        left = sum(unit.data.sizes[shard] for shard in todo[name])
        # All units of a group advance together: print as many lines as for one unit.
        unit.stages.every = SECONDS_BETWEEN_LINES * len(units)
        unit.stages.start("scoring", unit.data.images, unit.data.images - left)
    failures: dict[str, str] = {}
    first = next(iter(units.values())).stages  # one line says for all that work goes on
    with repeated(first.tick, 1.0):
        for row in score(Todo(todo, begin)):
            for name, seconds in zip(row.done, row.text_seconds, strict=True):
                units[name].stages.texts(units[name].data.bank.texts, seconds)
                units[name].stages.advance("scoring", units[name].data.sizes[row.shard])
                units[name].stages.errors(row.errors)
                compactions[name].done(row.shard)
            failures = {**row.failures, **failures}
            if len(failures) == len(units):
                break
    return failures
