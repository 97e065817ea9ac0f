"""The sum of a unit's markers: what is scored, with what, and what is missing."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparc_dist.core import Moments
from sparc_dist.runs.layout import UnitLayout
from sparc_dist.runs.marker_tables import read_segments
from sparc_dist.runs.markers import Marker, Provenance


@dataclass
class MarkerSummary:
    """The sum of a unit's markers.

    images: per shard, 0 for a missing one. key: a hash of the hashes of all scores. debiased: the
    moments of the debiased singleton scores of images that a labeler was applied to. loose:
    the first shards of segments that could have a table.
    """

    images: list[int] = field(default_factory=list)
    missing: array[int] = field(default_factory=lambda: array("q"))
    errors: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    passing: int = 0
    retries: int = 0
    scorings: set[Provenance] = field(default_factory=set)
    input: dict[str, Any] | None = None
    checkpoint: dict[str, str] | None = None
    precision: dict[str, Any] | None = None
    debiased: Moments | None = None
    key: str = ""
    loose: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, unit: UnitLayout, shards: int) -> MarkerSummary:
        """Reads the markers of a unit with ``shards`` shards."""
        summary, digest = cls(), hashlib.sha256()
        for segment in read_segments(unit, shards):
            if segment.loose:
                summary.loose.append(segment.shards.start)
            for shard, marker in zip(segment.shards, segment.markers, strict=True):
                summary.images.append(marker.images if marker else 0)
                if marker is None:
                    summary.missing.append(shard)
                else:
                    summary.add(marker)
                    digest.update(marker.sha256.get("scores", "").encode())
        summary.key = digest.hexdigest()
        return summary

    def add(self, marker: Marker) -> None:
        """Adds the counts of a marker, and what it was scored with."""
        self.errors += marker.errors
        self.reasons.update(marker.reasons)
        self.passing += marker.passing
        self.retries += marker.retries
        self.scorings.add(marker.scoring)
        self.input = self.input or marker.input
        self.checkpoint = self.checkpoint or marker.checkpoint
        self.precision = self.precision or marker.precision
        if marker.debiased is not None:
            new = Moments(marker.images, *map(np.array, marker.debiased))
            self.debiased = new if self.debiased is None else self.debiased + new
