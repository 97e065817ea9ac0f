"""Plug-in scores: another method's M × N scores, used in place of the singleton scores.

Columns are matched to the run's classes and rows to its image ids. A file that does not fit fails
with an error before anything is computed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparc_dist.config import letters
from sparc_dist.core import ImageDebias
from sparc_dist.errors import UserError, one_line, quoted
from sparc_dist.external_scores.matrices import (
    ALIASES,
    check_finite,
    check_unique,
    matrix,
    read_archive,
    read_content,
    read_pickle,
    texts_of,
)
from sparc_dist.images import SUFFIXES

#: The names of arrays in NPZ files and pickles: ours, and those of the paper's authors.
_FIELDS = {
    "scores": ("scores", "cossims"),
    "image_ids": ("image_ids", "impaths"),
    "classes": ("classes", "classnames"),
}
_ALIASES = {letters(alias): letters(name) for alias, name in ALIASES.items()}
#: Maps each of two equivalent names to the other.
_OTHER_NAME = _ALIASES | {name: alias for alias, name in _ALIASES.items()}
#: The row of an image that is not found, or that is ambiguous.
_NO_ROW = -1

MethodName = Literal["tagclip", "tai-dpt", "comc", "other"]


@dataclass(frozen=True)
class PlugIn:
    """The scores of M images of another method.

    ids: the M image ids in the file. scores: (M, N), in the order of the run's classes.
    url: the file, for error messages.
    """

    ids: Sequence[str]
    scores: NDArray[np.float32]
    url: str

    def rows(self, image_ids: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Returns which of the run's n images are found (n,), and their scores (found, N).

        An image is found by its id, or else by the end of its path: "1.jpg" and "a/1" match
        "data/a/1.jpg" in the file, "b/1.jpg" does not. An ambiguous image is not found.
        """
        rows = np.array([self._row(image_id) for image_id in image_ids], dtype=np.intp)
        found = rows >= 0
        self._check_distinct(image_ids, rows)
        return found, self.scores[rows[found]]

    def _row(self, image_id: str) -> int:
        """Returns the row of an image, or _NO_ROW."""
        if image_id in self._by_id:
            return self._by_id[image_id]
        for path in _spellings(image_id):
            if path in self._by_tail:
                return self._by_tail[path]
            for tail in _tails(path):
                if tail in self._by_path:
                    return self._by_path[tail]
        return _NO_ROW

    def _check_distinct(self, image_ids: Sequence[str], rows: NDArray[np.intp]) -> None:
        """Raises UserError if two images of the run match the same row."""
        first: dict[int, str] = {}
        for row, image_id in zip(rows.tolist(), image_ids, strict=True):
            if row >= 0 and first.setdefault(row, image_id) != image_id:
                raise UserError(
                    f"{self.url}: {quoted(self.ids[row])} could be the run's image "
                    f"{quoted(first[row])} or {quoted(image_id)}; use the run's image ids."
                )

    @cached_property
    def _by_id(self) -> dict[str, int]:
        return {image_id: row for row, image_id in enumerate(self.ids)}

    @cached_property
    def _by_path(self) -> dict[str, int]:
        """The row of each full path, with and without its suffix."""
        return _index(_spellings(image_id) for image_id in self.ids)

    @cached_property
    def _by_tail(self) -> dict[str, int]:
        """The row of each end of a path (see _tails), with and without its suffix."""
        return _index(
            [tail for path in _spellings(image_id) for tail in _tails(path)]
            for image_id in self.ids
        )


def none_found(plug_in: PlugIn, image_ids: Sequence[str]) -> UserError:
    """Returns the error for a file with none of the run's images."""
    return UserError(
        f"{plug_in.url} contains none of the run's images: its ids are like "
        f"{quoted(plug_in.ids[0])}, the run's are like {quoted(image_ids[0])}; use the run's ids."
    )


def _spellings(path: str) -> list[str]:
    """Returns a path with forward slashes, with and without the suffix of an image file."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    plain = "/".join(parts)
    stem = plain.rpartition(".")[0]
    bare = stem if stem and plain.lower().endswith(SUFFIXES) else plain
    return list(dict.fromkeys([plain, bare]))


def _tails(path: str) -> list[str]:
    """Returns the ends of a path: a/b/c, b/c and c for a/b/c."""
    parts = path.split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]


def _index(keys_of_rows: Iterator[list[str]]) -> dict[str, int]:
    """Returns the row of each key; _NO_ROW if several rows have it."""
    index: dict[str, int] = {}
    for row, keys in enumerate(keys_of_rows):
        for key in keys:
            if index.setdefault(key, row) != row:
                index[key] = _NO_ROW
    return index


def read_plug_in(url: str, classes: Sequence[str]) -> PlugIn:
    """Reads scores from a .parquet, .csv, .npz, .pkl or .pickle file.

    Tables: image_id and one column per class, or (Parquet) image_id and a list of numbers. NPZ
    files and pickles: scores, image_ids, optionally classes. Columns without names must be in the
    order of the run's classes.
    """
    suffix = PurePosixPath(url).suffix.lower()
    if suffix not in _READERS:
        raise UserError(f"{url} ends with none of {', '.join(_READERS)}; use such a file.")
    ids, values = _READERS[suffix](url, classes)
    if not ids:
        raise UserError(f"{url} contains no images; add their scores.")
    check_unique(ids, url)
    return PlugIn(ids, np.ascontiguousarray(values, dtype=np.float32), url)


def _arrays(
    fields: Mapping[Any, Any], url: str, classes: Sequence[str]
) -> tuple[list[str], NDArray[Any]]:
    """Returns the ids and scores in named arrays."""
    arrays: dict[str, tuple[str, Any]] = {}
    for field, names in _FIELDS.items():
        found = [name for name in names if name in fields]
        if found:
            arrays[field] = found[0], fields[found[0]]
        elif field != "classes":
            raise UserError(f"{url} has neither `{names[0]}` nor `{names[1]}`; add it.")
    name, values = arrays["scores"]
    values = matrix(values, name, url)
    ids = texts_of(arrays["image_ids"][1], arrays["image_ids"][0], url)
    columns = None
    if "classes" in arrays:
        columns = texts_of(arrays["classes"][1], arrays["classes"][0], url)
    width = len(classes if columns is None else columns)
    if values.shape != (len(ids), width):
        where = "in the run" if columns is None else f"in `{arrays['classes'][0]}`"
        raise UserError(
            f"{url}: `{name}` has the shape {values.shape}, but there are {len(ids)} ids and "
            f"{width} classes {where}; use one row per image and one column per class."
        )
    check_finite(values, name, url)
    return ids, values if columns is None else values[:, _columns(columns, classes, url)]


def _from_table(
    table: pa.Table, url: str, classes: Sequence[str]
) -> tuple[list[str], NDArray[np.float64]]:
    """Returns the ids and scores in a table with a column of lists, or one column per class."""
    ids = _ids(table, url)
    names = table.schema.names
    lists = [column for column, field in enumerate(table.schema) if _is_list(field.type)]
    chosen = [column for column in lists if names[column] == "scores"]
    if not chosen and {letters(name) for name in classes}.isdisjoint(map(letters, names)):
        chosen = lists
    if len(chosen) > 1:
        raise UserError(
            f"{url} has {len(chosen)} columns of lists; name exactly one of them `scores`."
        )
    if chosen:
        return ids, _lists(table.column(chosen[0]), names[chosen[0]], url, len(classes))
    values = np.empty((len(ids), len(classes)))
    for index, column in enumerate(_columns(names, classes, url)):
        values[:, index] = _numbers(table.column(column), names[column], url)
        check_finite(values[:, [index]], names[column], url)
    return ids, values


def _ids(table: pa.Table, url: str) -> list[str]:
    columns = table.schema.get_all_field_indices("image_id")
    if len(columns) != 1:
        raise UserError(f"{url} has {len(columns)} columns `image_id`; it must have one.")
    try:
        ids = table.column(columns[0]).cast(pa.string())
    except pa.ArrowException:
        raise UserError(f"{url}: `image_id` must be texts or numbers; correct it.") from None
    if ids.null_count:
        row = ids.is_null().index(True).as_py()
        raise UserError(f"{url}, row {row}: `image_id` is missing; fill it in.")
    return list(ids.to_pylist())


def _lists(column: pa.ChunkedArray, name: str, url: str, width: int) -> NDArray[np.float64]:
    """Returns a column of lists as a matrix (n, width)."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        raise UserError(
            f"{url}, row {wrong[0]}: `{name}` has {lengths[wrong[0]]} numbers, but there are "
            f"{width} classes in the run; use one number per class."
        )
    values = _numbers(column.combine_chunks().flatten(), name, url).reshape(-1, width)
    check_finite(values, name, url)
    return values


def _numbers(column: pa.Array | pa.ChunkedArray, name: str, url: str) -> NDArray[np.float64]:
    """Returns a column's numbers (n,), with NaN for missing ones."""
    try:
        if pa.types.is_string(column.type):  # from a CSV
            column = pc.utf8_trim_whitespace(column)
        values = column.cast(pa.float64(), safe=False)
    except pa.ArrowException as error:
        raise UserError(
            f"{url}: `{name}` is not numeric ({one_line(error, 200)}); correct it."
        ) from None
    return np.asarray(values, dtype=np.float64)


def _is_list(kind: pa.DataType) -> bool:
    """Whether the type is a list of numbers."""
    value = getattr(kind, "value_type", None)
    if value is None or pa.types.is_dictionary(kind):
        return False
    return bool(pa.types.is_floating(value) or pa.types.is_integer(value))


def _columns(names: Sequence[str], classes: Sequence[str], url: str) -> list[int]:
    """Returns the position of each class in ``names``; exact names take precedence."""
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(letters(name), []).append(position)
    spellings = {letters(name) for name in classes}

    def position_of(name: str) -> int:
        spelling = letters(name)
        other = _OTHER_NAME.get(spelling, spelling)
        found = positions.get(spelling)
        if not found and other not in spellings:
            found = positions.get(other)
        if not found:
            raise UserError(f"{url} has no scores for the class {quoted(name)}; add a column.")
        if len(found) > 1:
            raise UserError(f"{url}: duplicate class {quoted(name)}; keep one column.")
        return found[0]

    return [position_of(name) for name in classes]


def _table(url: str, read: Callable[[bytes], pa.Table]) -> pa.Table:
    content = read_content(url)
    try:
        table = read(content)
        table.validate(full=True)  # Parquet strings may not be valid UTF-8
        _ = table.schema.names  # nor column names
    except Exception as error:  # damaged tables raise many types of errors
        raise UserError(
            f"{url} cannot be read as a table ({one_line(error, 200)}); write it again."
        ) from None
    return table


def _csv(content: bytes) -> pa.Table:
    parsing = pa.csv.ParseOptions(newlines_in_values=True)  # a file name may contain one
    names = pa.csv.open_csv(io.BytesIO(content), parse_options=parsing).schema.names
    # All columns are read as text, so that an id such as 007 keeps its zeros.
    texts = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    return pa.csv.read_csv(io.BytesIO(content), parse_options=parsing, convert_options=texts)


def _parquet(content: bytes) -> pa.Table:
    return pq.ParquetFile(io.BytesIO(content)).read()


_Reader = Callable[[str, Sequence[str]], tuple[list[str], NDArray[Any]]]
_READERS: dict[str, _Reader] = {
    ".parquet": lambda url, classes: _from_table(_table(url, _parquet), url, classes),
    ".csv": lambda url, classes: _from_table(_table(url, _csv), url, classes),
    ".npz": lambda url, classes: _arrays(read_archive(url), url, classes),
    ".pkl": lambda url, classes: _arrays(read_pickle(url), url, classes),
    ".pickle": lambda url, classes: _arrays(read_pickle(url), url, classes),
}


#: The image-level debias of each method; TagCLIP's softmax already removes the bias of an image.
METHODS: dict[MethodName, ImageDebias] = {
    "tagclip": "none",
    "tai-dpt": "full",
    "comc": "full",
    "other": "full",
}


def prepared(plug_in: PlugIn, method: MethodName) -> PlugIn:
    """Returns the scores as they are used in place of the singleton scores: TagCLIP's as logs.

    There, 0 counts as the smallest positive score in the file.
    """
    if method != "tagclip":
        return plug_in
    scores = plug_in.scores
    if scores.min() < 0 or scores.max() <= 0:
        raise UserError(
            f"{plug_in.url}: TagCLIP's scores must be probabilities, but these range from "
            f"{scores.min()} to {scores.max()}; correct them, or name the method `other`."
        )
    smallest = scores[scores > 0].min()
    logs: NDArray[np.float64] = np.log(np.maximum(scores, smallest), dtype=np.float64)
    return replace(plug_in, scores=logs.astype(np.float32))
