"""Scoring a group: units that go through a data set's images together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sparc_dist.errors import UserError
from sparc_dist.pipeline.embed import embed_prompts
from sparc_dist.pipeline.map_phase import MapPhase
from sparc_dist.pipeline.progress import repeated
from sparc_dist.pipeline.unit import Unit
from sparc_dist.pipeline.write import Target
from sparc_dist.planning import BackboneGroup

SECONDS_BETWEEN_LINES = 5.0


def score_group(group: BackboneGroup, units: Sequence[Unit]) -> dict[str, str]:
    """Scores the missing shards of a data set's units; returns failures by backbone."""
    failures: dict[str, str] = {}
    todo = _todo(units, failures)
    members = [unit for unit in units if todo.get(unit.backbone.name)]
    if not members:
        return failures
    data, config = members[0].data, members[0].config
    limit = config.resources.no_progress_seconds
    backbones = [(unit.backbone, unit.layout.texts) for unit in members]
    prompts = embed_prompts(backbones, data.bank, group.scorers, limit)
    failures |= prompts.failures
    for unit in members:
        if loaded := prompts.loaded.get(unit.backbone.name):
            unit.stages.texts(data.bank.texts, loaded.text_seconds)
    targets = {}
    for unit in members:
        name = unit.backbone.name
        if name not in failures:
            try:
                scoring = unit.provenance(prompts.loaded[name])
                targets[name] = Target(unit.layout, scoring, data.bank.names)
            except UserError as error:
                failures[name] = str(error)
    ready = {unit.backbone.name: unit for unit in members if unit.backbone.name in targets}
    if ready:
        phase = MapPhase(
            data.layout,
            tuple(unit.backbone for unit in ready.values()),
            {name: prompts.loaded[name].image_size for name in ready},
            targets,
            prompts.texts,
            config.batch_size,
        )
        failures |= _run(phase, group, ready, {name: todo[name] for name in ready}, limit)
    return failures


def _todo(units: Sequence[Unit], failures: dict[str, str]) -> dict[str, list[int]]:
    """Returns the shards to score with each backbone."""
    todo = {}
    for unit in units:
        try:
            todo[unit.backbone.name] = unit.todo()
        except UserError as error:
            failures[unit.backbone.name] = str(error)
    return todo


def _run(
    phase: MapPhase,
    group: BackboneGroup,
    units: dict[str, Unit],
    todo: dict[str, list[int]],
    limit: float,
) -> dict[str, str]:
    """Runs the map phase and reports its progress."""
    rows: dict[int, list[str]] = defaultdict(list)
    for name, unit in units.items():
        left = sum(unit.data.sizes[shard] for shard in todo[name])
        # All units of a group advance together: print as many lines as for one unit.
        unit.stages.every = SECONDS_BETWEEN_LINES * len(units)
        unit.stages.start("scoring", unit.data.images, unit.data.images - left)
        for shard in todo[name]:
            rows[shard].append(name)
    failures: dict[str, str] = {}
    first = next(iter(units.values())).stages  # one line says for all that work goes on
    with repeated(first.tick, 1.0):
        for row in phase.run(dict(sorted(rows.items())), group.scorers, group.decoders, limit):
            for name in row.done:
                units[name].stages.advance("scoring", units[name].data.sizes[row.shard])
                units[name].stages.errors(row.errors)
            failures = {**row.failures, **failures}
            if len(failures) == len(units):
                break
    return failures
