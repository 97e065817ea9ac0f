"""The answer sheet of a unit: answers.csv, which grows by one answer at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparc_dist import storage
from sparc_dist.runs.answers_file import COLUMNS, UNSURE, WORDS, Question, parse_rows
from sparc_dist.runs.tables import Table


@dataclass(frozen=True)
class AnswerSheet:
    """The rows of an answers file, the latest last. Columns of another tool are kept."""

    rows: tuple[Mapping[str, str], ...] = ()

    @classmethod
    def read(cls, url: str) -> AnswerSheet:
        """Reads a file; a missing one has no rows."""
        try:
            content = storage.read_bytes(url)
        except FileNotFoundError:
            return cls()
        except PermissionError:
            # A store that forbids listing says so of a missing file. On a disk there is one, and
            # it must not be replaced.
            if storage.is_remote(url):
                return cls()
            raise
        return cls(tuple(row for _, row in parse_rows(content, url)) if content else ())

    def answers(self, name: str) -> dict[str, str]:
        """Returns yes, no or unsure by image id for a class; unknown words are left out."""
        found = {}
        for row in self.rows:
            word = row["answer"].lower()
            if row["class"] == name and word in WORDS:
                found[row["image_id"]] = "yes" if WORDS[word] else "no"
            elif row["class"] == name and word in UNSURE:
                found[row["image_id"]] = "unsure"
        return found

    def with_answer(self, question: Question, word: str) -> AnswerSheet:
        """Returns the sheet with an answer, which replaces an earlier one."""
        row = dict(
            zip(COLUMNS, (question.image_id, question.uri, question.name, word), strict=True)
        )
        old = next((row for row in self.rows if _is_about(row, question)), {})
        return AnswerSheet((*self.without(question).rows, {**old, **row}))

    def without(self, question: Question) -> AnswerSheet:
        """Returns the sheet without the answer to a question."""
        return AnswerSheet(tuple(row for row in self.rows if not _is_about(row, question)))

    def write(self, url: str) -> None:
        """Writes the file, whole or not at all: a crash loses no answer."""
        columns = list(dict.fromkeys([*COLUMNS, *(name for row in self.rows for name in row)]))
        rows = [[row.get(name) for name in columns] for row in self.rows]
        storage.write_bytes(url, Table(columns, rows).to_csv().encode())


def _is_about(row: Mapping[str, str], question: Question) -> bool:
    return row["image_id"] == question.image_id and row["class"] == question.name
