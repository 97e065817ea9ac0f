"""The settings of a benchmark, and the text of its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparc_dist.runs.tables import aligned


@dataclass(frozen=True)
class BenchSetting:
    """quick: use tiny sizes, to check that it works. photos: a folder, or None to draw them.

    millions: of images, for the benchmark of scale.
    """

    quick: bool = False
    photos: str | None = None
    millions: float = 1.0


def block(title: str, figures: Mapping[str, str]) -> str:
    """Returns a title and, below it, one line per figure with the figures aligned."""
    lines = aligned([(f"  {name}:", value) for name, value in figures.items()], "lr")
    return f"{title}\n{lines}"
