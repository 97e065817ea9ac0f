"""The shards that are still to be scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: A shard and the backbones to score it with: {shard, backbones}.
Row = dict[str, Any]


@dataclass(frozen=True)
class Todo:
    """The shards to score: for each backbone the sorted numbers of its shards (n,).

    Arrays, because a run may have millions of shards; rows are made for one segment at a time.
    begin: told before each segment which shard follows its last one.
    """

    shards: Mapping[str, NDArray[np.int64]]
    begin: Callable[[int], None] = lambda shards: None

    def segments(self, size: int) -> Iterator[list[Row]]:
        """Yields the rows in the order of shards, ``size`` of them at a time."""
        union = np.unique(np.concatenate([*self.shards.values()]))
        for start in range(0, len(union), size):
            part = union[start : start + size]
            wanted = {name: _between(own, part) for name, own in self.shards.items()}
            self.begin(int(part[-1]) + 1)
            yield [
                {"shard": shard, "backbones": [name for name in wanted if shard in wanted[name]]}
                for shard in part.tolist()
            ]


def _between(shards: NDArray[np.int64], part: NDArray[np.int64]) -> set[int]:
    """Returns the shards from the first to the last of a part."""
    first, end = np.searchsorted(shards, [part[0], part[-1] + 1])
    return set(shards[first:end].tolist())
