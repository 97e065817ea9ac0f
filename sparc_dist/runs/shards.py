"""Shards in storage: the list of images, and the tables of scores, errors and final scores."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core import FinalScores, Scores, width_of
from sparc_dist.errors import UserError
from sparc_dist.runs.layout import SEGMENT, DatasetLayout, UnitLayout
from sparc_dist.runs.markers import Marker, Provenance
from sparc_dist.runs.storing import (
    ALL,
    KINDS,
    PROMPTS,
    DamagedScores,
    Storing,
    list_column,
    matrix,
    read_prompts,
    similarities,
)


def read_images(layout: DatasetLayout, shard: int, columns: Sequence[str]) -> pa.Table:
    """Returns the images of a shard without reading others."""
    part, index = divmod(shard, SEGMENT)
    return storage.read_row_group(layout.images_part(part), index, columns)


def image_shards(layout: DatasetLayout, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the images of each shard; holds one at a time."""
    for url, _ in _parts(layout):
        yield from storage.row_groups(url, columns)


def shard_sizes(layout: DatasetLayout) -> list[int]:
    """Returns the number of images of each shard."""
    return [size for _, sizes in _parts(layout) for size in sizes]


def images_sha256(layout: DatasetLayout, shards: int) -> str | None:
    """Returns the hash of the list: of its only part, or of the hashes of all; None without any."""
    hashes: list[str] = []
    for part in range(-(-shards // SEGMENT)):
        found = storage.sha256(layout.images_part(part))
        if found is None:
            break
        hashes.append(found)
    if len(hashes) > 1:
        return hashlib.sha256("".join(hashes).encode()).hexdigest()
    return hashes[0] if hashes else None


def _parts(layout: DatasetLayout) -> Iterator[tuple[str, list[int]]]:
    """Yields the URL of each part and the sizes of its shards."""
    for part in count():
        url = layout.images_part(part)
        if part and storage.is_missing(url):
            return
        sizes = storage.row_group_sizes(url)
        yield url, sizes
        if len(sizes) < SEGMENT:  # the last one
            return


#: passing: whether the image may be readable later.
ERRORS = pa.schema(
    [
        ("image_id", pa.string()),
        ("uri", pa.string()),
        ("error", pa.string()),
        ("passing", pa.bool_()),
    ]
)


def error_kind(reason: str) -> str:
    """Returns a reason without its numbers and quotations, so that similar errors count as one."""
    return re.sub(r"b?'[^']*'|\d[\d,.]*", "…", reason)[:120]


@dataclass(frozen=True)
class ClassNames:
    """What the columns of scores are: classes, then background classes."""

    classes: Sequence[str]
    background: Sequence[str] = ()

    def metadata(self) -> dict[str, str]:
        """Returns the metadata of a table's schema: two JSON lists."""
        names = {"classes": self.classes, "background": self.background}
        return {key: json.dumps(list(value), ensure_ascii=False) for key, value in names.items()}


def scores_table(
    ids: Sequence[str],
    scores: Scores,
    embedding: NDArray[np.float32],
    names: ClassNames,
    storing: Storing = ALL,
) -> pa.Table:
    """Returns what is kept of a shard's scores and embeddings, one row per image."""
    columns = {"image_id": pa.array(ids, pa.string()), **storing.columns(scores, embedding)}
    return pa.table(columns, metadata=names.metadata() | storing.metadata())


def write_shard(
    unit: UnitLayout,
    shard: int,
    table: pa.Table | None,
    errors: Sequence[dict[str, Any]],
    by: Provenance,
) -> Marker:
    """Writes a shard's scores and errors; returns its marker, which is still to be written.

    table: None if the scores are not kept; the marker then counts no images
    """
    # Even an empty table is written: it replaces one from an earlier, unfinished attempt.
    error_table = pa.Table.from_pylist(list(errors), schema=ERRORS)
    hashes = {"errors": storage.write_table(unit.errors(shard), error_table)}
    if table is not None:
        hashes["scores"] = storage.write_table(unit.scores(shard), table)
    reasons = dict(Counter(error_kind(error["error"]) for error in errors))
    passing = sum(error["passing"] for error in errors)
    images = 0 if table is None else len(table)
    return Marker(shard, images, len(errors), reasons, hashes, by, passing)


def final_table(ids: pa.ChunkedArray, final: FinalScores, names: ClassNames) -> pa.Table:
    """Returns a shard's final scores, one row per image."""
    lists = {name: list_column(part) for name, part in final.by_name.items()}
    return pa.table({"image_id": ids, **lists}, metadata=names.metadata())


@dataclass(frozen=True)
class UnitShards:
    """Reads a unit's shards, one at a time. classes, background: N and B."""

    dataset: DatasetLayout
    unit: UnitLayout
    classes: int
    compounds: int
    background: int = 0

    def scores(self, shard: int, embedded: bool = False) -> tuple[pa.ChunkedArray, Scores]:
        """Returns a shard's image ids and scores.

        embedded: whether with the embeddings of images; d is 0 if they are not stored
        """
        table = self._read_scores(shard, {"image_id", *KINDS, *(["embedding"] if embedded else [])})
        scores = self._scores(table)
        found = replace(scores, embedding=_embedding(table)) if embedded else scores
        return table["image_id"], found

    def _scores(self, table: pa.Table) -> Scores:
        if KINDS[0] not in table.column_names:
            prompts = read_prompts(self.unit, table.schema.metadata[PROMPTS.encode()].decode())
            embedding = _embedding(table).reshape(len(table), prompts[0].shape[1])
            return similarities(embedding, prompts)
        columns = self.classes + self.background
        widths = {"singleton": columns, "auxiliary": columns, "compound": self.compounds}
        return Scores(**{name: matrix(table[name], width) for name, width in widths.items()})

    def _read_scores(self, shard: int, columns: set[str]) -> pa.Table:
        """Returns those of the columns that were kept; without scores, what they are made of."""
        marker = Marker.read(self.unit, shard)
        content = storage.read_if_exists(self.unit.scores(shard))
        if marker is None or not has_hash(content, marker.sha256["scores"]):
            raise DamagedScores(
                f"{self.unit.scores(shard)} is missing or damaged; start the run again to score "
                "its images again."
            )
        file = pq.ParquetFile(pa.BufferReader(content or b""))
        kept = file.schema_arrow.names
        wanted = columns if KINDS[0] in kept else {"image_id", "embedding"}
        # One thread: passes read many shards at a time, and threads for each take longer in all.
        return file.read([name for name in kept if name in wanted], use_threads=False)

    def has_scores(self, shard: int) -> bool:
        """Whether a shard's scores were kept."""
        marker = Marker.read(self.unit, shard)
        return marker is not None and "scores" in marker.sha256

    def damaged(self, shard: int) -> bool:
        """Whether a shard's scores differ from those that were written."""
        try:
            self.scores(shard)
        except DamagedScores:
            return True
        return False

    def has_final(self, shard: int, sha256: str) -> bool:
        """Whether a shard's final scores are stored as they were written."""
        return has_hash(storage.read_if_exists(self.unit.final(shard)), sha256)

    def has_labels(self, shard: int, sha256: str) -> bool:
        """Whether a shard's labels are stored as they were written. sha256: of both tables."""
        tables = (self.unit.labels(shard), self.unit.wide_labels(shard))
        return all(
            has_hash(storage.read_if_exists(url), part)
            for url, part in zip(tables, sha256.split(), strict=True)
        )

    def final(self, shard: int, sha256: str | None = None) -> tuple[list[str], FinalScores]:
        """Returns a shard's image ids and final scores, compared with their seal and hash."""
        content = storage.read_if_exists(self.unit.final(shard))
        found = storage.seal_of(content)
        if content is None or found is None or sha256 not in (None, found):
            raise UserError(
                f"{self.unit.final(shard)} is missing or damaged; run the same command again to "
                "compute it again."
            )
        table = storage.decoded(content)
        ids, *names = table.column_names
        parts = {
            name: matrix(table[name], width_of(name, self.classes, self.background))
            for name in names
        }
        return table[ids].to_pylist(), FinalScores.of(parts)

    def labels(self, shard: int, ids: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Returns which of the images have labels (n,), and their labels (n, N)."""
        rows = read_images(self.dataset, shard, ["image_id", "labels"])
        labels = dict(zip(rows["image_id"].to_pylist(), rows["labels"].to_pylist(), strict=True))
        found = [labels[image_id] for image_id in ids]
        labelled = np.array([own is not None for own in found], dtype=bool)
        present = np.zeros((len(ids), self.classes), dtype=bool)
        images = np.repeat(np.arange(len(ids)), [len(own or ()) for own in found])
        present[images, [index for own in found for index in own or ()]] = True
        return labelled, present


def _embedding(table: pa.Table) -> NDArray[np.float32]:
    """Returns the embeddings (n, d) of a shard; d is 0 if there is none."""
    if "embedding" not in table.column_names or not len(table):
        return np.empty((len(table), 0), np.float32)
    return matrix(table["embedding"], len(table["embedding"][0]))


def has_hash(content: bytes | None, sha256: str) -> bool:
    """Whether a file exists, is whole and has the seal that it had when it was written."""
    return storage.seal_of(content) == sha256
