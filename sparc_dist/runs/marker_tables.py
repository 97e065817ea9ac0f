"""Marker tables: the markers of a whole segment in one file, so that a start reads few files.

A table is a copy. Markers stay, because deleting costs as many requests as writing did. Whatever
writes a marker again empties the table of its segment before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.runs.layout import SEGMENT, UnitLayout
from sparc_dist.runs.markers import READERS, Marker

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
