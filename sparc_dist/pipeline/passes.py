"""Passes over a unit's shards: every shard is read, and the states of all are summed.

A pass is one piece of work per group of neighbouring shards, up to some thousand groups. They, and
the tree in which their states are merged, depend only on the number of shards, so the result does
not depend on the workers. The driver holds references only; a worker holds one shard, one state and
the labelled final scores of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Protocol

from sparc_dist.pipeline.executor import current, get, submit
from sparc_dist.runs import shard_groups
from sparc_dist.runs.layout import FAN_IN
from sparc_dist.runs.reduce_checkpoints import group_key
from sparc_dist.storage import retries


class Watch(Protocol):
    """Follows the progress of passes."""

    def start(self, stage: str, images: int, done: int = 0) -> None:
        """Starts a pass over ``images`` images, of which ``done`` were done earlier."""
        ...

    def advance(self, stage: str, images: int) -> None:
        """Counts ``images`` more of a pass as done."""
        ...


@dataclass(frozen=True)
class ShardGroup:
    """Neighbouring shards. key: a hash of everything that decides their states."""

    number: int
    shards: range
    key: str


@dataclass
class Passes:
    """Runs passes over the shards of a unit.

    images: the number of scored images of each shard. limit: seconds without progress after which
    a pass fails. key: a hash of everything that decides a state, where states are kept. retries:
    how many storage requests had to be repeated.
    """

    images: Sequence[int]
    limit: float
    key: str = ""
    retries: int = 0

    def merged(self, stage: str, watch: Watch, work: Callable[..., Any], *arguments: Any) -> Any:
        """Runs ``work(group, *arguments)`` on every group; returns a reference to the sum."""
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
        """Like ``merged``, with ``work(part, *arguments)`` on the part of each group."""
        jobs = [submit(_do, work, part, *arguments, returns=2) for part in parts]
        sizes = {
            facts: sum(self.images[shard] for shard in group.shards)
            for (_, facts), group in zip(jobs, self.groups(), strict=True)
        }
        states = [state for state, _ in jobs]
        del jobs
        # States are merged as soon as all of a chunk are there, and only then freed: without
        # waiting for the last group, a large cluster holds few of them at any time.
        while len(states) > 1:
            chunks = [states[i : i + FAN_IN] for i in range(0, len(states), FAN_IN)]
            states = [submit(_merge, *chunk) for chunk in chunks]
        for facts in self._finished([*sizes], stage):
            self.retries += get(facts, self.limit, stage)  # raises what the work raised
            watch.advance(stage, sizes[facts])
        # Wait for the sum without fetching it to the driver.
        get(submit(_exists, states[0]), self.limit, f"Merging {stage}")
        return states[0]

    def each(self, stage: str, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Runs ``work(group, *arguments)`` on every group; returns references to the results."""
        jobs = [submit(_call, work, group, *arguments) for group in self.groups()]
        for _ in self._finished(list(jobs), stage):
            continue
        return jobs

    def groups(self) -> list[ShardGroup]:
        """Returns the groups of the shards."""
        return [
            ShardGroup(number, shards, group_key(self.key, shards))
            for number, shards in enumerate(shard_groups(len(self.images)))
        ]

    def _finished(self, waiting: list[Any], stage: str) -> Iterator[Any]:
        return current().finished(waiting, self.limit, f"The pass {stage.replace('_', ' ')}")


def total(states: Iterable[Any]) -> Any:
    """Returns the sum of states; each is created only after the previous one was added."""
    return reduce(add, states)


def _do(work: Callable[..., Any], part: Any, *arguments: Any) -> tuple[Any, int]:
    """Returns the state of a group and the number of repeated storage requests."""
    before = retries()
    state = work(part, *arguments)
    return state, retries() - before


def _call(work: Callable[..., Any], group: ShardGroup, *arguments: Any) -> Any:
    return work(group, *arguments)


def _exists(state: Any) -> bool:
    return state is not None


def _merge(*states: Any) -> Any:
    return total(states)
