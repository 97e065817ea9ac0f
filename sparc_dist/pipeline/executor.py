"""The executor: how the work of a run is done, in this process or on Ray.

All other modules submit work to the current executor, and do not know which one it is. Both run
the same functions on the same shards in the same order of sums, so their results have the same
bytes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sparc_dist.config import ResourcesConfig
from sparc_dist.pipeline.progress import heartbeat
from sparc_dist.planning import Capacity
from sparc_dist.runs import lease

if TYPE_CHECKING:
    from sparc_dist.pipeline.map_phase import Row, ShardSteps

#: A scorer manages its own threads. If whole CPUs were reserved for it, none would be left for
#: decoding on small machines; without any, it could start on a head that declares none because it
#: shall do no work. So it takes a trace of one, and a decoder, or a text tower, leaves as much as a
#: hundred take.
TRACE_OF_A_CPU = 0.001
MOST_OF_A_CPU = 0.9
#: What can be seen of work that is under way.
Progress = Callable[[], object]
NOTHING_SEEN: Progress = lambda: None  # noqa: E731
#: A name and its value for each label of a count.
Tags = Mapping[str, str]


@dataclass(frozen=True)
class Needs:
    """What a piece of work needs. returns: the number of its results, each with a reference."""

    cpus: float = 1
    gpus: float = 0
    returns: int = 1


class Executor(Protocol):
    """Does work. A reference stands for a result; given as an argument, it becomes the result.

    concurrent: whether work begins when it is submitted, and not when its result is wanted.
    """

    concurrent: ClassVar[bool]

    def submit(self, work: Callable[..., Any], arguments: Sequence[Any], needs: Needs) -> Any:
        """Starts ``work(*arguments)``; returns a reference, or one for each of several results."""
        ...

    def share(self, value: Any) -> Any:
        """Returns a reference to a value that is sent once, not with every piece of work."""
        ...

    def get(
        self, reference: Any, limit: float, what: str, progress: Progress = NOTHING_SEEN
    ) -> Any:
        """Returns a result; raises UserError about ``what`` after ``limit`` seconds.

        The seconds start again if ``progress`` returns something else than before.
        """
        ...

    def finished(self, references: Sequence[Any], limit: float, what: str) -> Iterator[Any]:
        """Yields references as their work ends; cancels the rest if the caller stops."""
        ...

    def score(
        self, steps: ShardSteps, segments: Iterable[list[Row]], limit: float
    ) -> Iterator[Mapping[str, Any]]:
        """Decodes, scores and writes shards; yields a row for each as it finishes."""
        ...

    def capacity(self) -> Capacity:
        """Returns what there is to work with now."""
        ...

    def workers(self, resources: ResourcesConfig) -> AbstractContextManager[Capacity]:
        """Provides the capacity to plan with, after waiting for workers where they are started."""
        ...

    def count(self, name: str, value: float, tags: Tags) -> None:
        """Publishes a number of the run for those who watch it."""
        ...


_current: Executor | None = None
#: Ends an executor that ``kept`` keeps; None if each ends with its own block.
_kept: ExitStack | None = None


def joins_ray() -> bool:
    """Whether work is done on a Ray that exists: one that was named, or that this process uses."""
    if _current is not None:
        return _current.concurrent
    own = sys.modules.get("ray")
    return bool(os.environ.get("RAY_ADDRESS")) or (own is not None and own.is_initialized())


def current() -> Executor:
    """Returns the executor that ``using`` set."""
    if _current is None:
        raise RuntimeError("no executor is in use; wrap the call in `with executor(resources):`")
    return _current


@contextmanager
def using(executor: Executor) -> Iterator[Executor]:
    """Makes an executor the current one."""
    global _current
    before, _current = _current, executor
    try:
        yield executor
    finally:
        _current = before


@contextmanager
def executor(resources: ResourcesConfig, small: bool = False) -> Iterator[Executor]:
    """Provides the executor of a run; one that is already in use is used on.

    small: whether it is done in this process, see ``small``.
    """
    if _current is not None:
        yield _current
        return
    with ExitStack() if _kept is None else nullcontext(_kept) as stack:
        yield _started(resources, small, stack)


@contextmanager
def kept(wait: bool = False) -> Iterator[None]:
    """Keeps executor and lease that are taken inside until the end, for a run and its report.

    wait: whether to wait for a lease that others hold.
    """
    global _kept
    before = _kept
    try:
        with lease.kept(wait), ExitStack() as stack:
            _kept = stack if before is None else before
            yield
    finally:
        _kept = before


def _started(resources: ResourcesConfig, small: bool, stack: ExitStack) -> Executor:
    """Starts an executor and makes it the current one, until the stack ends it."""
    if small:
        from sparc_dist.pipeline.in_process import in_process

        light = stack.enter_context(in_process(resources))
        return stack.enter_context(using(light))
    with heartbeat("joining Ray" if joins_ray() else "starting Ray"):
        started = _on_ray(resources, stack)
    return stack.enter_context(using(started))


def _on_ray(resources: ResourcesConfig, stack: ExitStack) -> Executor:
    """Starts or joins a Ray that the stack ends."""
    from sparc_dist.pipeline.environment import configure_ray

    configure_ray()
    from sparc_dist.pipeline.cluster import cluster
    from sparc_dist.pipeline.on_ray import OnRay

    stack.enter_context(cluster(resources))
    return OnRay()


def submit(work: Callable[..., Any], *arguments: Any, returns: int = 1, cpus: float = 1) -> Any:
    """Starts ``work(*arguments)`` on the current executor; returns its reference or references.

    With one CPU, the work has one BLAS thread, so sums are reproducible.
    """
    return current().submit(work, arguments, Needs(cpus=cpus, returns=returns))


def share(value: Any) -> Any:
    """Returns a reference to a value, sent once for all that is submitted with it."""
    return current().share(value)


def get(reference: Any, limit: float, what: str, progress: Progress = NOTHING_SEEN) -> Any:
    """Returns a result; raises UserError about ``what`` after ``limit`` seconds.

    The seconds start again if ``progress`` returns something else than before.
    """
    return current().get(reference, limit, what, progress)


def capacity() -> Capacity:
    """Returns what the current executor has to work with."""
    return current().capacity()
