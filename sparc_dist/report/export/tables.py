"""CSV and Parquet: wide with a column per class, long with a row per image and class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from sparc_dist import storage
from sparc_dist.report.export.parquet import write_tables
from sparc_dist.report.tables import cells
from sparc_dist.runs.labels import long_table, wide_table
from sparc_dist.runs.run import FinishedUnit

#: Between the classes of an image in a CSV file, as in the tables that data sets are read from.
SEPARATOR = ";"


def write_csv(unit: FinishedUnit, url: str, raw: bool = False) -> None:
    """Writes image_id, uri, present, and the probability of each class. raw: formulas stay."""
    _write_csv(url, map(_joined, _wide(unit)), raw)


def write_long_csv(unit: FinishedUnit, url: str, raw: bool = False) -> None:
    """Writes image_id, uri, class, probability, present, score. raw: formulas stay."""
    _write_csv(url, _long(unit), raw)


def write_parquet(unit: FinishedUnit, url: str) -> None:
    """Writes image_id, uri, present (a list), and the probability of each class."""
    write_tables(url, _wide(unit))


def write_long_parquet(unit: FinishedUnit, url: str) -> None:
    """Writes image_id, uri, class, probability, present, score."""
    write_tables(url, _long(unit))


def _wide(unit: FinishedUnit) -> Iterator[pa.Table]:
    for shard in unit.labels():
        judged = (shard.probability, shard.present)
        yield wide_table(shard.ids, unit.classes, *judged, shard.uris)


def _long(unit: FinishedUnit) -> Iterator[pa.Table]:
    for shard in unit.labels():
        table = long_table(shard.ids, unit.classes, shard.probability, shard.present)
        rows = np.repeat(np.arange(len(shard.ids)), len(unit.classes))
        uris = pa.array(shard.uris, pa.string()).take(pa.array(rows))
        scores = pa.array(shard.scores.ravel())
        yield table.add_column(1, "uri", uris).append_column("score", scores)


def _joined(table: pa.Table) -> pa.Table:
    """Returns a wide table with text for the list of classes, which CSV does not know."""
    text = pc.binary_join(table["present"], SEPARATOR)
    return table.set_column(table.column_names.index("present"), "present", text)


def _write_csv(url: str, written: Iterator[pa.Table], raw: bool) -> None:
    tables = written if raw else map(cells, written)
    first = next(tables)
    with storage.atomic_file(url) as path, csv.CSVWriter(path, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)
