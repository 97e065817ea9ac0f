"""The executor on Ray: tasks for work, Ray Data for images, on a laptop or a cluster."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import ray
from ray.exceptions import GetTimeoutError
from ray.util.annotations import RayDeprecationWarning
from ray.util.metrics import Counter, Gauge

from sparc_dist.config import ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.pipeline.cluster import cluster_capacity, request_workers
from sparc_dist.pipeline.embed import fetch_texts
from sparc_dist.pipeline.executor import (
    MOST_OF_A_CPU,
    NOTHING_SEEN,
    TRACE_OF_A_CPU,
    Needs,
    Progress,
    Tags,
)
from sparc_dist.pipeline.map_phase import Row, ShardSteps
from sparc_dist.planning import Capacity

if TYPE_CHECKING:
    import ray.data  # at run time, Ray imports it when it is first used


class OnRay:
    """Does work on the Ray that this process has joined. The driver holds references only."""

    concurrent: ClassVar[bool] = True

    def __init__(self) -> None:
        # Ray Data takes a second to import; meanwhile, the first workers start.
        Thread(target=import_module, args=("ray.data",), daemon=True).start()

    def submit(self, work: Callable[..., Any], arguments: Sequence[Any], needs: Needs) -> Any:
        """Starts a task; returns its reference, or one for each of several results."""
        # What it needs is declared here and not with options(): only then does Ray end the worker
        # after a task with a GPU, and so free the memory that its model held.
        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "num_returns": needs.returns}
        return ray.remote(**options)(work).remote(*arguments)

    def share(self, value: Any) -> Any:
        """Puts a value into Ray's object store; returns a reference to it."""
        return ray.put(value)

    def get(
        self, reference: Any, limit: float, what: str, progress: Progress = NOTHING_SEEN
    ) -> Any:
        """Returns a result; raises UserError after ``limit`` seconds in which nothing changed."""
        seen = progress()
        while True:
            try:
                return ray.get(reference, timeout=limit)
            except GetTimeoutError:
                before, seen = seen, progress()
                if seen == before:
                    ray.cancel(reference, force=True)
                    raise _stalled(what, limit) from None

    def finished(self, references: Sequence[Any], limit: float, what: str) -> Iterator[Any]:
        """Yields references as their tasks end; cancels the others if the caller stops."""
        waiting = list(references)
        try:
            while waiting:
                done, waiting = ray.wait(waiting, timeout=limit)
                if not done:
                    raise _stalled(what, limit)
                yield done[0]
        finally:
            if waiting:
                # Only running tasks: cancelling one whose reply is on its way aborts the driver.
                for reference in ray.wait(waiting, num_returns=len(waiting), timeout=0)[1]:
                    ray.cancel(reference)

    def score(
        self, steps: ShardSteps, segments: Iterable[list[Row]], limit: float
    ) -> Iterator[Mapping[str, Any]]:
        """Runs each segment as a Ray data set: Ray Data keeps all blocks of one in its books."""
        _configure_data(limit)
        for rows in segments:
            yield from _finished(self._decoded(rows, steps), len(rows), steps).iter_rows()
            _return_memory()

    def _decoded(self, rows: list[Row], steps: ShardSteps) -> ray.data.Dataset:
        """Decodes shards on CPU tasks."""
        data = ray.data.from_items(rows, override_num_blocks=len(rows))
        return data.map_batches(
            steps.decode,
            compute=ray.data.TaskPoolStrategy(size=min(steps.decoders, len(rows))),
            num_cpus=MOST_OF_A_CPU,
            batch_size=1,
            batch_format="pyarrow",
        )

    def capacity(self) -> Capacity:
        """Returns what the cluster has now."""
        return cluster_capacity()

    def workers(self, resources: ResourcesConfig) -> AbstractContextManager[Capacity]:
        """Provides what the cluster has, or will have on our request."""
        return request_workers(resources)

    def count(self, name: str, value: float, tags: Tags) -> None:
        """Publishes a number through Ray for Prometheus, which prefixes its name with "ray_"."""
        metric = _metric(name, tuple(tags))
        if isinstance(metric, Gauge):
            metric.set(value, dict(tags))
        elif value:  # Ray refuses to count nothing
            metric.inc(value, dict(tags))


class ScoreShardActor:
    """A scorer whose embeddings of prompts come from Ray's object store."""

    def __init__(self, steps: ShardSteps) -> None:
        self._score = steps.scorer(lambda held: fetch_texts(steps.texts, held, ray.get))

    def __call__(self, batch: Any) -> Any:
        """Scores a shard."""
        return self._score(batch)


def _finished(decoded: ray.data.Dataset, shards: int, steps: ShardSteps) -> ray.data.Dataset:
    """Scores decoded shards on actors and writes what they return."""
    scorers = steps.scorers
    one: dict[str, Any] = {"batch_size": 1, "batch_format": "pyarrow"}
    several = scorers.shards > 1
    pool = ray.data.ActorPoolStrategy(
        size=min(scorers.actors, shards),
        # A scorer of several shards has a lock of its own, which it holds while it encodes only.
        enable_true_multi_threading=several,
        # It is so fast that a busy driver may take longer to send the next shard than it to score.
        max_tasks_in_flight_per_actor=4 * scorers.shards if several else None,
    )
    with warnings.catch_warnings():
        # Ray will give `max_concurrency` another name, and has none for it yet (ray issue 65228).
        warnings.simplefilter("ignore", RayDeprecationWarning)
        scored = decoded.map_batches(
            ScoreShardActor,
            fn_constructor_args=(steps,),
            compute=pool,
            # A GPU machine may declare no CPU.
            num_cpus=0 if scorers.gpus else TRACE_OF_A_CPU,
            num_gpus=scorers.gpus,
            max_concurrency=scorers.shards,
            **one,
        )
    return scored.map_batches(steps.write, num_cpus=0.5, **one)


def _configure_data(limit: float) -> None:
    """Turns off Ray Data's own progress bars and logs, and limits every wait."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = float(limit)
    # A shard is one row and must stay one block, however large.
    context.target_max_block_size = None
    # What Ray Data logs as an error it also raises, and we report that.
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)


def _return_memory() -> None:
    """Gives the memory of an ended data set back to the system.

    It is in cycles, and the C library keeps what is freed between things still in use: without
    this, every segment adds some megabytes to the driver.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only the GNU library has it
        if trim is not None:
            trim(0)


def _stalled(what: str, limit: float) -> UserError:
    """Returns the error for work that takes too long."""
    has, free = ray.cluster_resources(), ray.available_resources()
    shown = ", ".join(
        f"{free.get(name, 0.0):g} of {has.get(name, 0.0):g} {name}s" for name in ("CPU", "GPU")
    )
    return UserError(
        f"{what} took longer than resources.no_progress_seconds ({limit:g} s); the cluster has "
        f"{shown} free. Give it what it lacks, or raise the limit if the machine is slow."
    )


@cache
def _metric(name: str, tags: tuple[str, ...]) -> Counter | Gauge:
    """Returns the metric of a name; one that ends in "total" counts, others are set."""
    kind = Counter if name.endswith("_total") else Gauge
    return kind(f"sparc_dist_{name}", METRICS[name], tags)


#: What is published of a run: the name of a number, and what it is.
METRICS = {
    "images_done_total": "Images that a stage of a unit is done with.",
    "images_unreadable_total": "Images that could not be read or decoded.",
    "stage_seconds": "Seconds since a stage of a unit began.",
    "images_per_second": "Images a second, since a stage began.",
}
