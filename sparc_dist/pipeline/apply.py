"""Applying a labeler: what is said about new images."""

from __future__ import annotations

from typing import Any

from sparc_dist.core import Moments, ShownState, drift
from sparc_dist.core.drift import LARGE
from sparc_dist.pipeline.executor import get, share, submit
from sparc_dist.pipeline.passes import Passes, ShardGroup, Watch, total
from sparc_dist.runs import UnitShards
from sparc_dist.runs.gallery_file import write_gallery
from sparc_dist.runs.labeler_file import FittedLabeler


def make_gallery(passes: Passes, shards: UnitShards, labeler: FittedLabeler, watch: Watch) -> None:
    """Writes the gallery of a unit whose labels are written already, in a pass over final scores.

    It is not stored by shard: a shard may lose images later, and one pass is as quick as others.
    """
    chosen = passes.merged("gallery", watch, _chosen, shards, share(labeler))
    get(submit(write_gallery, shards.unit, chosen), passes.limit, "Writing the gallery")


def _chosen(group: ShardGroup, shards: UnitShards, labeler: FittedLabeler) -> ShownState:
    """Returns the state of a group."""
    rule = labeler.decisions[labeler.primary]

    def of(shard: int) -> ShownState:
        ids, final = shards.final(shard)
        z = rule.standardise(*final.columns(labeler.primary))
        truth = shards.labels(shard, ids)
        return ShownState.of(shard, ids, z, labeler.judge(final)[1], truth)

    found: ShownState = total(of(shard) for shard in group.shards)
    return found


def applied_facts(labeler: FittedLabeler, debiased: Moments | None) -> dict[str, Any]:
    """Returns the entries of metrics.json about a labeler and how well new images suit it."""
    moved = None if debiased is None else drift(debiased, labeler.images)
    notes = []
    if moved is not None and moved > LARGE:
        notes.append(
            f"The images differ from the {labeler.images:,} that the labeler was fitted on: prompt "
            f"means moved by {moved:.1f} SDs, and above {LARGE:g} probabilities cannot be trusted; "
            "fit a labeler on such images."
        )
    return {"fitted_on": labeler.images, "drift": moved, "notes": notes}
