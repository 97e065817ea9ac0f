"""What an experiment found: a table, a figure, and what a reader must know beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Rows of cells. digits: how many people want to see of a number behind its point."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 1

    def to_csv(self) -> str:
        """Every bit of every number."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in self.rows)
        return out.getvalue()

    def to_markdown(self) -> str:
        """Numbers as people read them, at the right."""
        numeric = [
            any(isinstance(row[i], int | float) for row in self.rows)
            for i in range(len(self.columns))
        ]
        lines = [
            _line(map(_plain, self.columns)),
            _line(["---:" if right else "---" for right in numeric]),
        ]
        lines += [_line([self._shown(cell) for cell in row]) for row in self.rows]
        return "\n".join(lines) + "\n"

    def _shown(self, cell: Cell) -> str:
        if isinstance(cell, float):
            return f"{cell:.{self.digits}f}"
        return "–" if cell is None else _plain(str(cell))


@dataclass(frozen=True)
class Result:
    """What an experiment found.

    table: all of it, for programs. summary: what of it a person reads; all when left out.
    """

    title: str
    table: Table
    figure: Figure
    remarks: Sequence[str] = ()
    summary: Table | None = None

    def to_markdown(self, picture: str | None = None) -> str:
        """A page; with the figure, where it lies at ``picture``."""
        remarks = "\n".join(f"- {remark}" for remark in self.remarks)
        table = (self.summary or self.table).to_markdown()
        page = f"# {self.title}\n\n{table}\n{remarks}\n"
        return page if picture is None else f"{page}\n![{self.title}]({picture})\n"


def difference(ours: float | None, paper: float | None) -> float | None:
    """Ours less the paper's, where both are known."""
    return None if ours is None or paper is None else ours - paper


def mean(values: Sequence[float | None]) -> float | None:
    """Of the values that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _plain(text: str) -> str:
    """Without what would end a cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
