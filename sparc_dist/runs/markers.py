"""Markers: written last, a shard's marker says that it is scored, with what, and its files' hashes.

A shard without a marker is not scored: nothing is ever listed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from sparc_dist import storage
from sparc_dist.core import Moments
from sparc_dist.runs.layout import UnitLayout

READERS = 32


@dataclass(frozen=True)
class Provenance:
    """What a shard was scored with."""

    weights_sha256: str
    prompts_sha256: str
    images_sha256: str
    device: str


@dataclass(frozen=True)
class Marker:
    """A scored shard.

    reasons: the number of errors of each kind. sha256: of its files "scores" and "errors".
    retries: the number of repeated requests to the store. seconds: per step. input: the images
    that the model takes. precision: only of the first shard, how far scores in less than float32
    differ from float32. debiased: mean and deviations of the debiased singleton scores, where
    a labeler was applied.
    """

    shard: int
    images: int
    errors: int
    reasons: dict[str, int]
    sha256: dict[str, str]
    scoring: Provenance
    retries: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    input: dict[str, Any] | None = None
    precision: dict[str, Any] | None = None
    debiased: list[list[float]] | None = None

    def write(self, unit: UnitLayout) -> None:
        """Writes the marker: the shard is done."""
        storage.write_json(unit.marker(self.shard), asdict(self))

    @classmethod
    def read(cls, unit: UnitLayout, shard: int) -> Marker | None:
        """Returns a shard's marker, or None if it is missing or damaged."""
        try:
            stored: dict[str, Any] | None = storage.read_json_if_exists(unit.marker(shard))
            if stored is None:
                return None
            return cls(**stored | {"scoring": Provenance(**stored["scoring"])})
        except (TypeError, KeyError):
            return None


@dataclass
class MarkerSummary:
    """The sum of a unit's markers.

    images: per shard, 0 for a missing one. key: a hash of the hashes of all scores. debiased: the
    moments of the debiased singleton scores of images that a labeler was applied to.
    """

    images: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    errors: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    scorings: set[Provenance] = field(default_factory=set)
    input: dict[str, Any] | None = None
    precision: dict[str, Any] | None = None
    debiased: Moments | None = None
    key: str = ""

    @classmethod
    def of(cls, unit: UnitLayout, shards: int) -> MarkerSummary:
        """Reads the markers of a unit with ``shards`` shards."""
        summary, digest = cls(), hashlib.sha256()
        for shard, marker in enumerate(_read_all(unit, shards)):
            summary.images.append(marker.images if marker else 0)
            if marker is None:
                summary.missing.append(shard)
                continue
            summary.errors += marker.errors
            summary.reasons.update(marker.reasons)
            summary.retries += marker.retries
            summary.scorings.add(marker.scoring)
            summary.input = summary.input or marker.input
            summary.precision = summary.precision or marker.precision
            if marker.debiased is not None:
                new = Moments(marker.images, *map(np.array, marker.debiased))
                summary.debiased = new if summary.debiased is None else summary.debiased + new
            digest.update(marker.sha256.get("scores", "").encode())
        summary.key = digest.hexdigest()
        return summary


def _read_all(unit: UnitLayout, shards: int) -> Iterator[Marker | None]:
    """Yields the markers in order, read in batches because a run may have very many."""
    with ThreadPoolExecutor(READERS) as readers:
        for start in range(0, shards, 1024):
            batch = range(start, min(start + 1024, shards))
            yield from readers.map(lambda shard: Marker.read(unit, shard), batch)
