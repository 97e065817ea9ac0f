"""Growth: a run's list of images follows its data set; new images become new shards at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets.changes import Comparison, ImageChanges
from sparc_dist.datasets.images import in_shards, stored_shards, write_parts
from sparc_dist.runs import DatasetLayout, UnitLayout
from sparc_dist.runs.removal import drop_images
from sparc_dist.runs.results import FITTING, LABELLING, read_dataset_facts, reopen
from sparc_dist.runs.shards import images_sha256, shard_sizes


@dataclass(frozen=True)
class Growth:
    """How a list grows.

    drops: whether images that were removed leave the run, and changed ones are read again. applies:
    whether the labeler of the run labels new images; otherwise all images are fitted again.
    """

    shard_size: int
    drops: bool
    applies: bool


def grow(
    dataset: DatasetConfig, layout: DatasetLayout, units: Sequence[UnitLayout], how: Growth
) -> ImageChanges:
    """Lists the images again and writes the changes; returns them. units: of all backbones."""
    facts = read_dataset_facts(layout) or {}
    comparison = Comparison(dataset, layout)
    changes = comparison.changes
    refits = "applied_from" in facts and not how.applies
    grows = changes.new or (how.drops and changes)
    for unit in units if grows or refits else ():
        # If this is interrupted, the next start goes on in the same way.
        reopen(unit, LABELLING if how.applies else FITTING)
    if grows:
        if how.drops:
            _drop(comparison, layout, units)
        _rewrite(comparison, layout, how)
    sha256 = images_sha256(layout, len(shard_sizes(layout)))
    if refits or sha256 != facts["images_sha256"]:  # changed now, or by an interrupted start
        applied_from = facts.pop("applied_from", facts["shards"])
        earlier = {*facts.get("earlier", []), facts["images_sha256"]}
        facts |= {**_counts(layout), "images_sha256": sha256, "earlier": sorted(earlier)}
        facts |= {"applied_from": applied_from} if how.applies else {}
        storage.write_json(layout.marker, facts)
    return changes


def _drop(comparison: Comparison, layout: DatasetLayout, units: Sequence[UnitLayout]) -> None:
    """Removes images from the results of all units."""
    for shard, rows in enumerate(stored_shards(layout)):
        gone = rows.filter(pa.array(comparison.gone(rows)))["image_id"].to_pylist()
        for unit in units if gone else ():
            drop_images(unit, shard, gone)


def _rewrite(comparison: Comparison, layout: DatasetLayout, how: Growth) -> None:
    """Writes the list again: the old shards, then the new ones."""

    def shards() -> Iterator[pa.Table]:
        for rows in stored_shards(layout):
            yield rows.filter(pa.array(~comparison.gone(rows))) if how.drops else rows
        yield from in_shards(comparison.added(with_changed=how.drops), [how.shard_size])

    # A shard keeps its part, which is replaced when all of it has been read.
    write_parts(shards(), layout)


def _counts(layout: DatasetLayout) -> dict[str, Any]:
    """Returns the counts of dataset.json."""
    sizes = shard_sizes(layout)
    labelled = sum(len(rows) - rows["labels"].null_count for rows in stored_shards(layout))
    return {"images": sum(sizes), "labelled": labelled, "shards": len(sizes)}
