"""Charts: where the bars, lines and ticks of a class's plots are; a template draws them as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sparc_dist.core import FUSIONS
from sparc_dist.report.exhibit import ClassExhibit

LEFT, RIGHT, TOP, BOTTOM = 60, 468, 22, 194
NEAR = 3  # pixels


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``, drawn from ``start`` to ``end``; names: of 0, 1, …."""

    title: str
    low: float
    high: float
    start: float
    end: float
    names: Sequence[str] = ()

    def at(self, value: float) -> float:
        """Returns the position of a value, kept inside the plot."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)

    def ticks(self) -> list[tuple[float, str]]:
        """Returns positions and texts of about six round values, or of the names."""
        if self.names:
            return [(self.at(place), name) for place, name in enumerate(self.names)]
        rough = (self.high - self.low) / 8
        scale = 10.0 ** math.floor(math.log10(rough))
        step = next(size * scale for size in (1, 2, 5, 10) if size * scale >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step + 1e-9)
        return [(self.at(i * step), f"{i * step:,.6g}") for i in range(first, last + 1)]


@dataclass(frozen=True)
class Chart:
    """A plot. bars: x, y, width, height. rule: a vertical line. point: a circle. All in pixels."""

    key: str
    title: str
    description: str
    x: Axis
    y: Axis
    bars: Sequence[tuple[float, float, float, float]] = ()
    line: str = ""
    rule: float | None = None
    point: tuple[float, float] | None = None


def histogram(shown: ClassExhibit) -> Chart | None:
    """Returns how many images have which final score, with the threshold; None without images."""
    if not sum(shown.counts):
        return None
    marks = [*shown.edges] + ([shown.threshold_score] if shown.threshold_score is not None else [])
    x = _horizontal("final score (no unit)", min(marks), max(marks))
    y = _vertical("images", 0.0, float(max(shown.counts)))
    bars = [
        (x.at(low), y.at(count), max(x.at(high) - x.at(low) - 0.5, 0.5), BOTTOM - y.at(count))
        for (low, high), count in zip(pairwise(shown.edges), shown.counts, strict=True)
    ]
    rule = None if shown.threshold_score is None else x.at(shown.threshold_score)
    told = f"{sum(shown.counts):,} images with scores from {marks[0]:.2f} to {shown.edges[-1]:.2f}."
    if shown.threshold_score is not None:
        told += f" The dashed line is the threshold, {shown.threshold_score:.2f}."
    return Chart("histogram", "Distribution of scores", told, x, y, bars, rule=rule)


def precision_recall(shown: ClassExhibit) -> Chart | None:
    """Returns the precision-recall curve with the point of the threshold; None without labels."""
    if not shown.precision_recall:
        return None
    x, y = _horizontal("recall (%)", 0, 100), _vertical("precision (%)", 0, 100)
    line = _line([(x.at(100 * r), y.at(100 * p)) for r, p in shown.precision_recall])
    point, told = None, "Precision over recall, from the highest scores to the lowest."
    if shown.recall is not None and shown.precision is not None:
        point = (x.at(shown.recall), y.at(shown.precision))
        told += (
            f" The circle is the threshold: precision {shown.precision:.1f} %, "
            f"recall {shown.recall:.1f} %."
        )
    return Chart("curve", "Precision and recall", told, x, y, line=line, point=point)


def rank_weights(shown: ClassExhibit, method: str) -> Chart | None:
    """Returns the weights of what a fusion adds up for a class; None without weights."""
    weights = shown.rank_weights
    if not weights:
        return None
    names, title = FUSIONS[method].weight_names, "view of the class"
    if not names:
        title = "rank of the compound score (0: the singleton prompt)"
    x = _horizontal(title, -0.5, len(weights) - 0.5, names)
    y = _vertical("weight (no unit)", min(0.0, *weights), max(0.0, *weights))
    width = (RIGHT - LEFT) / len(weights)
    bars = [
        (x.at(i) - 0.4 * width, min(y.at(w), y.at(0)), 0.8 * width, abs(y.at(w) - y.at(0)))
        for i, w in enumerate(weights)
    ]
    most = max(range(len(weights)), key=lambda i: abs(weights[i]))
    told = f"{len(weights)} weights; the largest is {weights[most]:.3f}, of "
    told += f"“{names[most]}”." if names else (f"rank {most}." if most else "the singleton prompt.")
    return Chart("weights", "What carries the class", told, x, y, bars)


def _line(points: Sequence[tuple[float, float]]) -> str:
    """Returns a line through points, without those that nobody sees beside the one before."""
    kept = [points[0]]
    for x, y in points[1:-1]:
        if abs(x - kept[-1][0]) + abs(y - kept[-1][1]) >= NEAR:
            kept.append((x, y))
    return " ".join(f"{x},{y}" for x, y in [*kept, *points[1:][-1:]])


def _horizontal(title: str, low: float, high: float, names: Sequence[str] = ()) -> Axis:
    return Axis(title, low, high if high > low else low + 1, LEFT, RIGHT, names)


def _vertical(title: str, low: float, high: float) -> Axis:
    return Axis(title, low, high if high > low else low + 1, BOTTOM, TOP)
