"""Compaction: a unit's markers become one table per segment as soon as that is scored."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.pipeline.executor import get, submit
from sparc_dist.runs import MarkerSummary, UnitLayout
from sparc_dist.runs.layout import SEGMENT
from sparc_dist.runs.marker_tables import LEAST, begin, compact, segment_of


class Compaction:
    """Follows the scoring of a unit: its markers so far, and the shards that are left."""

    def __init__(self, unit: UnitLayout, markers: MarkerSummary, todo: NDArray[np.int64]) -> None:
        self._unit = unit
        self._shards = len(markers.images)
        self._begun = _begun(self._shards, np.asarray(markers.missing))
        self._left = np.bincount(todo // SEGMENT)
        self._jobs: list[Any] = []
        touched = {*(todo // SEGMENT).tolist()}  # damaged shards, whose markers will change
        for shard in markers.loose:
            if shard // SEGMENT not in touched:
                self._start(shard)

    def begin(self, shards: int) -> None:
        """Notes that the first ``shards`` shards are about to be scored."""
        if shards > self._begun:
            begin(self._unit, shards, self._shards)
            self._begun = shards

    def done(self, shard: int) -> None:
        """Takes note of a shard that is scored; compacts its segment if it is the last one."""
        self._left[shard // SEGMENT] -= 1
        if not self._left[shard // SEGMENT]:
            self._start(shard)

    def _start(self, shard: int) -> None:
        segment = segment_of(shard, self._shards)
        if len(segment) >= LEAST:
            self._jobs.append(submit(compact, self._unit, segment))

    def finish(self, limit: float) -> None:
        """Waits until all tables are written."""
        for job in self._jobs:
            get(job, limit, "Compacting the markers")


def _begun(shards: int, missing: NDArray[np.int64]) -> int:
    """Returns the first shard after all that have a marker. missing: sorted numbers (n,)."""
    gaps = missing != np.arange(shards - len(missing), shards)
    last = np.flatnonzero(gaps)
    return shards - len(missing) + (int(last[-1]) + 1 if len(last) else 0)
