"""Markers: written last, a shard's marker says that it is scored, with what, and its files' hashes.

A shard without a marker is not scored: nothing is ever listed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sparc_dist import storage
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

    reasons: the number of errors of each kind. sha256: of its files "scores" and "errors". passing:
    the number of errors that may pass. retries: the number of repeated requests to the store.
    seconds: per step. input: the images that the model takes. checkpoint: the SHA-256 of the file
    with its weights and, if it is from the hub, its revision. precision: only of the first shard,
    how far scores in less than float32 differ from float32. debiased: mean and deviations of the
    debiased singleton scores, where a labeler was applied.
    """

    shard: int
    images: int
    errors: int
    reasons: dict[str, int]
    sha256: dict[str, str]
    scoring: Provenance
    passing: int
    retries: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    input: dict[str, Any] | None = None
    checkpoint: dict[str, str] | None = None
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
            return None if stored is None else cls.of(stored)
        except (TypeError, KeyError):
            return None

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Marker:
        """Returns the marker that was stored as JSON."""
        return cls(**stored | {"scoring": Provenance(**stored["scoring"])})
