"""What a benchmark is told, and how it tells what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparc_dist.runs.tables import aligned


@dataclass(frozen=True)
class BenchSetting:
    """quick: so small that it only shows that all works. photos: a folder; made up without one."""

    quick: bool = False
    photos: str | None = None


def block(title: str, figures: Mapping[str, str]) -> str:
    """What was measured, and below it one line a figure, the figures in one column."""
    lines = aligned([(f"  {name}:", value) for name, value in figures.items()], "lr")
    return f"{title}\n{lines}"
