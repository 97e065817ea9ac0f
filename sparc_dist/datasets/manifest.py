"""A manifest: a Parquet or CSV table with a row an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from sparc_dist import storage
from sparc_dist.datasets.images import BATCH_ROWS, images_table
from sparc_dist.datasets.kind import DatasetKind
from sparc_dist.datasets.labels import LabelReader
from sparc_dist.errors import UserError, one_line, quoted
from sparc_dist.storage import is_web, without_secrets

KNOWN = ("uri", "image_id", "labels")


class Manifest:
    """uri; optionally image_id; labels as a list of names or indices, or as 0/1 columns."""

    def __init__(self, url: str, classes: Sequence[str]) -> None:
        self._url = url
        self._classes = list(classes)
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """The images in the order of the table; relative uris lie beside it."""
        base = storage.parent(self._url)
        row = 0
        for batch, labels in self._batches("uri"):
            uris = batch["uri"].to_pylist()
            ids = uris
            if "image_id" in batch.schema.names:
                ids = batch["image_id"].to_pylist()
            elif any(isinstance(uri, str) and is_web(uri) for uri in uris):
                # An id is written everywhere, so it must not hold the key of a signed URL.
                ids = [without_secrets(uri) if isinstance(uri, str) else uri for uri in uris]
            for offset, (uri, image_id) in enumerate(zip(uris, ids, strict=True)):
                if not isinstance(uri, str) or not uri or not _is_id(image_id):
                    raise UserError(
                        f"{self._url}, row {row + offset}: uri or image_id is missing or no "
                        "text; fill it in."
                    )
            yield images_table(
                [str(image_id) for image_id in ids],
                [storage.absolute(uri, base) for uri in uris],
                labels,
            )
            row += len(batch)

    def labels(self) -> Iterator[list[list[int]]]:
        """The labels only, a batch at a time; unlabelled rows are left out."""
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
        """Labels that stand in a column a class: 1 or true for present, 0 for absent."""
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
                        f"{self._url}: the column {name!r} holds {quoted(value)}; write 1 for "
                        "present and 0 for absent."
                    )
                if str(value).lower() in ("1", "true", "1.0") and row is not None:
                    row.append(index)
        return rows

    def _tables(self) -> Iterator[pa.Table]:
        """The table's batches with the columns of concern, read as they are needed."""
        if not self._url.endswith((".parquet", ".csv")):
            raise UserError(
                f"{self._url} is neither .parquet nor .csv; give a table in one of the two."
            )
        try:
            with storage.open_file(self._url) as file:
                for batch in self._parse(file):
                    batch.validate(full=True)  # Parquet's texts may be no UTF-8
                    yield pa.Table.from_batches([batch])
        except FileNotFoundError:
            raise UserError(f"There is no table {self._url}; check the path.") from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(f"{self._url} cannot be read as a table: {one_line(error)}.") from None

    def _parse(self, file: Any) -> Iterator[pa.RecordBatch]:
        return self._parquet(file) if self._url.endswith(".parquet") else self._csv(file)

    def _parquet(self, file: Any) -> Iterator[pa.RecordBatch]:
        table = pq.ParquetFile(file)
        columns = self._concerned(table.schema_arrow.names)
        for name in columns:
            if not _is_plain(kind := table.schema_arrow.field(name).type):
                raise UserError(
                    f"{self._url}: the column {name!r} is of the type {quoted(str(kind))}; give "
                    "texts, numbers or lists."
                )
        yield from table.iter_batches(BATCH_ROWS, columns=columns)

    def _csv(self, file: Any) -> Iterator[pa.RecordBatch]:
        parsing = pa.csv.ParseOptions(newlines_in_values=True)  # a file's name may hold one
        names = pa.csv.open_csv(file, parse_options=parsing).schema.names
        file.seek(0)
        columns = self._concerned(names)
        # As text, whatever they look like: an id such as 007 is no number.
        options = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=False,
            include_columns=columns,
        )
        yield from pa.csv.open_csv(file, parse_options=parsing, convert_options=options)

    def _concerned(self, names: Sequence[str]) -> list[str]:
        """The columns of concern; none may stand twice, and none with spaces around it."""
        classes = () if "labels" in names else self._classes
        found = [name for name in names if name in KNOWN or name in classes]
        for name in names:
            if found.count(name) > 1:
                raise UserError(f"{self._url}: the column {name!r} stands twice; keep one.")
            if name not in found and name.strip() in KNOWN:
                raise UserError(f"{self._url}: the column {name!r} has spaces; remove them.")
        return found


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int | float) and value != ""


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a column holds what labels and names are made of: no times, no structures."""
    if pa.types.is_dictionary(kind) or pa.types.is_nested(kind):
        return hasattr(kind, "value_type") and _is_plain(kind.value_type)
    texts = ("string", "large_string", "string_view", "binary")
    simple = ("null", "boolean", "integer", "floating", *texts)
    return any(getattr(pa.types, f"is_{name}")(kind) for name in simple)


KIND = DatasetKind(
    "a Parquet or CSV table with a row an image",
    "images: the table with uri, optionally image_id, and labels as names, indices or one "
    "0/1 column a class; classes",
    "your own",
    Manifest,
)
