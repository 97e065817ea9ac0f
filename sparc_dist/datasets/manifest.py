"""A manifest: a Parquet or CSV table with one row per image; labels as users write them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from sparc_dist import storage
from sparc_dist.datasets.images import BATCH_ROWS, images_table
from sparc_dist.errors import UserError, one_line, quoted
from sparc_dist.storage import is_web, without_secrets

COLUMNS = ("uri", "image_id", "labels")


class Manifest:
    """Reads the columns uri and, if present, image_id and labels.

    Labels are lists of names or indices in one column, or one 0/1 column per class.
    """

    def __init__(self, url: str, classes: Sequence[str]) -> None:
        self._url = url
        self._classes = list(classes)
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """Yields the images in the order of the table; uris may be relative to its folder."""
        base = storage.parent(self._url)
        row = 0
        for batch, labels in self._batches("uri"):
            uris = batch["uri"].to_pylist()
            ids = uris
            if "image_id" in batch.schema.names:
                ids = batch["image_id"].to_pylist()
            elif any(isinstance(uri, str) and is_web(uri) for uri in uris):
                # Ids are written to many files, so they must not contain the key of a signed URL.
                ids = [without_secrets(uri) if isinstance(uri, str) else uri for uri in uris]
            for offset, (uri, image_id) in enumerate(zip(uris, ids, strict=True)):
                named = isinstance(image_id, str | int | float) and image_id != ""
                if not isinstance(uri, str) or not uri or not named:
                    raise UserError(
                        f"{self._url}, row {row + offset}: uri or image_id is missing or not "
                        "text; fill it in."
                    )
            urls = [storage.absolute(uri, base) for uri in uris]
            versions = [storage.local_version(url) for url in urls]
            yield images_table([str(image_id) for image_id in ids], urls, labels, versions)
            row += len(batch)

    def labels(self) -> Iterator[list[list[int]]]:
        """Yields the labels in batches, without unlabelled rows."""
        for _, labels in self._batches("labels"):
            yield [row for row in labels if row is not None]

    def _batches(self, needed: str) -> Iterator[tuple[pa.Table, list[list[int] | None]]]:
        reader = LabelReader(self._classes, self._url)
        row = 0
        for batch in self._tables():
            names = batch.schema.names
            one_hot = "labels" not in names and any(name in names for name in self._classes)
            if needed not in names and not (needed == "labels" and one_hot):
                raise UserError(f"{self._url} has no column `{needed}`; add it.")
            if one_hot:
                labels = self._from_columns(batch)
            elif "labels" in names:
                cells = batch["labels"].to_pylist()
                labels = [reader.read(cell, row + offset) for offset, cell in enumerate(cells)]
            else:
                labels = [None] * len(batch)
            yield batch, labels
            row += len(batch)
        self.notes = reader.notes()

    def _from_columns(self, batch: pa.Table) -> list[list[int] | None]:
        """Reads the labels in one column per class: 1 or true for present, 0 for absent."""
        missing = [name for name in self._classes if name not in batch.schema.names]
        if missing:
            raise UserError(
                f"{self._url} has 0/1 columns for some classes but none for {missing[0]!r}; add "
                "the column or remove the class."
            )
        rows: list[list[int] | None] = [[] for _ in range(len(batch))]
        for index, name in enumerate(self._classes):
            for row, value in zip(rows, batch[name].to_pylist(), strict=True):
                if str(value).lower() not in ("0", "1", "true", "false", "0.0", "1.0", "-1"):
                    raise UserError(
                        f"{self._url}: the column {name!r} contains {quoted(value)}; write 1 for "
                        "present and 0 for absent."
                    )
                if str(value).lower() in ("1", "true", "1.0") and row is not None:
                    row.append(index)
        return rows

    def _tables(self) -> Iterator[pa.Table]:
        """Yields the batches of the table with the needed columns, read lazily."""
        if not self._url.endswith((".parquet", ".csv")):
            raise UserError(f"{self._url} is neither .parquet nor .csv; use one of the two.")
        read = self._parquet if self._url.endswith(".parquet") else self._csv
        try:
            with storage.open_file(self._url) as file:
                for batch in read(file):
                    batch.validate(full=True)  # Parquet strings may not be valid UTF-8
                    yield pa.Table.from_batches([batch])
        except FileNotFoundError:
            raise UserError(f"There is no table {self._url}; check the path.") from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{self._url} cannot be read as a table ({one_line(error)}); correct it, or write "
                "it again."
            ) from None

    def _parquet(self, file: Any) -> Iterator[pa.RecordBatch]:
        table = pq.ParquetFile(file)
        columns = self._needed(table.schema_arrow.names)
        for name in columns:
            if not _is_plain(kind := table.schema_arrow.field(name).type):
                raise UserError(
                    f"{self._url}: the column {name!r} has the type {quoted(str(kind))}; use "
                    "texts, numbers or lists."
                )
        yield from table.iter_batches(BATCH_ROWS, columns=columns)

    def _csv(self, file: Any) -> Iterator[pa.RecordBatch]:
        parsing = pa.csv.ParseOptions(newlines_in_values=True)  # a file name may contain one
        names = pa.csv.open_csv(file, parse_options=parsing).schema.names
        file.seek(0)
        columns = self._needed(names)
        # All columns are read as text, so that an id such as 007 keeps its zeros.
        options = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=False,
            include_columns=columns,
        )
        yield from pa.csv.open_csv(file, parse_options=parsing, convert_options=options)

    def _needed(self, names: Sequence[str]) -> list[str]:
        """Returns the columns to read; raises UserError if one is duplicate or has spaces."""
        classes = () if "labels" in names else self._classes
        found = [name for name in names if name in COLUMNS or name in classes]
        for name in names:
            if found.count(name) > 1:
                raise UserError(f"{self._url}: duplicate column {name!r}; keep one.")
            if name not in found and name.strip() in COLUMNS:
                raise UserError(f"{self._url}: the column {name!r} has spaces; remove them.")
        return found


class LabelReader:
    """Reads the label cells of a table: lists of names or indices, or "cat;dog"."""

    def __init__(self, classes: Sequence[str], where: str) -> None:
        self._index_of = {name: index for index, name in enumerate(classes)}
        self._where = where
        self._known = 0
        self._unknown: Counter[str] = Counter()

    def read(self, value: Any, row: int) -> list[int] | None:
        """Returns the class indices of a cell; None if the labels are unknown."""
        if value is None:
            return None
        items = value
        if isinstance(value, str):
            items = [name for name in value.split(";") if name.strip()]
        if not isinstance(items, list):
            raise UserError(
                f"{self._where}, row {row}: labels must be a list, not {quoted(items)}; correct it."
            )
        indices = [index for item in items if (index := self._index(item)) is not None]
        if len(set(indices)) < len(indices):
            raise UserError(
                f"{self._where}, row {row}: duplicate label; list each class in the image once."
            )
        return sorted(indices)

    def _index(self, item: Any) -> int | None:
        index = item
        if isinstance(item, str):
            name = item.strip()
            # In a CSV an index is text too; a class may also be called "7".
            number = int(name) if name.isdecimal() and len(name) < 10 else None
            index = self._index_of.get(name, number)
        # True and False are integers in Python, but not meant as indices.
        if (
            isinstance(index, int)
            and not isinstance(index, bool)
            and 0 <= index < len(self._index_of)
        ):
            self._known += 1
            return index
        self._unknown[str(item)] += 1
        return None

    def notes(self) -> list[str]:
        """Returns a note on unknown labels; raises UserError if no label is known."""
        if not self._unknown:
            return []
        example = self._unknown.most_common(1)[0][0]
        if not self._known:
            raise UserError(
                f"{self._where}: no label is one of the {len(self._index_of)} classes (an example "
                f"is {quoted(example)}); correct the labels or the classes."
            )
        return [
            f"{sum(self._unknown.values())} labels of {len(self._unknown)} unknown classes, such "
            f"as {quoted(example)}, were left out."
        ]


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a column has texts, numbers or lists of them; no times, no structures."""
    if pa.types.is_dictionary(kind) or pa.types.is_nested(kind):
        return hasattr(kind, "value_type") and _is_plain(kind.value_type)
    texts = ("string", "large_string", "string_view", "binary")
    simple = ("null", "boolean", "integer", "floating", *texts)
    return any(getattr(pa.types, f"is_{name}")(kind) for name in simple)
