"""What an experiment found: a table, a figure, and what a reader must know beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from sparc_dist.runs.tables import Table


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
