"""A unit as the viewer sees it: rankings of its classes, images by shard and row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isnan
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core import FUSIONS, Decision
from sparc_dist.report.view.response import not_found
from sparc_dist.runs import UnitKey
from sparc_dist.runs.decisions import read_decisions
from sparc_dist.runs.markers import READERS
from sparc_dist.runs.refit import label_free
from sparc_dist.runs.run import FinishedUnit
from sparc_dist.runs.shards import image_shards, read_images
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


#: How many classes, and how many shards' ids, are kept in memory.
RANKINGS, SHARDS = 4, 512
#: A search ends after so many images.
MOST_FOUND = 100


@dataclass(frozen=True)
class ShardImages:
    """The images of a shard. scored: the rows of those with scores, in the order of final/."""

    ids: Sequence[str]
    uris: Sequence[str]
    scored: Sequence[int]


@dataclass(frozen=True)
class Tile:
    """An image to show, by its shard and row in images.parquet, as one class judges it."""

    shard: int
    row: int
    image_id: str
    uri: str
    score: float
    probability: float
    present: bool


@dataclass(frozen=True)
class Standing:
    """How a class is decided now; None for a class whose scores do not vary."""

    status: str
    prevalence: float | None
    probability: float | None
    score: float | None

    @classmethod
    def of(cls, rule: Decision, index: int) -> Standing:
        """Returns how a rule decides a class."""
        columns = (rule.prevalence, rule.threshold_probability, rule.threshold_score)
        numbers = (float(column[index]) for column in columns)
        return cls(rule.status[index], *(None if isnan(value) else value for value in numbers))


class UnitView:
    """A finished unit, with what is kept in memory of it."""

    def __init__(self, key: UnitKey, unit: FinishedUnit) -> None:
        self.key, self.unit = key, unit
        self._lock = Lock()
        self._ranking = lru_cache(RANKINGS)(self._read_ranking)
        self._images = lru_cache(SHARDS)(self._read_images)

    @property
    def title(self) -> str:
        """The names of its data set and backbone."""
        return " × ".join(self.key)

    @cached_property
    def standings(self) -> list[Standing]:
        """How each class is decided."""
        return [Standing.of(self.decision, index) for index in range(len(self.unit.classes))]

    @property
    def path(self) -> str:
        """Its part of an address; the config admits only names that are safe there."""
        return "/".join(self.key)

    def ranking(self, index: int) -> Ranking:
        """Returns the ranking of a class, read once."""
        with self._lock:  # several requests must not read the same class
            return self._ranking(index)

    def images(self, shard: int) -> ShardImages:
        """Returns the images of a shard."""
        if not 0 <= shard < len(self.unit.sizes):
            raise not_found(f"{self.title} has {len(self.unit.sizes)} shards.")
        return self._images(shard)

    def tiles(self, ranking: Ranking, places: Iterable[int]) -> list[Tile]:
        """Returns the images at some places of a ranking; their shards are read side by side."""
        wanted = [(place, *ranking.position(place)) for place in places]
        with ThreadPoolExecutor(READERS) as readers:
            shards = {shard for _, shard, _ in wanted}
            images = dict(zip(shards, readers.map(self.images, shards), strict=True))
        return [_tile(ranking, *found, images[found[1]]) for found in wanted]

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yields shard, row and id of the first images whose id contains a text."""
        left = MOST_FOUND
        for shard, table in enumerate(image_shards(self.unit.data, ["image_id"])):
            ids = table["image_id"].combine_chunks()
            hits = pc.indices_nonzero(pc.match_substring(ids, text, ignore_case=True))
            for row in hits.slice(0, left).to_pylist():
                yield shard, row, ids[row].as_py()
            left -= min(left, len(hits))
            if not left:
                return

    def place(self, image_id: str) -> tuple[int, int] | None:
        """Returns shard and row of the image with an id; None if there is none."""
        for shard, table in enumerate(image_shards(self.unit.data, ["image_id"])):
            row = pc.index(table["image_id"], image_id).as_py()
            if row >= 0:
                return shard, row
        return None

    @cached_property
    def errors(self) -> pa.Table:
        """Id and reason of all images that could not be read."""
        if not self.unit.metrics["errors"]["images"]:
            return pa.table({"image_id": [], "error": []})
        return self.unit.table("errors", ["image_id", "error"])

    @cached_property
    def decision(self) -> Decision:
        """The rule of the method that decides, as stored."""
        return read_decisions(self.unit.unit.decisions)[0][self.unit.primary]

    @cached_property
    def label_free(self) -> Decision:
        """The same without any knowledge or answers."""
        return label_free(self.unit)

    def _read_ranking(self, index: int) -> Ranking:
        return read_ranking(self.unit, index, self.decision.before_rival)

    def _read_images(self, shard: int) -> ShardImages:
        table = read_images(self.unit.data, shard, ["image_id", "uri"])
        final = storage.read_table(self.unit.unit.final(shard), ["image_id"])
        scored = pc.index_in(final["image_id"], value_set=pa.array(table["image_id"].to_pylist()))
        return ShardImages(
            table["image_id"].to_pylist(), table["uri"].to_pylist(), scored.to_pylist()
        )


def _tile(ranking: Ranking, place: int, shard: int, scored: int, images: ShardImages) -> Tile:
    row = images.scored[scored]
    judged = (float(ranking.score[place]), float(ranking.probability[place]))
    uri = storage.without_secrets(images.uris[row])
    return Tile(shard, row, images.ids[row], uri, *judged, bool(ranking.present[place]))
