"""The result of an experiment: a table, a figure and remarks for the reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from sparc_dist.runs.tables import Table


@dataclass(frozen=True)
class Result:
    """The result of an experiment.

    table: all values, for the CSV file. summary: the table for the page; ``table`` by default.
    """

    title: str
    table: Table
    figure: Figure
    remarks: Sequence[str] = ()
    summary: Table | None = None

    def to_markdown(self, picture: str | None = None) -> str:
        """Returns the page, with the figure at the URL ``picture`` if given."""
        remarks = "\n".join(f"- {remark}" for remark in self.remarks)
        table = (self.summary or self.table).to_markdown()
        page = f"# {self.title}\n\n{table}\n{remarks}\n"
        return page if picture is None else f"{page}\n![{self.title}]({picture})\n"


def difference(ours: float | None, paper: float | None) -> float | None:
    """Returns ours minus the paper's; None if either is unknown."""
    return None if ours is None or paper is None else ours - paper


def mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean of the values that are not None."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
