"""gallery.npz: which images of a unit a report shows, and the counts that it draws."""

from __future__ import annotations

from sparc_dist.core import ShownState
from sparc_dist.runs import reduce_checkpoints
from sparc_dist.runs.layout import UnitLayout

#: The key of the state, which depends on nothing but its unit.
KEY = "gallery"


def write_gallery(unit: UnitLayout, gallery: ShownState) -> None:
    """Writes the merged state of all shards."""
    reduce_checkpoints.save(unit.gallery, KEY, gallery)


def read_gallery(unit: UnitLayout) -> ShownState | None:
    """Returns the state; None if it is missing or damaged."""
    found = reduce_checkpoints.load(unit.gallery, KEY, ShownState)
    return None if found is None else found[0]
