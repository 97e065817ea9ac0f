"""Removal: takes images out of the stored results of a shard, or shards out of those of a unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from sparc_dist import storage
from sparc_dist.runs.layout import SEGMENT, UnitLayout
from sparc_dist.runs.markers import Marker, forget
from sparc_dist.runs.results import reopen
from sparc_dist.runs.shards import error_kind


def drop_images(unit: UnitLayout, shard: int, ids: Sequence[str]) -> None:
    """Removes images from all tables of a shard, and from its marker, which is written last."""
    marker = Marker.read(unit, shard)
    if marker is None:
        return  # it is still to be scored
    forget(unit, shard)
    gone = pa.array(ids, pa.string())
    tables: dict[str, pa.Table] = {}
    written: dict[str, str] = {}
    for name in ("scores", "errors", "final", "labels", "wide_labels"):
        url: str = getattr(unit, name)(shard)
        if name not in marker.sha256 and storage.is_missing(url):
            continue  # not kept, or not yet computed
        table = storage.read_table(url)
        tables[name] = table.filter(pc.invert(pc.is_in(table["image_id"], gone)))
        written[name] = storage.write_table(url, tables[name])
    if "labels" in marker.sha256:  # which has the hashes of both tables
        written["labels"] += f" {written['wide_labels']}"
    hashes = {name: written.get(name, sha256) for name, sha256 in marker.sha256.items()}
    reasons = Counter(map(error_kind, tables["errors"]["error"].to_pylist()))
    images = len(tables["scores"] if "scores" in tables else tables["final"])
    # What is known of the drift is that of all its images, and goes with the first removed one.
    left = replace(marker, images=images, errors=len(tables["errors"]), reasons=dict(reasons))
    passing = sum(tables["errors"]["passing"].to_pylist())
    replace(left, passing=passing, sha256=hashes, debiased=None).write(unit)


def drop_shards(unit: UnitLayout, shards: Sequence[int], why: str) -> None:
    """Makes shards unscored, and before that the unit unfinished, so that they are scored again.

    Nothing is deleted: a run needs no right to do so.
    """
    reopen(unit, why)
    for shard in {shard // SEGMENT: shard for shard in shards}.values():
        forget(unit, shard)
    for shard in shards:
        storage.write_json(unit.marker(shard), {"dropped": why})  # which is no marker
