"""The result of an experiment: a table, a figure and remarks; how figures are drawn.

Figures are readable in greyscale: shades, hatches and markers, never colour alone.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sparc_dist.runs.tables import Table

SHADES = ("#303030", "#8c8c8c", "#d0d0d0", "#ffffff")
HATCHES = ("", "//", "", "xx")
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")
#: The same bytes for the same figure: no date, no random names.
_SETTINGS: Any = {"svg.hashsalt": "sparc-dist", "svg.fonttype": "none", "font.size": 9}


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

    def files(self, name: str) -> dict[str, bytes]:
        """Returns the contents of the experiment's files by their endings."""
        return {
            "csv": self.table.to_csv().encode(),
            "md": self.to_markdown(f"{name}.png").encode(),
            "png": _saved(self.figure, "png", {"Software": None}),
            "svg": _saved(self.figure, "svg", {"Date": None}),  # with text as text
        }


def difference(ours: float | None, paper: float | None) -> float | None:
    """Returns ours minus the paper's; None if either is unknown."""
    return None if ours is None or paper is None else ours - paper


def mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean of the values that are not None."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def new_figure(width: float = 7.0, height: float = 4.0) -> Figure:
    """Returns an empty figure, in inches; without pyplot, which needs a display."""
    return Figure(figsize=(width, height), layout="constrained")


def bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    axis: str,
    marks: Mapping[str, Sequence[float | None]] | None = None,
) -> Figure:
    """Returns a chart of horizontal bars, one per label and series.

    axis: what is measured, with its unit. marks: series to compare with, drawn as markers.
    """
    figure = new_figure(7.0, 1.2 + 0.22 * len(labels) * max(1, len(series)))
    axes = figure.add_subplot()
    height = 0.8 / max(1, len(series))
    for number, (name, values) in enumerate(series.items()):
        positions = [row + (number + 0.5) * height - 0.4 for row in range(len(labels))]
        axes.barh(
            positions,
            [value or 0.0 for value in values],
            height,
            label=name,
            facecolor=SHADES[number % 4],
            edgecolor="black",
            linewidth=0.6,
            hatch=HATCHES[number % 4],
        )
    for number, (name, values) in enumerate((marks or {}).items()):
        points = [(value, row) for row, value in enumerate(values) if value is not None]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                MARKERS[number % 4],
                label=name,
                markerfacecolor="white",
                markeredgecolor="black",
            )
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(axis)
    _zoom(axes, [*series.values(), *(marks or {}).values()])
    _legend(axes)
    return figure


def lines(axes: Any, series: Mapping[str, tuple[Sequence[float], Sequence[float | None]]]) -> None:
    """Draws each series (x, y) as a line, distinguished by dashes and markers."""
    for number, (name, (x, y)) in enumerate(series.items()):
        axes.plot(
            x,
            [float("nan") if value is None else value for value in y],
            LINES[number % 4],
            marker=MARKERS[number % 4],
            markersize=4,
            color=SHADES[number % 2],
            label=name,
        )
    _legend(axes)


def _saved(figure: Figure, form: str, metadata: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    with mpl.rc_context(_SETTINGS):
        FigureCanvasAgg(figure)
        figure.savefig(buffer, format=form, dpi=110, metadata=metadata)
    return buffer.getvalue()


def _zoom(axes: Any, series: Sequence[Sequence[float | None]]) -> None:
    """Starts the axis above 0 if all values are similar, so that differences are visible."""
    numbers = [value for values in series for value in values if value is not None]
    if numbers and min(numbers) > 0.5 * max(numbers):
        spread = max(max(numbers) - min(numbers), 0.02 * max(numbers))
        axes.set_xlim(min(numbers) - 0.5 * spread, max(numbers) + 0.15 * spread)
        axes.set_xlabel(f"{axes.get_xlabel()}, from {axes.get_xlim()[0]:.3g}")


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
