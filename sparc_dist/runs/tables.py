"""Tables for people and programs: aligned text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Rows of cells. digits: decimals shown for a float; CSV keeps every bit."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 1

    def to_csv(self) -> str:
        """Returns the table as CSV; a missing cell is empty."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in self.rows)
        return out.getvalue()

    def to_markdown(self) -> str:
        """Returns the table as Markdown, numbers right-aligned."""
        numeric = [
            bool(self.rows) and not any(isinstance(row[i], str) for row in self.rows)
            for i in range(len(self.columns))
        ]
        lines = [
            _line(map(_escaped, self.columns)),
            _line(["---:" if right else "---" for right in numeric]),
        ]
        lines += [_line([self._shown(cell) for cell in row]) for row in self.rows]
        return "\n".join(lines) + "\n"

    def _shown(self, cell: Cell) -> str:
        return _escaped(cell) if isinstance(cell, str) else shown(cell, self.digits)


def shown(value: float | None, digits: int = 1) -> str:
    """Returns a number rounded for people, or a dash for None."""
    if value is None:
        return "–"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def aligned(rows: Sequence[Sequence[str]], alignment: str) -> str:
    """Returns rows as lines of text; alignment: "l" or "r" for each column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, alignment, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Returns a text on one line that is safe in a Markdown cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
