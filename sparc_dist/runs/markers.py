"""Markers: what is scored of a unit, with what, and what is missing.

A marker is written last: it says that a shard is scored, with what, and the hashes of its files. A
shard without one is not scored: nothing is ever listed. A table has copies of the markers of a
whole segment, so that a start reads few files. Markers stay, because deleting costs as many
requests as writing did; whatever writes a marker again empties the table of its segment before.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from sparc_dist import storage
from sparc_dist.core import Moments
from sparc_dist.runs.layout import SEGMENT, UnitLayout

READERS = 32


@dataclass(frozen=True)
class Provenance:
    """What a shard was scored with."""

    weights_sha256: str
    prompts_sha256: str
    images_sha256: str
    device: str


@dataclass(frozen=True)
class Marker:
    """A scored shard.

    reasons: the number of errors of each kind. sha256: of its files "scores" and "errors". passing:
    the number of errors that may pass. retries: the number of repeated requests to the store.
    seconds: per step. input: the images that the model takes. checkpoint: the SHA-256 of the file
    with its weights and, if it is from the hub, its revision. precision: only of the first shard,
    how far scores in less than float32 differ from float32. debiased: mean and deviations of the
    debiased singleton scores, where a labeler was applied.
    """

    shard: int
    images: int
    errors: int
    reasons: dict[str, int]
    sha256: dict[str, str]
    scoring: Provenance
    passing: int
    retries: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    input: dict[str, Any] | None = None
    checkpoint: dict[str, str] | None = None
    precision: dict[str, Any] | None = None
    debiased: list[list[float]] | None = None

    def write(self, unit: UnitLayout) -> None:
        """Writes the marker: the shard is done."""
        storage.write_json(unit.marker(self.shard), asdict(self))

    @classmethod
    def read(cls, unit: UnitLayout, shard: int) -> Marker | None:
        """Returns a shard's marker, or None if it is missing or damaged."""
        try:
            stored: dict[str, Any] | None = storage.read_json_if_exists(unit.marker(shard))
            return None if stored is None else cls.of(stored)
        except (TypeError, KeyError):
            return None

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Marker:
        """Returns the marker that was stored as JSON."""
        return cls(**stored | {"scoring": Provenance(**stored["scoring"])})


#: Fewer markers have no table: they are read as quickly one by one.
LEAST = 64
#: Segments that are read at a time.
AT_A_TIME = 8

SCHEMA = pa.schema([("shard", pa.int64()), ("marker", pa.string())])


@dataclass(frozen=True)
class SegmentMarkers:
    """The markers of a segment, None for a shard without; tabled: whether a table has them all."""

    shards: range
    markers: list[Marker | None]
    tabled: bool

    @property
    def loose(self) -> bool:
        """Whether the segment is complete and could have a table."""
        return len(self.shards) >= LEAST and not self.tabled and None not in self.markers


def segments(shards: int) -> Iterator[range]:
    """Yields the segments of a unit with ``shards`` shards."""
    return (range(start, min(start + SEGMENT, shards)) for start in range(0, shards, SEGMENT))


def segment_of(shard: int, shards: int) -> range:
    """Returns the segment of a shard in a unit with ``shards`` shards."""
    start = shard - shard % SEGMENT
    return range(start, min(start + SEGMENT, shards))


def read_segments(unit: UnitLayout, shards: int) -> Iterator[SegmentMarkers]:
    """Yields the markers of all segments, from tables where these have them."""
    begun = _begun(unit, shards)
    with ThreadPoolExecutor(READERS) as readers:
        left = segments(shards)
        while batch := list(islice(left, AT_A_TIME)):
            for part, known in zip(batch, readers.map(partial(_read, unit), batch), strict=True):
                others = [shard for shard in part if shard not in known and shard < begun]
                known |= zip(others, readers.map(partial(Marker.read, unit), others), strict=True)
                tabled = not others and len(known) == len(part)
                yield SegmentMarkers(part, [known.get(shard) for shard in part], tabled)


def _read(unit: UnitLayout, segment: range) -> dict[int, Marker | None]:
    """Returns the markers that a segment's table has: none if it is missing or damaged."""
    if len(segment) < LEAST:
        return {}
    try:
        table = storage.read_table(unit.marker_table(segment.start // SEGMENT))
        texts = zip(table["shard"].to_pylist(), table["marker"].to_pylist(), strict=True)
        return {shard: Marker.of(json.loads(text)) for shard, text in texts if shard in segment}
    except (OSError, pa.ArrowException, ValueError, TypeError, KeyError):
        return {}


def compact(unit: UnitLayout, segment: range) -> None:
    """Writes the table of a segment if all its shards are scored."""
    with ThreadPoolExecutor(READERS) as readers:
        markers = list(readers.map(partial(Marker.read, unit), segment))
    found = [marker for marker in markers if marker is not None]
    if len(found) == len(segment) >= LEAST:
        texts = [json.dumps(asdict(marker), allow_nan=False) for marker in found]
        table = pa.table([list(segment), texts], schema=SCHEMA)
        storage.write_table(unit.marker_table(segment.start // SEGMENT), table)


def forget(unit: UnitLayout, shard: int) -> None:
    """Empties the table of a shard's segment, before its marker is written again.

    A run needs no right to delete.
    """
    url = unit.marker_table(shard // SEGMENT)
    if not storage.is_missing(url):
        storage.write_table(url, SCHEMA.empty_table())


def begin(unit: UnitLayout, begun: int, shards: int) -> None:
    """Notes that of the first ``begun`` of a unit's shards markers may exist, and of no others."""
    if shards >= LEAST:
        storage.write_json(unit.begun, {"shards": begun})


def begin_new(unit: UnitLayout, shards: int) -> None:
    """Notes that a new unit has no markers, unless it has: its list may have been written again."""
    if Marker.read(unit, 0) is None:
        begin(unit, 0, shards)


def _begun(unit: UnitLayout, shards: int) -> int:
    """Returns of how many shards markers may exist: of all, unless it is noted."""
    noted = storage.read_json_if_exists(unit.begun) if shards >= LEAST else None
    try:
        return shards if noted is None else min(int(noted["shards"]), shards)
    except (TypeError, KeyError, ValueError):
        return shards


@dataclass
class MarkerSummary:
    """The sum of a unit's markers.

    images: per shard, 0 for a missing one. key: a hash of the hashes of all scores. debiased: the
    moments of the debiased singleton scores of images that a labeler was applied to. loose:
    the first shards of segments that could have a table.
    """

    images: list[int] = field(default_factory=list)
    missing: array[int] = field(default_factory=lambda: array("q"))
    errors: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    passing: int = 0
    retries: int = 0
    scorings: set[Provenance] = field(default_factory=set)
    input: dict[str, Any] | None = None
    checkpoint: dict[str, str] | None = None
    precision: dict[str, Any] | None = None
    debiased: Moments | None = None
    key: str = ""
    loose: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, unit: UnitLayout, shards: int) -> MarkerSummary:
        """Reads the markers of a unit with ``shards`` shards."""
        summary, digest = cls(), hashlib.sha256()
        for segment in read_segments(unit, shards):
            if segment.loose:
                summary.loose.append(segment.shards.start)
            for shard, marker in zip(segment.shards, segment.markers, strict=True):
                summary.images.append(marker.images if marker else 0)
                if marker is None:
                    summary.missing.append(shard)
                else:
                    summary.add(marker)
                    digest.update(marker.sha256.get("scores", "").encode())
        summary.key = digest.hexdigest()
        return summary

    def add(self, marker: Marker) -> None:
        """Adds the counts of a marker, and what it was scored with."""
        self.errors += marker.errors
        self.reasons.update(marker.reasons)
        self.passing += marker.passing
        self.retries += marker.retries
        self.scorings.add(marker.scoring)
        self.input = self.input or marker.input
        self.checkpoint = self.checkpoint or marker.checkpoint
        self.precision = self.precision or marker.precision
        if marker.debiased is not None:
            new = Moments(marker.images, *map(np.array, marker.debiased))
            self.debiased = new if self.debiased is None else self.debiased + new
