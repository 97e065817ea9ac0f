"""Plug-in scores: another method's M × N scores, which take the singleton's place.

Columns are put into the order of the run's classes, rows are found by the run's image ids; what
does not fit is refused in a sentence before anything is computed.
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
from sparc_dist.core.debias import ImageDebias
from sparc_dist.errors import UserError, one_line, quoted
from sparc_dist.external_scores.matrices import (
    ALIASES,
    check_differ,
    check_finite,
    matrix,
    read_archive,
    read_content,
    read_pickle,
    texts_of,
)
from sparc_dist.images import SUFFIXES

#: What arrays are called in NPZ files and pickles: by us, and by the authors of the paper.
_FIELDS = {
    "scores": ("scores", "cossims"),
    "image_ids": ("image_ids", "impaths"),
    "classes": ("classes", "classnames"),
}
_ALIASES = {letters(alias): letters(name) for alias, name in ALIASES.items()}
#: Either of two names may be the class's and the other the file's.
_OTHER_NAME = _ALIASES | {name: alias for alias, name in _ALIASES.items()}
#: The row where there is no image, or no telling which.
_NO_ROW = -1

MethodName = Literal["tagclip", "tai-dpt", "comc", "other"]


@dataclass(frozen=True)
class PlugIn:
    """The scores of M images, by the ids that their file gives them.

    scores: (M, N), in the order of the run's classes. url: the file, for those who complain.
    """

    ids: Sequence[str]
    scores: NDArray[np.float32]
    url: str

    def rows(self, image_ids: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Which of the run's n images are here (n,), and the scores of those (found, N).

        An image is found by its id, else by its path as far as both name it: "1.jpg" or "a/1" is
        the file's "data/a/1.jpg", "b/1.jpg" is not. Where several could be meant, none is found.
        """
        rows = np.array([self._row(image_id) for image_id in image_ids], dtype=np.intp)
        found = rows >= 0
        self._check_differ(image_ids, rows)
        return found, self.scores[rows[found]]

    def _row(self, image_id: str) -> int:
        """The row of an image; negative where there is none."""
        if image_id in self._by_id:
            return self._by_id[image_id]
        for path in _spellings(image_id):
            if path in self._by_tail:
                return self._by_tail[path]
            for tail in _tails(path):
                if tail in self._by_path:
                    return self._by_path[tail]
        return _NO_ROW

    def _check_differ(self, image_ids: Sequence[str], rows: NDArray[np.intp]) -> None:
        """Two of the run's images cannot have the scores of one."""
        first: dict[int, str] = {}
        for row, image_id in zip(rows.tolist(), image_ids, strict=True):
            if row >= 0 and first.setdefault(row, image_id) != image_id:
                raise UserError(
                    f"{self.url}: {quoted(self.ids[row])} could be the run's image "
                    f"{quoted(first[row])} or {quoted(image_id)}; give the run's own image ids."
                )

    @cached_property
    def _by_id(self) -> dict[str, int]:
        return {image_id: row for row, image_id in enumerate(self.ids)}

    @cached_property
    def _by_path(self) -> dict[str, int]:
        """The row of each whole path, with and without its ending."""
        return _index(_spellings(image_id) for image_id in self.ids)

    @cached_property
    def _by_tail(self) -> dict[str, int]:
        """The row of each path from any of its folders on, with and without its ending."""
        return _index(
            [tail for path in _spellings(image_id) for tail in _tails(path)]
            for image_id in self.ids
        )


def none_found(plug_in: PlugIn, image_ids: Sequence[str]) -> UserError:
    """What to say when not one of the run's images is in the file."""
    return UserError(
        f"{plug_in.url} holds none of the run's images: its ids are such as "
        f"{quoted(plug_in.ids[0])}, the run's such as {quoted(image_ids[0])}; give the run's."
    )


def _spellings(path: str) -> list[str]:
    """A path of either system as it is, and without the ending of an image file."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    plain = "/".join(parts)
    stem = plain.rpartition(".")[0]
    bare = stem if stem and plain.lower().endswith(SUFFIXES) else plain
    return list(dict.fromkeys([plain, bare]))


def _tails(path: str) -> list[str]:
    """a/b/c, b/c, c."""
    parts = path.split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]


def _index(keys_of_rows: Iterator[list[str]]) -> dict[str, int]:
    """The row of each key; none where a key is of several rows."""
    index: dict[str, int] = {}
    for row, keys in enumerate(keys_of_rows):
        for key in keys:
            if index.setdefault(key, row) != row:
                index[key] = _NO_ROW
    return index


def read_plug_in(url: str, classes: Sequence[str]) -> PlugIn:
    """Scores from a .parquet, .csv, .npz, .pkl or .pickle file, columns in the order of classes.

    Tables: image_id with a column a class, or (Parquet) with a list of numbers. NPZ files and
    pickles: scores, image_ids, optional classes. Columns without names stand in the order of the
    run's classes.
    """
    ending = PurePosixPath(url).suffix.lower()
    if ending not in _READERS:
        raise UserError(f"{url} ends with none of {', '.join(_READERS)}; give such a file.")
    ids, values = _READERS[ending](url, classes)
    if not ids:
        raise UserError(f"{url} holds no image; give scores for some.")
    check_differ(ids, url)
    return PlugIn(ids, np.ascontiguousarray(values, dtype=np.float32), url)


def _arrays(
    fields: Mapping[Any, Any], url: str, classes: Sequence[str]
) -> tuple[list[str], NDArray[Any]]:
    """Ids and scores from arrays by name."""
    given: dict[str, tuple[str, Any]] = {}
    for wanted, names in _FIELDS.items():
        found = [name for name in names if name in fields]
        if found:
            given[wanted] = found[0], fields[found[0]]
        elif wanted != "classes":
            raise UserError(f"{url} has no `{names[0]}`, nor `{names[1]}`; add it.")
    field, values = given["scores"]
    values = matrix(values, field, url)
    ids = texts_of(given["image_ids"][1], given["image_ids"][0], url)
    named = texts_of(given["classes"][1], given["classes"][0], url) if "classes" in given else None
    width = len(classes if named is None else named)
    if values.shape != (len(ids), width):
        whose = "in the run" if named is None else f"in `{given['classes'][0]}`"
        raise UserError(
            f"{url}: `{field}` has the shape {values.shape}, but there are {len(ids)} ids and "
            f"{width} classes {whose}; give a row an image and a column a class."
        )
    check_finite(values, field, url)
    return ids, values if named is None else values[:, _columns(named, classes, url)]


def _from_table(
    table: pa.Table, url: str, classes: Sequence[str]
) -> tuple[list[str], NDArray[np.float64]]:
    """Ids and scores from a table: of a list of numbers, or of a column a class."""
    ids = _ids(table, url)
    names = table.schema.names
    lists = [column for column, field in enumerate(table.schema) if _is_list(field.type)]
    chosen = [column for column in lists if names[column] == "scores"]
    if not chosen and not _any_class(names, classes):
        chosen = lists
    if len(chosen) > 1:
        raise UserError(f"{url} has {len(chosen)} columns of lists; call one, only, `scores`.")
    if chosen:
        return ids, _lists(table.column(chosen[0]), names[chosen[0]], url, len(classes))
    values = np.empty((len(ids), len(classes)))
    for place, column in enumerate(_columns(names, classes, url)):
        values[:, place] = _numbers(table.column(column), names[column], url)
        check_finite(values[:, [place]], names[column], url)
    return ids, values


def _ids(table: pa.Table, url: str) -> list[str]:
    columns = table.schema.get_all_field_indices("image_id")
    if len(columns) != 1:
        raise UserError(f"{url} has {len(columns)} columns `image_id`; give it one.")
    try:
        ids = table.column(columns[0]).cast(pa.string())
    except pa.ArrowException:
        raise UserError(f"{url}: `image_id` must hold texts or numbers; write it anew.") from None
    if ids.null_count:
        row = ids.is_null().index(True).as_py()
        raise UserError(f"{url}, row {row}: `image_id` is missing; fill it in.")
    return list(ids.to_pylist())


def _lists(column: pa.ChunkedArray, name: str, url: str, width: int) -> NDArray[np.float64]:
    """The matrix (n, width) of a column of lists."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        raise UserError(
            f"{url}, row {wrong[0]}: `{name}` holds {lengths[wrong[0]]} numbers, but there are "
            f"{width} classes in the run; give one a class."
        )
    values = _numbers(column.combine_chunks().flatten(), name, url).reshape(-1, width)
    check_finite(values, name, url)
    return values


def _numbers(column: pa.Array | pa.ChunkedArray, name: str, url: str) -> NDArray[np.float64]:
    """A column's numbers (n,); what is missing is NaN."""
    try:
        if pa.types.is_string(column.type):  # of a CSV
            column = pc.utf8_trim_whitespace(column)
        values = column.cast(pa.float64(), safe=False)
    except pa.ArrowException as error:
        raise UserError(
            f"{url}: `{name}` holds no numbers ({one_line(error, 200)}); correct it."
        ) from None
    return np.asarray(values, dtype=np.float64)


def _is_list(kind: pa.DataType) -> bool:
    """Whether it is a list of numbers."""
    value = getattr(kind, "value_type", None)
    if value is None or pa.types.is_dictionary(kind):
        return False
    return bool(pa.types.is_floating(value) or pa.types.is_integer(value))


def _any_class(names: Sequence[str], classes: Sequence[str]) -> bool:
    return not {letters(name) for name in classes}.isdisjoint(map(letters, names))


def _columns(names: Sequence[str], classes: Sequence[str], url: str) -> list[int]:
    """The place of each class among ``names``; a class's own name goes before another one."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(letters(name), []).append(place)
    own = {letters(name) for name in classes}

    def place_of(name: str) -> int:
        spelt = letters(name)
        other = _OTHER_NAME.get(spelt, spelt)
        found = places.get(spelt) or (places.get(other) if other not in own else None)
        if not found:
            raise UserError(f"{url} has no scores for the class {quoted(name)}; add a column.")
        if len(found) > 1:
            raise UserError(f"{url}: the class {quoted(name)} stands twice; keep one column.")
        return found[0]

    return [place_of(name) for name in classes]


def _table(url: str, read: Callable[[bytes], pa.Table]) -> pa.Table:
    content = read_content(url)
    try:
        table = read(content)
        table.validate(full=True)  # Parquet's texts may be no UTF-8
        _ = table.schema.names  # nor its names
    except Exception as error:  # damaged tables raise nearly anything
        raise UserError(
            f"{url} cannot be read as a table ({one_line(error, 200)}); write it anew."
        ) from None
    return table


def _csv(content: bytes) -> pa.Table:
    parsing = pa.csv.ParseOptions(newlines_in_values=True)  # a file's name may hold one
    names = pa.csv.open_csv(io.BytesIO(content), parse_options=parsing).schema.names
    # As text, whatever they look like: an id such as 007 is no number.
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


@dataclass(frozen=True)
class Treatment:
    """What a method's scores need: a step of their own, and how much image-level debias."""

    transform: Callable[[PlugIn], NDArray[np.float32]]
    image_debias: ImageDebias


def _as_they_are(plug_in: PlugIn) -> NDArray[np.float32]:
    return plug_in.scores


def _log(plug_in: PlugIn) -> NDArray[np.float32]:
    """The log (M, N); a probability of 0 counts as the smallest above 0 in the file."""
    scores = plug_in.scores
    if scores.min() < 0 or scores.max() <= 0:
        raise UserError(
            f"{plug_in.url}: of TagCLIP's scores, probabilities, the log is taken, but these reach "
            f"from {scores.min()} to {scores.max()}; correct them, or name the method `other`."
        )
    smallest = scores[scores > 0].min()
    logs: NDArray[np.float64] = np.log(np.maximum(scores, smallest), dtype=np.float64)
    return logs.astype(np.float32)


#: TagCLIP ends with a softmax, which has taken the image's bias out already.
METHODS: dict[MethodName, Treatment] = {
    "tagclip": Treatment(_log, "none"),
    "tai-dpt": Treatment(_as_they_are, "full"),
    "comc": Treatment(_as_they_are, "full"),
    "other": Treatment(_as_they_are, "full"),
}


def prepared(plug_in: PlugIn, method: MethodName) -> PlugIn:
    """The scores as they take the singleton's place."""
    return replace(plug_in, scores=METHODS[method].transform(plug_in))
