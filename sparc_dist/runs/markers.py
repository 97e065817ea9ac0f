"""Markers: written last, a shard's marker says that it is scored, by what, and its files' hashes.

What has no marker does not exist: nothing is ever listed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from sparc_dist import storage
from sparc_dist.runs.layout import UnitLayout

READERS = 32


@dataclass(frozen=True)
class Provenance:
    """By what a shard was scored."""

    weights_sha256: str
    prompts_sha256: str
    images_sha256: str
    device: str


@dataclass(frozen=True)
class Marker:
    """A scored shard.

    reasons: how many of its errors are of each kind. sha256: of its files "scores" and "errors".
    retries: how often the store had to be asked again. seconds: of each step. precision: of the
    first shard, how far scores in less than float32 are from it.
    """

    shard: int
    images: int
    errors: int
    reasons: dict[str, int]
    sha256: dict[str, str]
    scoring: Provenance
    retries: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    precision: dict[str, Any] | None = None

    def write(self, unit: UnitLayout) -> None:
        """Say that the shard is done."""
        storage.write_json(unit.marker(self.shard), asdict(self))

    @classmethod
    def read(cls, unit: UnitLayout, shard: int) -> Marker | None:
        """A shard's marker; None where there is none, or a damaged one."""
        try:
            stored: dict[str, Any] | None = storage.read_json_if_exists(unit.marker(shard))
            if stored is None:
                return None
            return cls(**stored | {"scoring": Provenance(**stored["scoring"])})
        except (TypeError, KeyError):
            return None


@dataclass
class MarkerSummary:
    """What a unit's markers add up to. images: of each shard, 0 for those that are missing.

    key: a hash of all scores, as the markers name them.
    """

    images: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    errors: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    scorings: set[Provenance] = field(default_factory=set)
    precision: dict[str, Any] | None = None
    key: str = ""

    @classmethod
    def of(cls, unit: UnitLayout, shards: int) -> MarkerSummary:
        """Read the markers of a unit with so many shards."""
        tally, digest = cls(), hashlib.sha256()
        for shard, marker in enumerate(_read_all(unit, shards)):
            tally.images.append(marker.images if marker else 0)
            if marker is None:
                tally.missing.append(shard)
                continue
            tally.errors += marker.errors
            tally.reasons.update(marker.reasons)
            tally.retries += marker.retries
            tally.scorings.add(marker.scoring)
            tally.precision = tally.precision or marker.precision
            digest.update(marker.sha256["scores"].encode())
        tally.key = digest.hexdigest()
        return tally


def _read_all(unit: UnitLayout, shards: int) -> Iterator[Marker | None]:
    """In order; some at a time, because a run may have very many."""
    with ThreadPoolExecutor(READERS) as readers:
        for start in range(0, shards, 1024):
            some = range(start, min(start + 1024, shards))
            yield from readers.map(lambda shard: Marker.read(unit, shard), some)
