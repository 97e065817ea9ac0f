"""The units of a run on Ray: every data set under every backbone that is still to be done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import ray
from ray import exceptions as ray_exceptions
from ray.data.exceptions import ExecutionTimeoutError
from ray.exceptions import RayTaskError

from sparc_dist.config import Config
from sparc_dist.errors import UserError
from sparc_dist.outcome import Missing, Outcome, Part
from sparc_dist.pipeline.cluster import asked, cluster
from sparc_dist.pipeline.prepare import prepare
from sparc_dist.pipeline.scoring import score_group
from sparc_dist.pipeline.unit import Unit
from sparc_dist.pipeline.waiting import result
from sparc_dist.plan import Cost, Costs, Group, plan
from sparc_dist.shards import DamagedScores

log = logging.getLogger(__name__)

#: By the names of data set and backbone.
Units = dict[tuple[str, str], Unit]

REDUCED_AT_A_TIME = 4

_AGAIN = "start the same command again, it goes on from where it is."
_LESS = (
    "lower resources.scorers or take larger machines and start the same command again; or lower "
    "shard_size or batch_size and start anew with --overwrite."
)
#: What Ray reports, in words that say what to do.
TOLD: dict[type[BaseException], str] = {
    ExecutionTimeoutError: (
        "No shard was finished for resources.no_progress_seconds; raise it if the machine is slow, "
        "or give the cluster what it lacks."
    ),
    ray_exceptions.OutOfMemoryError: (f"A machine ran out of memory, again and again; {_LESS}"),
    ray_exceptions.OutOfDiskError: (
        f"Ray has no space left to spill to; free some in its temporary folder, and {_AGAIN}"
    ),
    ray_exceptions.ObjectStoreFullError: (
        f"Ray's object store is full; give Ray more of it, or {_LESS}"
    ),
    ray_exceptions.NodeDiedError: f"A machine of the cluster was lost; {_AGAIN}",
    ray_exceptions.WorkerCrashedError: (
        f"A worker was killed, again and again, which is mostly for lack of memory; {_LESS}"
    ),
    ray_exceptions.ActorDiedError: (
        f"A worker with a model died, which is mostly for lack of memory; {_LESS}"
    ),
}
#: After which a group's backbones are tried one by one.
CRASHES = (
    ray_exceptions.OutOfMemoryError,
    ray_exceptions.ObjectStoreFullError,
    ray_exceptions.WorkerCrashedError,
    ray_exceptions.ActorDiedError,
)


def run_units(config: Config, missing: Missing, outcome: Outcome, part: Part = "all") -> None:
    """Score and reduce units, or one of the two; a unit that fails does not stop the others."""
    with cluster(config.resources):
        if part == "reduce":
            with Reducers(outcome) as reducers:
                for unit in _prepared(config, missing, outcome).values():
                    reducers.start(unit)
            return
        with asked(config.resources) as has:
            costs = _known_costs(config, missing, outcome)
            groups = plan(config, costs, has)
            known = {
                name: [backbone for backbone in backbones if (name, backbone.name) in costs]
                for name, backbones in missing.items()
            }
            _run_groups(groups, _prepared(config, known, outcome), outcome, part)


def _run_groups(groups: list[Group], units: Units, outcome: Outcome, part: Part) -> None:
    """Group after group; what is scored is reduced while the next one is scored."""
    by_key = {
        (group.dataset, backbone.name): group for group in groups for backbone in group.backbones
    }
    with Reducers(outcome) as reducers:
        for group in groups:
            keys = [(group.dataset, backbone.name) for backbone in group.backbones]
            for unit in _scored(group, [units[key] for key in keys if key in units], outcome):
                if part != "score":
                    reducers.start(unit)
        # Scores that turn out not to be what was written are made again from the images, once.
        for unit in reducers.finish():
            try:
                unit.find_damaged()
            except Exception as error:
                _fail(outcome, unit.key, error)
                continue
            for again in _scored(by_key[unit.key].alone(unit.key[1]), [unit], outcome):
                reducers.start(again)


def _known_costs(config: Config, missing: Missing, outcome: Outcome) -> Costs:
    """The costs of units; a model that nobody knows is its unit's failure."""
    # On a worker, for the driver needs no torch; without a CPU, for a cluster may still have none.
    counting = ray.remote(num_cpus=0)(_count_costs).remote(config, missing)
    try:
        found = result(counting, config.resources.no_progress_seconds, "Counting what models cost")
    except Exception as error:
        for name, backbones in missing.items():
            for backbone in backbones:
                _fail(outcome, (name, backbone.name), error)
        return {}
    outcome.failures |= {key: told for key, told in found.items() if isinstance(told, str)}
    return {key: cost for key, cost in found.items() if isinstance(cost, Cost)}


def _count_costs(config: Config, missing: Missing) -> dict[tuple[str, str], Cost | str]:
    """What each unit costs, or why that cannot be said."""
    from sparc_dist.costs import cost_of

    found: dict[tuple[str, str], Cost | str] = {}
    for dataset in config.datasets:
        for backbone in missing[dataset.name]:
            try:
                cost = cost_of(backbone.sized(dataset.resnet_size))
                found[dataset.name, backbone.name] = cost
            except UserError as error:
                found[dataset.name, backbone.name] = str(error)
    return found


def _prepared(config: Config, missing: Missing, outcome: Outcome) -> Units:
    """The units of data sets whose images and prompts are there then."""
    units: Units = {}
    limit = config.resources.no_progress_seconds
    for dataset in config.datasets:
        name = dataset.name
        try:
            if missing[name]:
                layout = outcome.layout.dataset(name)
                data = prepare(dataset, layout, config.shard_size, limit)
                units |= {(name, b.name): Unit(config, data, b) for b in missing[name]}
        except Exception as error:
            for backbone in missing[name]:
                _fail(outcome, (name, backbone.name), error)
    return units


def _scored(group: Group, units: list[Unit], outcome: Outcome) -> list[Unit]:
    """Score units together; gives those that are complete."""
    try:
        failures = score_group(group, units)
        outcome.failures |= {(group.dataset, name): told for name, told in failures.items()}
    except Exception as error:
        if len(units) > 1 and any(isinstance(cause, CRASHES) for cause in _causes(error)):
            # One of them may be too much for a machine that could bear the others.
            units[0].stages.say(f"{sentence(error)} The backbones go on one by one.")
            return [
                done
                for unit in units
                for done in _scored(group.alone(unit.backbone.name), [unit], outcome)
            ]
        for unit in units:
            _fail(outcome, unit.key, error)
    return [unit for unit in units if unit.key not in outcome.failures]


def _fail(outcome: Outcome, key: tuple[str, str], error: BaseException) -> None:
    log.debug("unit failed", exc_info=error)
    outcome.failures[key] = sentence(error)


class Reducers:
    """Reduces units, some at a time, while others are still being scored."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._pool = ThreadPoolExecutor(REDUCED_AT_A_TIME)
        self._running: list[tuple[Unit, Future[dict[str, Any]]]] = []

    def __enter__(self) -> Reducers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            for unit in self.finish():
                self._outcome.failures[unit.key] = (
                    f"Scores of {unit.layout.root} are not what was written; run both stages, "
                    "without --only, to make them anew, and see to its disk if that was done."
                )
        # After Ctrl-C nobody waits; the threads end with Ray.
        self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def start(self, unit: Unit) -> None:
        """Reduce a unit as soon as there is room."""
        self._running.append((unit, self._pool.submit(unit.reduce)))

    def finish(self) -> list[Unit]:
        """Wait for all; gives the units whose scores are damaged."""
        damaged = []
        running, self._running = self._running, []
        for unit, metrics in running:
            try:
                self._outcome.metrics[unit.key] = metrics.result()
            except DamagedScores:
                damaged.append(unit)
            except Exception as error:
                _fail(self._outcome, unit.key, error)
        return damaged


def sentence(error: BaseException) -> str:
    """What to tell of an error: a UserError's own words, wherever on the cluster it was raised."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, UserError) and not isinstance(cause, RayTaskError):
            return str(cause)
        for kind, told in TOLD.items():
            if isinstance(cause, kind):
                return told
    last = [line.strip() for line in str(causes[-1]).splitlines() if line.strip()] or [""]
    return f"{type(causes[-1]).__name__}: {last[-1]}"[:500]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, what it came from, and so on; Ray keeps it in ``cause``."""
    seen: BaseException | None = error
    while isinstance(seen, BaseException):
        yield seen
        cause = getattr(seen, "cause", None)
        seen = cause if isinstance(cause, BaseException) else seen.__cause__
