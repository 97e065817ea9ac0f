"""The list of images: one row per image, one row group per shard, a part per segment.

Duplicate ids are found in bounded memory among any number of images.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, count, islice, repeat
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.datasets.sources import Resumable, Source
from sparc_dist.errors import UserError
from sparc_dist.runs import DatasetLayout
from sparc_dist.runs.layout import SEGMENT
from sparc_dist.runs.shards import image_shards

SCHEMA = pa.schema(
    [
        ("image_id", pa.string()),
        ("uri", pa.string()),
        ("labels", pa.list_(pa.int32())),
        ("version", pa.string()),
    ]
)
BATCH_ROWS = 4096
FIRST_ROWS = 64  # in the first batch, so that a look at a data set is quick

#: Hashes of ids in memory: more of them go to files, each with those of equal last bits.
HELD = 2**22
FILES = 256

T = TypeVar("T")
Hashes = NDArray[np.int64]
Counts = dict[str, int]


@dataclass(frozen=True)
class Begun:
    """How far a list has been written: its parts, their images, and the URI of the last one.

    made_from: identifies what is listed. Only lists of several parts have a file of it.
    """

    made_from: str
    parts: int = 0
    images: int = 0
    uri: str = ""

    def is_stored(self, layout: DatasetLayout) -> bool:
        """Whether there are parts, and all of them are as they were written."""
        urls = [layout.images_part(part) for part in range(self.parts)]
        try:
            images = sum(sum(storage.row_group_sizes(url)) for url in urls)
        except (FileNotFoundError, storage.Damaged):
            return False
        return bool(urls) and images == self.images

    def write(self, layout: DatasetLayout) -> None:
        """Stores it."""
        storage.write_json(layout.listing, asdict(self))


@dataclass(frozen=True)
class Watched:
    """What is called while parts are written.

    check: with the file of the last part, before that is stored. stored: after each other part,
    with the number of parts and of images so far, and the last shard.
    """

    check: Callable[[Path], None] = lambda path: None
    stored: Callable[[int, int, pa.Table], None] = lambda parts, images, last: None


def images_table(
    ids: Sequence[str],
    uris: Sequence[str],
    labels: Sequence[Sequence[int] | None],
    versions: Sequence[str | None] | None = None,
) -> pa.Table:
    """Returns a batch of images; labels are class indices, and None is unknown.

    versions: of the files, which differ after these have changed.
    """
    texts = ([in_utf8(text) for text in column] for column in (ids, uris))
    columns = zip((*texts, labels, versions or [None] * len(ids)), SCHEMA, strict=True)
    return pa.table([pa.array(values, field.type) for values, field in columns], schema=SCHEMA)


def write_images(batches: Iterable[pa.Table], layout: DatasetLayout, shard_size: int) -> Counts:
    """Writes the list of images, shards of equal size; returns its counts."""
    return write_shards(in_shards(batches, repeat(shard_size)), layout)


def list_images(source: Source, layout: DatasetLayout, shard_size: int, made_from: str) -> Counts:
    """Writes the list of a source's images; returns its counts.

    made_from: identifies the source. A list that an earlier start began from the same source and
    shards is resumed behind its last part, if the source can begin there.
    """
    stored = storage.read_json_if_exists(layout.listing)
    begun = Begun(f"{made_from} in shards of {shard_size}")
    batches = None
    if stored and stored["made_from"] == begun.made_from and isinstance(source, Resumable):
        begun = Begun(**stored)
        batches = source.images_after(begun.uri) if begun.is_stored(layout) else None
    if batches is None:
        begun, batches = Begun(begun.made_from), source.images()
    if stored:
        begun.write(layout)  # what is stored may describe a list that is now replaced
    return write_shards(in_shards(batches, repeat(shard_size)), layout, begun)


def write_shards(
    shards: Iterable[pa.Table], layout: DatasetLayout, begun: Begun | None = None
) -> Counts:
    """Writes the list of images with one row group per table; returns its counts.

    begun: the parts that are stored already. Raises UserError, before the last part is stored, if
    an id is duplicate or there are no images. Holds one shard of rows, and of the ids what SeenIds
    holds.
    """
    counts = {"images": 0, "labelled": 0, "shards": 0}
    first = begun.parts if begun else 0
    with SeenIds() as seen:

        def counted(shards: Iterable[pa.Table]) -> Iterator[pa.Table]:
            for shard in shards:
                seen.add(shard["image_id"].to_pylist())
                counts["images"] += len(shard)
                counts["labelled"] += len(shard) - shard["labels"].null_count
                counts["shards"] += 1
                yield shard

        def stored(parts: int, images: int, last: pa.Table) -> None:
            if begun:
                so_far = (begun.parts + parts, begun.images + images, last["uri"][-1].as_py())
                Begun(begun.made_from, *so_far).write(layout)

        def check(path: Path) -> None:
            if not counts["images"]:
                raise UserError("The data set contains no images; check the path.")
            seen.check(_ids_of_parts(layout, counts["shards"], path))

        known = (storage.row_groups(layout.images_part(i), SCHEMA.names) for i in range(first))
        deque(counted(chain.from_iterable(known)), maxlen=0)
        write_parts(counted(shards), layout, Watched(check, stored), first)
    return counts


def write_parts(
    shards: Iterable[pa.Table],
    layout: DatasetLayout,
    watched: Watched | None = None,
    first: int = 0,
) -> None:
    """Writes shards as parts of SEGMENT row groups, from the part ``first`` on."""
    watched = watched or Watched()
    left = iter(shards)
    ahead = next(left, None)
    images = 0
    for part in count(first):
        groups = 0
        with storage.atomic_file(layout.images_part(part)) as path:
            with storage.sealed_writer(path, SCHEMA) as writer:
                for shard in islice(chain([ahead] if ahead is not None else (), left), SEGMENT):
                    writer.write_table(shard.cast(SCHEMA), row_group_size=max(len(shard), 1))
                    groups += 1
                    images += len(shard)
            ahead = next(left, None)
            if ahead is None:
                watched.check(path)
        if ahead is None:
            break
        watched.stored(part + 1 - first, images, shard)
    # A part of an interrupted start, which listed more images, would seem to follow this one.
    if groups == SEGMENT:
        storage.delete(layout.images_part(part + 1))


def _ids_of_parts(layout: DatasetLayout, shards: int, last: Path) -> Iterator[list[str]]:
    """Yields the ids of stored parts, then those of the last one, which is not yet stored."""
    for url in list(layout.image_files(shards))[:-1]:
        for rows in storage.row_groups(url, ["image_id"]):
            yield rows["image_id"].to_pylist()
    for batch in pq.ParquetFile(last).iter_batches(columns=["image_id"]):
        yield batch["image_id"].to_pylist()


def in_shards(batches: Iterable[pa.Table], sizes: Iterable[int]) -> Iterator[pa.Table]:
    """Yields the rows of the batches in tables of these sizes; the last may have fewer rows."""
    wanted = iter(sizes)
    size = next(wanted)
    pending = SCHEMA.empty_table()
    for batch in batches:
        pending = pa.concat_tables([pending, batch])
        while len(pending) >= size:
            yield pending.slice(0, size)
            pending = pending.slice(size)
            size = next(wanted, size)
    if len(pending):
        yield pending


def stored_shards(layout: DatasetLayout) -> Iterator[pa.Table]:
    """Yields the images of each shard of a prepared data set."""
    return image_shards(layout, SCHEMA.names)


def in_utf8(name: str) -> str:
    r"""Returns the name with \udcXX for each byte of a file name that is not UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()


def chunks(items: Iterable[T], size: int = BATCH_ROWS) -> Iterator[list[T]]:
    """Yields the items in lists of at most ``size``; the first list is short."""
    chunk: list[T] = []
    limit = min(size, FIRST_ROWS)
    for item in items:
        chunk.append(item)
        if len(chunk) == limit:
            yield chunk
            chunk, limit = [], size
    if chunk:
        yield chunk


class SeenIds:
    """Eight bytes of every id: in memory, or beyond HELD ids in temporary files."""

    def __init__(self) -> None:
        self._held: list[Hashes] = []
        self._count = 0
        self._folder: Path | None = None
        self._end = ExitStack()

    def __enter__(self) -> SeenIds:
        return self

    def __exit__(self, *error: Any) -> None:
        self._end.__exit__(*error)  # deletes the folder; a full disk becomes a UserError

    def add(self, ids: Sequence[str]) -> None:
        """Adds the ids of some images."""
        self._held.append(_hashes(ids))
        self._count += len(ids)
        if self._count >= HELD:
            self._spill()

    def check(self, again: Iterable[Sequence[str]]) -> None:
        """Raises UserError about the first id that occurs twice. again: yields all ids again."""
        if self._folder is not None:
            self._spill()
        doubtful = np.concatenate([*map(_repeated, self._parts())])
        if len(doubtful):
            # Ids of equal hash may differ: only the ids themselves tell.
            check_unique(_among(again, np.unique(doubtful)))

    def _spill(self) -> None:
        """Appends what is held to the files."""
        if self._folder is None:
            self._folder = self._end.enter_context(storage.temporary_folder())
        hashes = np.sort(_joined(self._held).astype(np.uint64))
        edges = np.searchsorted(hashes, np.arange(1, FILES, dtype=np.uint64) << np.uint64(56))
        for number, part in enumerate(np.split(hashes, edges)):
            with (self._folder / str(number)).open("ab") as file:
                file.write(part.tobytes())
        self._held, self._count = [], 0

    def _parts(self) -> Iterator[Hashes]:
        """Yields all hashes; equal ones are in the same part."""
        if self._folder is None:
            yield _joined(self._held)
            return
        for number in range(FILES):
            yield np.fromfile(self._folder / str(number), np.int64)


def check_unique(ids: Iterable[str]) -> None:
    """Raises UserError about the first id that occurs twice."""
    seen: set[str] = set()
    for image_id in ids:
        if image_id in seen:
            raise UserError(f"Duplicate image_id: {image_id}; make the ids unique.")
        seen.add(image_id)


def _among(batches: Iterable[Sequence[str]], doubtful: Hashes) -> Iterator[str]:
    """Yields the ids whose hash is one of the doubtful, which are sorted."""
    for ids in batches:
        hashes = _hashes(ids)
        places = np.searchsorted(doubtful, hashes).clip(max=len(doubtful) - 1)
        yield from (ids[row] for row in np.flatnonzero(doubtful[places] == hashes).tolist())


def _hashes(ids: Sequence[str]) -> Hashes:
    return np.fromiter(map(hash, ids), np.int64, len(ids))


def _joined(parts: Sequence[Hashes]) -> Hashes:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _repeated(hashes: Hashes) -> Hashes:
    """Returns the hashes that occur more than once."""
    ordered = np.sort(hashes)
    return np.asarray(ordered[1:][ordered[1:] == ordered[:-1]])
