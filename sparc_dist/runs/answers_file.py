"""Answers of people as a CSV file: image_id, uri, class, answer (yes, no, or empty)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
    """Returns yes or no by image id and index of a class; empty answers are left out."""
    index_of = {name: index for index, name in enumerate(classes)}
    found: dict[str, dict[int, bool]] = {}
    for row, (image_id, name, word) in _rows(url):
        where = f"--answers {url}, line {row}"
        if not word:
            continue
        if word.lower() not in WORDS:
            raise UserError(f"{where}: the answer is {quoted(word)}; write yes or no.")
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


def _rows(url: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the line and the needed cells of each row, as spreadsheets of any language save it."""
    try:
        text = storage.read_bytes(url).decode("utf-8-sig")  # spreadsheets begin files with a mark
    except FileNotFoundError:
        raise UserError(f"--answers {url}: there is no such file; check the path.") from None
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
        places = [names.index(name) for name in NEEDED]
        for cells in filter(None, reader):
            image_id, *rest = (cells[place] if place < len(cells) else "" for place in places)
            yield reader.line_num, [image_id, *(cell.strip() for cell in rest)]
    except csv.Error as error:
        raise UserError(f"--answers {url}, line {reader.line_num}: {error}; correct it.") from None
