"""Answers of people about images: files of them, and which images to ask about."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from secrets import token_hex

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core import Floats
from sparc_dist.errors import UserError, quoted
from sparc_dist.runs.run import FinishedUnit
from sparc_dist.runs.storing import matrix
from sparc_dist.runs.tables import Table

COLUMNS = ("image_id", "uri", "class", "answer")
NEEDED = ("image_id", "class", "answer")

#: What the words of an answer mean, in small letters. unsure: someone has looked and cannot tell,
#: which is no answer, but not to be asked again.
WORDS = {
    **dict.fromkeys(("yes", "y", "1", "true"), "yes"),
    **dict.fromkeys(("no", "n", "0", "false"), "no"),
    **dict.fromkeys(("unsure", "u", "?"), "unsure"),
    "": "",
}


#: The id of an image and the name of a class.
Key = tuple[str, str]


@dataclass(frozen=True)
class Question:
    """Whether an image contains a class."""

    image_id: str
    uri: str
    name: str

    @property
    def key(self) -> Key:
        """Its image and class."""
        return self.image_id, self.name


@dataclass(frozen=True)
class Row:
    """A row of a file. word: as it is written. time: ISO 8601, or empty. where: file and line."""

    question: Question
    word: str
    time: str
    where: str = ""

    @property
    def answer(self) -> str:
        """yes, no or unsure; nothing if it is open, was taken back or is another word."""
        return WORDS.get(self.word.lower(), "")


class Session:
    """The answers that one start of the viewer writes about a unit. folder: of all sessions."""

    def __init__(self, folder: str) -> None:
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{token_hex(4)}.csv"
        self.folder, self.url = folder, storage.join(folder, name)
        self.rows: dict[Key, Row] = {}

    def place(self) -> str:
        """Returns where the answers are: the folder, or its own file if listing is forbidden."""
        return self.url if _session_files(self.folder) is None else self.folder

    def read(self) -> dict[Key, Row]:
        """Returns the row that counts for each question; its own if listing is forbidden."""
        files = _session_files(self.folder)
        return dict(self.rows) if files is None else latest(_read_all(files))

    def write(self, question: Question, word: str, earlier: Row | None) -> None:
        """Writes an answer, or an empty one that takes it back. earlier: the row it replaces.

        The file appears whole or not at all: a crash loses no answer.
        """
        row = Row(question, word, _time_after(earlier.time if earlier else ""))
        rows = latest([*self.rows.values(), row])
        cells = [
            (asked.image_id, asked.uri, asked.name, row.word, row.time)
            for row in rows.values()
            for asked in [row.question]
        ]
        storage.write_bytes(self.url, Table((*COLUMNS, "time"), cells).to_csv().encode())
        self.rows = rows


def _moment(time: str) -> datetime:
    """Returns a time as one that can be compared; the earliest if it is none."""
    try:
        found = datetime.fromisoformat(time)
    except ValueError:
        found = datetime.min
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _time_after(earlier: str) -> str:
    """Returns the time of now; a moment after ``earlier`` if that is the time of a fast clock."""
    now = max(datetime.now(UTC), _moment(earlier) + timedelta(microseconds=1))
    return now.astimezone(UTC).isoformat(timespec="microseconds")


def latest(rows: Iterable[Row]) -> dict[Key, Row]:
    """Returns the row that counts for each image and class, that with the latest time; in order.

    An empty answer counts if it has a time: it takes an earlier one back.
    """
    found: dict[Key, Row] = {}
    for row in sorted(rows, key=lambda row: _moment(row.time)):
        if row.word or row.time:
            found.pop(row.question.key, None)
            found[row.question.key] = row
    return found


def check_new(url: str) -> None:
    """Raises UserError if there is a file, for it may hold answers."""
    if storage.read_if_exists(url) is not None:
        raise UserError(f"--out {url} exists and may hold answers; choose another name.")


def write_questions(url: str, questions: Iterable[Question]) -> None:
    """Writes questions to be answered by hand."""
    rows = [(question.image_id, question.uri, question.name, None) for question in questions]
    storage.write_bytes(url, Table(COLUMNS, rows).to_csv().encode())


def read_answers(url: str, classes: Sequence[str]) -> dict[str, dict[int, bool]]:
    """Returns yes or no by image id and index of a class; empty and unsure ones are left out.

    url: a file, or a folder of files
    """
    index_of = {name: index for index, name in enumerate(classes)}
    rows = _read(url)
    counting = latest(rows)
    for row in rows:
        _check(row, counting.get(row.question.key, row), classes)
    found: dict[str, dict[int, bool]] = {}
    for (image_id, name), row in counting.items():
        if row.answer in ("yes", "no"):
            found.setdefault(image_id, {})[index_of[name]] = row.answer == "yes"
    if not found:
        raise UserError(f"--answers {url} has no answers; fill in yes or no in `answer`.")
    return found


def _check(row: Row, counting: Row, classes: Sequence[str]) -> None:
    """Raises UserError if a row is wrong. counting: the row that counts for its question."""
    if row.word.lower() not in WORDS:
        raise UserError(f"{row.where}: the answer is {quoted(row.word)}; write yes, no or unsure.")
    if row.answer in ("yes", "no") and row.question.name not in classes:
        raise UserError(
            f"{row.where}: unknown class {quoted(row.question.name)}; use one of the run's "
            f"classes, such as {quoted(classes[0])}."
        )
    if row.time == counting.time and {row.answer, counting.answer} == {"yes", "no"}:
        raise UserError(f"{counting.where}: yes and no for the same image and class; keep one.")


def _read(url: str) -> list[Row]:
    """Returns the rows of a file, or of all files of a folder."""
    try:
        return [*parse_rows(storage.read_bytes(url), url)]
    except (FileNotFoundError, IsADirectoryError):
        files = _session_files(url)
    if not files:
        raise UserError(f"--answers {url}: there is no such file; check the path.")
    return _read_all(files)


def _read_all(files: Iterable[str]) -> list[Row]:
    return [row for url in files for row in parse_rows(storage.read_bytes(url), url)]


def _session_files(folder: str) -> list[str] | None:
    """Returns the CSV files of a folder; None if the store forbids listing."""
    try:
        found = [file.url for file in storage.files_below(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError:
        return None
    return [url for url in found if url.lower().endswith(".csv")]


def parse_rows(content: bytes, url: str) -> Iterator[Row]:
    """Yields the rows of a file, as spreadsheets of any language save it.

    url: where it is from, for messages
    """
    try:
        text = content.decode("utf-8-sig")  # spreadsheets begin files with a mark
    except UnicodeDecodeError:
        raise UserError(f"--answers {url} is not UTF-8 text; save it as CSV in UTF-8.") from None
    lines = io.StringIO(text, newline="")
    if text.startswith("sep="):
        lines.readline()
    head = text.removeprefix("sep=").partition("\n")[0]
    reader = csv.reader(lines, delimiter=max(",;\t", key=head.count))
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        for name in NEEDED:
            if names.count(name) != 1:
                count = "no column" if name not in names else "more than one column"
                raise UserError(f"--answers {url} has {count} `{name}`; it needs one.")
        for cells in filter(None, reader):
            row = dict(zip_longest(names, cells[: len(names)], fillvalue=""))
            question = Question(row["image_id"], row.get("uri", ""), row["class"].strip())
            where = f"--answers {url}, line {reader.line_num}"
            yield Row(question, row["answer"].strip(), row.get("time", "").strip(), where)
    except csv.Error as error:
        raise UserError(f"--answers {url}, line {reader.line_num}: {error}; correct it.") from None


Indices = NDArray[np.int64]


def questions(
    unit: FinishedUnit, count: int, seed: int, name: str | None = None
) -> Iterator[Question]:
    """Yields questions about ``count`` images: about all classes, or only the one with a name.

    Images are in random order, so that the first answers are a fair sample, too.
    """
    random = np.random.default_rng(seed)
    finals = map(unit.unit.final, range(len(unit.sizes)))
    sizes = [len(storage.read_table(url, ["image_id"])) for url in finals]
    if name is None:
        chosen = random.choice(sum(sizes), min(count, sum(sizes)), replace=False)
    else:
        chosen = spread(_scores(unit, unit.classes.index(name)), count, random)
    for image_id, uri in _images(unit, sizes, chosen):
        for asked in unit.classes if name is None else [name]:
            yield Question(image_id, uri, asked)


def spread(scores: Floats, count: int, random: np.random.Generator) -> Indices:
    """Returns one random image of each of ``count`` equal parts of the ranking, in random order."""
    order = np.argsort(scores, kind="stable")
    count = min(count, len(order))
    edges = np.arange(count + 1) * len(order) // max(count, 1)
    return random.permutation(order[random.integers(edges[:-1], edges[1:])])


def _scores(unit: FinishedUnit, index: int) -> Floats:
    """Returns a class's scores of all images; copied, so that the others' are freed."""
    tables = (
        storage.read_table(unit.unit.final(shard), [unit.primary])[unit.primary]
        for shard in range(len(unit.sizes))
    )
    return np.concatenate([matrix(col, len(unit.classes))[:, index].copy() for col in tables])


def _images(unit: FinishedUnit, sizes: Sequence[int], chosen: Indices) -> Iterator[tuple[str, str]]:
    """Yields id and uri of images, given by their place among all scored ones."""
    starts = np.cumsum([0, *sizes])
    found: dict[int, tuple[str, str]] = {}
    for shard in np.unique(np.searchsorted(starts, chosen, side="right") - 1).tolist():
        ids = storage.read_table(unit.unit.final(shard), ["image_id"])["image_id"].to_pylist()
        uris = unit.uris(shard)
        places = chosen[(chosen >= starts[shard]) & (chosen < starts[shard + 1])]
        for place in places.tolist():
            image_id = ids[place - int(starts[shard])]
            found[place] = image_id, uris[image_id]
    yield from (found[place] for place in chosen.tolist())
