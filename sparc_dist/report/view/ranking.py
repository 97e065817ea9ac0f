"""The ranking of a class: all images of a unit by their score, in a few bytes per image."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core import FUSIONS
from sparc_dist.runs.markers import READERS
from sparc_dist.runs.run import FinishedUnit
from sparc_dist.runs.storing import matrix

#: What is known of n images: score, decided, probability, present; each (n,).
Columns = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]


@dataclass(frozen=True)
class Ranking:
    """The n scored images of a unit, for one class.

    score, probability, present: in the order of storage, (n,). decided: the score that decides;
    that of few images is another one. starts: the place of the first image of each shard, and n.
    order: the places, the highest score first.
    """

    score: NDArray[np.float32]
    decided: NDArray[np.float32]
    probability: NDArray[np.float32]
    present: NDArray[np.bool_]
    starts: NDArray[np.int64]
    order: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.score)

    def position(self, place: int) -> tuple[int, int]:
        """Returns the shard of an image, and its row among the scored images of that shard."""
        shard = int(np.searchsorted(self.starts, place, side="right")) - 1
        return shard, place - int(self.starts[shard])


def read_ranking(unit: FinishedUnit, index: int, before_rival: bool) -> Ranking:
    """Reads the ranking of a class; holds few shards at a time.

    before_rival: as of the unit's decisions
    """
    total = before_rival and FUSIONS[unit.primary].part == "total"  # others have no rival

    def read(shard: int) -> Columns:
        names = [unit.primary, *([f"{unit.primary}_total"] if total else [])]
        final = storage.read_table(unit.unit.final(shard), names)
        labels = storage.read_table(unit.unit.labels(shard), ["probability", "present"])
        scores = matrix(final[unit.primary], len(unit.classes))
        judged = (labels[name].to_numpy().reshape(scores.shape) for name in labels.column_names)
        decided = matrix(final[names[-1]], len(unit.classes) + total * unit.background)
        # Copied, so that the columns of the other classes are freed.
        parts = (part[:, index].copy() for part in (scores, decided, *judged))
        score, decided, probability, present = parts
        return score, decided, probability, present

    with ThreadPoolExecutor(READERS) as readers:
        parts = list(readers.map(read, range(len(unit.sizes))))
    score, decided, probability, present = map(np.concatenate, zip(*parts, strict=True))
    starts = np.cumsum([0, *(len(part[0]) for part in parts)])
    order = np.argsort(-score, kind="stable").astype(np.int32)
    return Ranking(score, decided, probability, present, starts, order)
