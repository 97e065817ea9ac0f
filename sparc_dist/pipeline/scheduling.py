"""Scheduling: scores and reduces the pending units of a run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from sparc_dist import storage
from sparc_dist.backbones import Cost, Costs, cost_of, known_cost
from sparc_dist.config import ENSEMBLE, BackboneConfig, Config
from sparc_dist.errors import UserError, chain_of_causes, explain
from sparc_dist.pipeline.ensemble import EnsembleUnit
from sparc_dist.pipeline.executor import Executor, Needs, current, executor, get
from sparc_dist.pipeline.growth import follow, retried
from sparc_dist.pipeline.prepare import prepare
from sparc_dist.pipeline.scoring import score_group
from sparc_dist.pipeline.small import ensemble_sizes, is_small, unit_sizes
from sparc_dist.pipeline.unit import Unit
from sparc_dist.planning import BackboneGroup, plan
from sparc_dist.runs import (
    DamagedScores,
    EmbeddedRun,
    Growing,
    MarkerSummary,
    Pending,
    Phase,
    Results,
    Retry,
    UnitKey,
    lease,
)
from sparc_dist.runs.results import any_due, is_due, members_of, read_dataset_facts

log = logging.getLogger(__name__)

Units = dict[UnitKey, Unit]

REDUCED_AT_A_TIME = 4

#: Ray's errors after which the backbones of a group are scored one by one, by name: Ray may not be
#: in use.
CRASHES = {"OutOfMemoryError", "ObjectStoreFullError", "WorkerCrashedError", "ActorDiedError"}


@dataclass(frozen=True)
class Again:
    """What a start does about the images of an earlier one.

    growing: how the run follows its images; None if it keeps to its own list. retry: which images
    that could not be read are tried again. failed: the finished units that have such images.
    """

    growing: Growing | None = None
    retry: Retry = "none"
    failed: Pending | None = None


def run_units(
    config: Config,
    pending: Pending,
    results: Results,
    phase: Phase = "all",
    again: Again | None = None,
    embeddings: EmbeddedRun | None = None,
) -> None:
    """Scores and reduces units, or does one of the two; a failure does not stop the others.

    Sets ``nothing_to_do`` of the results. embeddings: the run whose embeddings are scored in place
    of the images.
    """
    again = again or Again()
    every = _united(config, pending, again.failed or {})
    sizes = unit_sizes(config, every, results.layout, embeddings)
    if not any(every.values()):
        sizes = ensemble_sizes(config, results)
    small = is_small(config.resources, sizes)
    with executor(config.resources, small) as own:
        if again.growing is not None:
            pending = _grown(again.growing, config, pending, results)
        if again.retry != "none":
            every = _united(config, pending, again.failed or {})
            pending = _united(config, pending, retried(config, every, results, again.retry))
        results.nothing_to_do = not any(pending.values()) and not (
            results.failures or (phase != "score" and any_due(config, results.metrics))
        )
        if any(pending.values()):
            _run_pending(own, config, pending, results, phase, embeddings)
        if phase != "score":
            _make_ensembles(config, results, embeddings)


def _united(config: Config, *parts: Pending) -> Pending:
    """Returns the units that are in any of the parts, in the order of the config."""
    return {
        dataset.name: [
            backbone
            for backbone in config.backbones
            if any(backbone in part.get(dataset.name, ()) for part in parts)
        ]
        for dataset in config.datasets
    }


def _run_pending(
    own: Executor,
    config: Config,
    pending: Pending,
    results: Results,
    phase: Phase,
    embeddings: EmbeddedRun | None,
) -> None:
    """Scores and reduces the pending units, of which there is at least one."""
    if phase == "reduce":
        with Reducers(results) as reducers:
            for unit in _prepared(config, pending, results, embeddings).values():
                reducers.start(unit)
        return
    if phase == "all" and config.resources.gpus and _is_scored(config, pending, results):
        # An autoscaler is asked for no GPU, unless damaged scores have to be made again.
        with own.workers(config.resources.model_copy(update={"gpus": None})):
            pending = _reduced(config, pending, results, embeddings)
        if not any(pending.values()):
            return
    with own.workers(config.resources) as capacity:
        costs = _costs(config, pending, results)
        groups = plan(config, costs, capacity)
        known = {
            name: [backbone for backbone in backbones if (name, backbone.name) in costs]
            for name, backbones in pending.items()
        }
        units = _prepared(config, known, results, embeddings)
        _run_groups(groups, units, results, phase)


def _is_scored(config: Config, pending: Pending, results: Results) -> bool:
    """Whether all shards are scored and all texts embedded, so that only the reduce is left."""
    for name, backbones in pending.items():
        data = results.layout.dataset(name)
        facts = read_dataset_facts(data) if backbones else None
        for backbone in backbones:
            unit = data.unit(backbone.name)
            if facts is None or MarkerSummary.of(unit, facts["shards"]).missing:
                return False
            if config.labeler is None and storage.read_if_exists(unit.texts) is None:
                return False
    return True


def _reduced(
    config: Config, pending: Pending, results: Results, embeddings: EmbeddedRun | None
) -> Pending:
    """Reduces units whose shards are scored; returns those whose scores are damaged."""
    with Reducers(results) as reducers:
        for unit in _prepared(config, pending, results, embeddings).values():
            reducers.start(unit)
        damaged = {unit.key for unit in reducers.finish()}
    return {
        name: [backbone for backbone in backbones if (name, backbone.name) in damaged]
        for name, backbones in pending.items()
    }


def _make_ensembles(config: Config, results: Results, embeddings: EmbeddedRun | None) -> None:
    """Averages the finished backbones of each data set, unless that is done already."""
    for dataset in config.datasets:
        if not is_due(config, dataset.name, results.metrics):
            continue
        members = members_of(config, dataset.name, results.metrics)
        own = {name: results.metrics[dataset.name, name] for name in members}
        key = (dataset.name, ENSEMBLE)
        results.metrics.pop(key, None)
        try:
            embedded = embeddings.dataset(dataset.name) if embeddings else None
            data = prepare(config, dataset, results.layout.dataset(dataset.name), embedded)
            ensemble = EnsembleUnit(config, data, members)
            if members:
                results.metrics[key] = ensemble.make(own)
            else:
                ensemble.remove()
        except Exception as error:
            _fail(results, key, error)


def _grown(growing: Growing, config: Config, pending: Pending, results: Results) -> Pending:
    """Takes over the changes of all images; returns the units that then are not finished."""
    left: Pending = {}
    for dataset in config.datasets:
        left[dataset.name] = []
        try:
            if pending[dataset.name] and follow(growing, config, dataset, results):
                left[dataset.name] = pending[dataset.name]
        except Exception as error:
            for backbone in pending[dataset.name]:
                _fail(results, (dataset.name, backbone.name), error)
    return left


def _run_groups(groups: list[BackboneGroup], units: Units, results: Results, phase: Phase) -> None:
    """Scores one group after the other; reduces the finished ones meanwhile."""
    by_key = {
        (group.dataset, backbone.name): group for group in groups for backbone in group.backbones
    }
    with Reducers(results) as reducers:
        for group in groups:
            keys = [(group.dataset, backbone.name) for backbone in group.backbones]
            for unit in _scored(group, [units[key] for key in keys if key in units], results):
                if phase != "score":
                    reducers.start(unit)
        # Scores that were changed after they were written are made again from the images, once.
        for unit in reducers.finish():
            try:
                unit.find_damaged()
            except Exception as error:
                _fail(results, unit.key, error)
                continue
            for again in _scored(by_key[unit.key].alone(unit.key[1]), [unit], results):
                reducers.start(again)


def _costs(config: Config, pending: Pending, results: Results) -> Costs:
    """Returns the costs of units; a unit whose model is unknown fails."""
    sized = {
        (dataset.name, backbone.name): backbone.sized(dataset.resnet_size)
        for dataset in config.datasets
        for backbone in pending[dataset.name]
    }
    known = {key: cost for key, backbone in sized.items() if (cost := known_cost(backbone))}
    unknown = {key: backbone for key, backbone in sized.items() if key not in known}
    return {**known, **(_counted_costs(config, unknown, results) if unknown else {})}


def _counted_costs(
    config: Config, backbones: Mapping[UnitKey, BackboneConfig], results: Results
) -> Costs:
    """Counts costs on a worker, so that the driver does not load torch."""
    # Without a CPU, because a cluster may still have none.
    counting = current().submit(_count_costs, (backbones,), Needs(cpus=0))
    try:
        found = get(counting, config.resources.no_progress_seconds, "Counting what models cost")
    except Exception as error:
        for key in backbones:
            _fail(results, key, error)
        return {}
    results.failures |= {key: why for key, why in found.items() if isinstance(why, str)}
    return {key: cost for key, cost in found.items() if isinstance(cost, Cost)}


def _count_costs(backbones: Mapping[UnitKey, BackboneConfig]) -> dict[UnitKey, Cost | str]:
    """Returns what each unit costs, or why that is unknown."""
    found: dict[UnitKey, Cost | str] = {}
    for key, backbone in backbones.items():
        try:
            found[key] = cost_of(backbone)
        except UserError as error:
            found[key] = str(error)
    return found


def _prepared(
    config: Config, pending: Pending, results: Results, embeddings: EmbeddedRun | None
) -> Units:
    """Prepares data sets; returns the units of those that could be prepared."""
    units: Units = {}
    for dataset in config.datasets:
        name = dataset.name
        try:
            if pending[name]:
                layout = results.layout.dataset(name)
                embedded = embeddings.dataset(name) if embeddings else None
                data = prepare(config, dataset, layout, embedded)
                units |= {(name, b.name): Unit(config, data, b) for b in pending[name]}
        except Exception as error:
            for backbone in pending[name]:
                _fail(results, (name, backbone.name), error)
    return units


def _scored(group: BackboneGroup, units: list[Unit], results: Results) -> list[Unit]:
    """Scores units together; returns those that are complete."""
    try:
        failures = score_group(group, units)
        results.failures |= {(group.dataset, name): why for name, why in failures.items()}
    except Exception as error:
        causes = {type(cause).__name__ for cause in chain_of_causes(error)}
        if len(units) > 1 and causes & CRASHES:
            # One of them may be too large for a machine that can hold the others.
            units[0].stages.say(f"{explain(error)} Scoring the backbones one by one.")
            return [
                done
                for unit in units
                for done in _scored(group.alone(unit.backbone.name), [unit], results)
            ]
        for unit in units:
            _fail(results, unit.key, error)
    return [unit for unit in units if unit.key not in results.failures]


def _fail(results: Results, key: UnitKey, error: BaseException) -> None:
    lease.check()  # without it, no other unit may go on
    log.debug("unit failed", exc_info=error)
    results.failures[key] = explain(error)


class Reducers:
    """Reduces some units at a time, while others are still being scored."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._pool = ThreadPoolExecutor(REDUCED_AT_A_TIME)
        self._running: list[tuple[Unit, Future[dict[str, Any]]]] = []

    def __enter__(self) -> Reducers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            for unit in self.finish():
                self._results.failures[unit.key] = (
                    f"Scores of {unit.layout.root} were changed after they were written; run "
                    "without --only to make them again, and check the disk if this repeats."
                )
        # After Ctrl-C do not wait; the threads end with Ray.
        self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def start(self, unit: Unit) -> None:
        """Reduces a unit as soon as a thread is free."""
        self._running.append((unit, self._pool.submit(copy_context().run, unit.reduce)))

    def finish(self) -> list[Unit]:
        """Waits for all units; returns those whose scores are damaged."""
        damaged = []
        running, self._running = self._running, []
        for unit, metrics in running:
            try:
                self._results.metrics[unit.key] = metrics.result()
            except DamagedScores:
                damaged.append(unit)
            except Exception as error:
                _fail(self._results, unit.key, error)
        return damaged
