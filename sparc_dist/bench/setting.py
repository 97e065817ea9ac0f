"""What a benchmark is told, and how it tells what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """quick: so small that it only shows that all works. photos: a folder; made up without one."""

    quick: bool = False
    photos: str | None = None


def block(title: str, figures: Mapping[str, str]) -> str:
    """What was measured, and below it one line a figure, the figures in one column."""
    names = max(map(len, figures)) + 1
    values = max(map(len, figures.values()))
    lines = [f"  {name + ':':<{names}}  {value:>{values}}" for name, value in figures.items()]
    return "\n".join([title, *lines])
