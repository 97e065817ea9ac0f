"""What a run has to do and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sparc_dist.config import BackboneConfig
from sparc_dist.layout import RunLayout

#: What of a run to do: score the images, reduce the scores, or both.
Part = Literal["all", "score", "reduce"]

#: For each data set the backbones under which it is still to be run.
Missing = dict[str, list[BackboneConfig]]


@dataclass
class Outcome:
    """What became of a run: metrics of the units that are done, reasons of those that are not."""

    layout: RunLayout
    metrics: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    nothing_to_do: bool = False
