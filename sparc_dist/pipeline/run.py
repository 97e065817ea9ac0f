"""A run: every data set under every backbone."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ray import exceptions as ray_exceptions
from ray.data.exceptions import ExecutionTimeoutError
from ray.exceptions import RayTaskError

from sparc_dist import storage
from sparc_dist.config import BackboneConfig, Config, DatasetConfig
from sparc_dist.errors import UserError
from sparc_dist.layout import RunLayout
from sparc_dist.pipeline.cluster import cluster
from sparc_dist.pipeline.prepare import Prepared, prepare
from sparc_dist.pipeline.unit import run_unit
from sparc_dist.record import claim

log = logging.getLogger(__name__)

_AGAIN = "start the same command again, it goes on from where it is."
#: What Ray reports, in words that say what to do.
TOLD: dict[type[BaseException], str] = {
    ExecutionTimeoutError: (
        "No shard was finished for resources.no_progress_seconds; raise it or lower shard_size if "
        "the machine is slow, or give the cluster what it lacks."
    ),
    ray_exceptions.OutOfMemoryError: (
        "A machine ran out of memory, again and again; lower shard_size, batch_size or "
        f"resources.scorers, or take machines with more, and {_AGAIN}"
    ),
    ray_exceptions.OutOfDiskError: (
        f"Ray has no space left to spill to; free some in its temporary folder, and {_AGAIN}"
    ),
    ray_exceptions.ObjectStoreFullError: (
        "Ray's object store is full; lower shard_size or give Ray more of it, and " + _AGAIN
    ),
    ray_exceptions.NodeDiedError: f"A machine of the cluster was lost; {_AGAIN}",
    ray_exceptions.WorkerCrashedError: (
        "A worker was killed, again and again, which is mostly for lack of memory; lower "
        f"shard_size, batch_size or resources.scorers, and {_AGAIN}"
    ),
    ray_exceptions.ActorDiedError: (
        "A worker with a model died, which is mostly for lack of memory; lower batch_size or "
        f"resources.scorers, and {_AGAIN}"
    ),
}


@dataclass
class Outcome:
    """What became of a run: metrics of the units that are done, reasons of those that are not."""

    layout: RunLayout
    metrics: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    nothing_to_do: bool = False


def run(config: Config, overwrite: bool = False) -> Outcome:
    """Do what is missing of a run; a unit that fails does not stop the others."""
    layout = RunLayout(config.output)
    record = claim(layout, config, overwrite)
    outcome = Outcome(layout)
    missing = {dataset.name: _missing(config, dataset, outcome) for dataset in config.datasets}
    outcome.nothing_to_do = not any(missing.values())
    started = time.monotonic()
    if not outcome.nothing_to_do:
        storage.check_access(layout.root)
        with cluster(config.resources):
            for dataset in config.datasets:
                _run_dataset(config, dataset, missing[dataset.name], outcome)
    _judge(outcome, config.max_error_share)
    units = _unit_facts(outcome)
    if not outcome.nothing_to_do or units != record.get("units"):
        record["seconds"] = round(time.monotonic() - started, 1)
        record["units"] = units
        storage.write_json(layout.run, record)
    return outcome


def _missing(config: Config, dataset: DatasetConfig, outcome: Outcome) -> list[BackboneConfig]:
    """The backbones under which a data set is still to be run; the others' metrics are read."""
    missing = []
    for backbone in config.backbones:
        try:
            unit = outcome.layout.dataset(dataset.name).unit(backbone.name)
            metrics = storage.read_own_json(unit.metrics)
        except ValueError:  # damaged: what it says can be had again
            metrics = None
        if metrics is None:
            missing.append(backbone)
        else:
            outcome.metrics[dataset.name, backbone.name] = metrics
    return missing


def _run_dataset(
    config: Config, dataset: DatasetConfig, missing: list[BackboneConfig], outcome: Outcome
) -> None:
    data: Prepared | None = None
    for backbone in missing:
        try:
            layout = outcome.layout.dataset(dataset.name)
            limit = config.resources.no_progress_seconds
            data = data or prepare(dataset, layout, config.shard_size, limit)
            outcome.metrics[dataset.name, backbone.name] = run_unit(config, data, backbone)
        except Exception as error:
            log.debug("unit failed", exc_info=True)
            outcome.failures[dataset.name, backbone.name] = sentence(error)


def _judge(outcome: Outcome, most: float) -> None:
    """A unit with too many errors has failed, although all it could do is saved."""
    for key, metrics in outcome.metrics.items():
        errors = metrics["errors"]
        if errors["share"] > most:
            (reason, count), *_ = errors["reasons"].items()
            outcome.failures[key] = (
                f"{errors['images']} of {errors['images'] + metrics['images']} images could not be "
                f"read ({count} × {reason}), a share above max_error_share ({most:g}); all else is "
                "saved. Look into errors/, and raise max_error_share if that is as it should be."
            )


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


def _unit_facts(outcome: Outcome) -> list[dict[str, Any]]:
    """For run.json: what became of each unit."""
    facts = []
    for key in {**outcome.metrics, **outcome.failures}:
        unit: dict[str, Any] = {"dataset": key[0], "backbone": key[1], "status": "done"}
        if metrics := outcome.metrics.get(key):
            unit |= {"images": metrics["images"], "errors": metrics["errors"]["images"]}
            unit |= {name: metrics[name] for name in ("weights_sha256", "prompts_sha256")}
        if key in outcome.failures:
            unit |= {"status": "failed", "error": outcome.failures[key]}
        facts.append(unit)
    return facts
