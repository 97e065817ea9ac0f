"""The units of a run on Ray: every data set under every backbone that is still to be done."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ray import exceptions as ray_exceptions
from ray.data.exceptions import ExecutionTimeoutError
from ray.exceptions import RayTaskError

from sparc_dist.config import BackboneConfig, Config, DatasetConfig
from sparc_dist.errors import UserError
from sparc_dist.outcome import Missing, Outcome
from sparc_dist.pipeline.cluster import cluster
from sparc_dist.pipeline.prepare import Prepared, prepare
from sparc_dist.pipeline.unit import run_unit

log = logging.getLogger(__name__)

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


def run_units(config: Config, missing: Missing, outcome: Outcome) -> None:
    """Run units; one that fails does not stop the others."""
    with cluster(config.resources):
        for dataset in config.datasets:
            _run_dataset(config, dataset, missing[dataset.name], outcome)


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
