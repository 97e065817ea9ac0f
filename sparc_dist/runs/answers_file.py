"""Answers of people as a CSV file: image_id, uri, class, answer (yes, no, unsure, or empty)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from sparc_dist import storage
from sparc_dist.errors import UserError, quoted
from sparc_dist.runs.tables import Table

COLUMNS = ("image_id", "uri", "class", "answer")
NEEDED = ("image_id", "class", "answer")

#: The words of an answer, in small letters.
WORDS = {
    **dict.fromkeys(("yes", "y", "1", "true"), True),
    **dict.fromkeys(("no", "n", "0", "false"), False),
}
#: The words of someone who has looked and cannot tell: no answer, but not to be asked again.
UNSURE = ("unsure", "u", "?")


@dataclass(frozen=True)
class Question:
    """Whether an image contains a class."""

    image_id: str
    uri: str
    name: str


def check_new(url: str) -> None:
    """Raises UserError if there is a file, for it may hold answers."""
    if storage.read_if_exists(url) is not None:
        raise UserError(f"--out {url} exists and may hold answers; choose another name.")


def write_questions(url: str, questions: Iterable[Question]) -> None:
    """Writes questions to be answered by hand."""
    rows = [(question.image_id, question.uri, question.name, None) for question in questions]
    storage.write_bytes(url, Table(COLUMNS, rows).to_csv().encode())


def read_answers(url: str, classes: Sequence[str]) -> dict[str, dict[int, bool]]:
    """Returns yes or no by image id and index of a class; empty and unsure ones are left out."""
    index_of = {name: index for index, name in enumerate(classes)}
    found: dict[str, dict[int, bool]] = {}
    for line, row in parse_rows(_read(url), url):
        where = f"--answers {url}, line {line}"
        image_id, name, word = (row[column] for column in NEEDED)
        if not word or word.lower() in UNSURE:
            continue
        if word.lower() not in WORDS:
            raise UserError(f"{where}: the answer is {quoted(word)}; write yes, no or unsure.")
        if name not in index_of:
            raise UserError(
                f"{where}: unknown class {quoted(name)}; use one of the run's classes, such as "
                f"{quoted(classes[0])}."
            )
        answer = WORDS[word.lower()]
        if found.setdefault(image_id, {}).setdefault(index_of[name], answer) != answer:
            raise UserError(f"{where}: yes and no for the same image and class; keep one.")
    if not found:
        raise UserError(f"--answers {url} has no answers; fill in yes or no in `answer`.")
    return found


def _read(url: str) -> bytes:
    try:
        return storage.read_bytes(url)
    except FileNotFoundError:
        raise UserError(f"--answers {url}: there is no such file; check the path.") from None


def parse_rows(content: bytes, url: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the line and the cells of each row, as spreadsheets of any language save it.

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
            stripped = {name: row[name].strip() for name in ("class", "answer")}
            yield reader.line_num, row | stripped
    except csv.Error as error:
        raise UserError(f"--answers {url}, line {reader.line_num}: {error}; correct it.") from None
