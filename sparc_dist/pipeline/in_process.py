"""The executor for small work: everything in this process, one piece after the other, no Ray."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, ClassVar

import pyarrow as pa

from sparc_dist.config import ResourcesConfig
from sparc_dist.pipeline.embed import fetch_texts
from sparc_dist.pipeline.executor import NOTHING_SEEN, Needs, Progress, Tags
from sparc_dist.pipeline.map_phase import Row, ShardSteps
from sparc_dist.pipeline.progress import heartbeat
from sparc_dist.planning import Capacity, this_machine


class Later:
    """A reference: work that is done when its result is wanted, once."""

    def __init__(self, work: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self._work: Callable[..., Any] | None = work
        self._arguments = arguments
        self._value: Any = None

    def value(self) -> Any:
        """Returns the result."""
        if self._work is not None:
            self._value = self._work(*map(resolved, self._arguments))
            self._work, self._arguments = None, ()  # frees what was only needed for it
        return self._value


def resolved(reference: Any) -> Any:
    """Returns the result of a reference, or any other value as it is."""
    return reference.value() if isinstance(reference, Later) else reference


@dataclass
class InProcess:
    """Does work in this process, when its result is wanted."""

    cpus: int | None = None
    concurrent: ClassVar[bool] = False

    def submit(self, work: Callable[..., Any], arguments: Sequence[Any], needs: Needs) -> Any:
        """Returns a reference, or one for each of several results."""
        whole = Later(work, arguments)
        if needs.returns == 1:
            return whole
        return [Later(_item, (whole, index)) for index in range(needs.returns)]

    def share(self, value: Any) -> Any:
        """Returns the value: everything is in this process."""
        return value

    def get(
        self, reference: Any, limit: float, what: str, progress: Progress = NOTHING_SEEN
    ) -> Any:
        """Returns the result; work in this process has no time limit."""
        return resolved(reference)

    def finished(self, references: Sequence[Any], limit: float, what: str) -> Iterator[Any]:
        """Yields each reference after its work."""
        for reference in references:
            resolved(reference)
            yield reference

    def score(
        self, steps: ShardSteps, segments: Iterable[list[Row]], limit: float
    ) -> Iterator[Mapping[str, Any]]:
        """Decodes the next shards in threads while one is scored."""
        # A model is loaded once, for texts and images.
        score = steps.scorer(lambda held: fetch_texts(steps.texts, held, resolved))
        rows = chain.from_iterable(segments)
        with ThreadPoolExecutor(steps.decoders) as pool:

            def decode(row: Row) -> Future[pa.Table]:
                return pool.submit(steps.decode, pa.Table.from_pylist([row]))

            ahead = deque(map(decode, islice(rows, steps.decoders)))
            while ahead:
                decoded = ahead.popleft().result()
                ahead.extend(map(decode, islice(rows, 1)))
                (done,) = steps.write(score(decoded)).to_pylist()
                yield done

    def capacity(self) -> Capacity:
        """Returns what this machine has."""
        machine = this_machine()  # loads torch, which not all work needs
        return replace(machine, cpus=self.cpus or machine.cpus)

    @contextmanager
    def workers(self, resources: ResourcesConfig) -> Iterator[Capacity]:
        """Provides what this machine has."""
        with heartbeat("starting"):
            machine = self.capacity()
        yield machine

    def count(self, name: str, value: float, tags: Tags) -> None:
        """Publishes nothing: the lines of progress say all."""


@contextmanager
def in_process(resources: ResourcesConfig) -> Iterator[InProcess]:
    """Provides the executor. As on Ray, a sum has one BLAS thread, so it has the same bits."""
    from threadpoolctl import threadpool_limits  # sets a variable when it is imported

    with threadpool_limits(1, "blas"):
        yield InProcess(resources.cpus)


def _item(values: Sequence[Any], index: int) -> Any:
    return values[index]
