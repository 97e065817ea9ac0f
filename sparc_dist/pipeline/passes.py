"""Passes over a unit's shards on Ray: a look at every shard, and the sum of what it showed.

A pass is a task per group of neighbouring shards. Groups, and the tree in which their states are
merged, depend on the number of shards alone, so the result does not depend on who worked. The
driver holds references only; a worker holds one shard and one state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Protocol

import ray

from sparc_dist.pipeline.waiting import get_with_timeout, stalled
from sparc_dist.runs import shard_groups
from sparc_dist.storage import retries

FAN_IN = 16


class Watch(Protocol):
    """Follows the progress of passes."""

    def start(self, stage: str, images: int, done: int = 0) -> None:
        """A pass over ``images`` images begins, ``done`` of which were done earlier."""
        ...

    def advance(self, stage: str, images: int) -> None:
        """So many more images of a pass are done."""
        ...


@dataclass(frozen=True)
class ShardGroup:
    """Neighbouring shards. key: a hash of all that decides its states."""

    number: int
    shards: range
    key: str


@dataclass
class Passes:
    """What it takes to look at every shard of a unit.

    images: the number of scored images of each shard. limit: seconds without progress after which
    it gives up. key: a hash of all that decides a state, where states are kept. retries: how often
    a store had to be asked again.
    """

    images: Sequence[int]
    limit: float
    key: str = ""
    retries: int = 0

    def merged(self, stage: str, watch: Watch, work: Callable[..., Any], *arguments: Any) -> Any:
        """``work(group, *arguments)`` on every group, merged with ``+``: a reference to the sum."""
        watch.start(stage, sum(self.images))
        return self.merged_over(self.groups(), stage, watch, work, *arguments)

    def merged_over(
        self,
        parts: Sequence[Any],
        stage: str,
        watch: Watch,
        work: Callable[..., Any],
        *arguments: Any,
    ) -> Any:
        """The same of ``work(part, *arguments)``, where each group has its part."""
        task, merge = remote(_do, returns=2), remote(_merge)
        jobs = [task.remote(work, part, *arguments) for part in parts]
        sizes = {
            facts: sum(self.images[shard] for shard in group.shards)
            for (_, facts), group in zip(jobs, self.groups(), strict=True)
        }
        for facts in self._finished([facts for _, facts in jobs], stage):
            self.retries += ray.get(facts)  # raises what the task raised
            watch.advance(stage, sizes[facts])
        states = [state for state, _ in jobs]
        while len(states) > 1:
            chunks = [states[i : i + FAN_IN] for i in range(0, len(states), FAN_IN)]
            states = [merge.remote(*chunk) for chunk in chunks]
        # Here the sum is waited for without bringing it to the driver.
        get_with_timeout(remote(_exists).remote(states[0]), self.limit, f"Merging {stage}")
        return states[0]

    def each(self, stage: str, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``work(group, *arguments)`` on every group: references to the results, in order."""
        task = remote(_call)
        jobs = [task.remote(work, group, *arguments) for group in self.groups()]
        for _ in self._finished(list(jobs), stage):
            continue
        return jobs

    def groups(self) -> list[ShardGroup]:
        """The groups of its shards."""
        return [
            ShardGroup(number, shards, f"{self.key}:{shards.start}:{shards.stop}")
            for number, shards in enumerate(shard_groups(len(self.images)))
        ]

    def _finished(self, waiting: list[Any], stage: str) -> Iterator[Any]:
        """The references as they come to an end; none is left behind when one fails."""
        try:
            while waiting:
                done, waiting = ray.wait(waiting, timeout=self.limit)
                if not done:
                    raise stalled(f"The pass {stage.replace('_', ' ')}", self.limit)
                yield done[0]
        finally:
            if waiting:
                # Only what still runs: to cancel a task whose reply is on its way ends the driver.
                for reference in ray.wait(waiting, num_returns=len(waiting), timeout=0)[1]:
                    ray.cancel(reference)


def remote(work: Callable[..., Any], returns: int = 1, cpus: int = 1) -> Any:
    """Returns a Ray task; with one CPU it has one BLAS thread, so sums are reproducible."""
    return ray.remote(num_cpus=cpus, num_returns=returns)(work)


def share(value: Any) -> Any:
    """Puts a value into Ray's object store, once for all tasks; returns a reference to it."""
    return ray.put(value)


def total(states: Iterable[Any]) -> Any:
    """The sum of states, each made only when the one before has been added."""
    return reduce(add, states)


def _do(work: Callable[..., Any], part: Any, *arguments: Any) -> tuple[Any, int]:
    """The state of a group, and how often a store was retried."""
    before = retries()
    state = work(part, *arguments)
    return state, retries() - before


def _call(work: Callable[..., Any], group: ShardGroup, *arguments: Any) -> Any:
    return work(group, *arguments)


def _exists(state: Any) -> bool:
    return state is not None


def _merge(*states: Any) -> Any:
    return total(states)
