"""The contrast of a class on Ray: one pass over a unit's scores, summed up on a worker."""

from __future__ import annotations

from functools import partial
from typing import Any

from sparc_dist.core.contrast import Contrast, Example, Histograms
from sparc_dist.fusion_file import read_fusion
from sparc_dist.pipeline.passes import Group, remote, total
from sparc_dist.pipeline.unit import Unit
from sparc_dist.pipeline.waiting import result
from sparc_dist.shards import UnitShards


def contrast(unit: Unit, index: int) -> tuple[Histograms, tuple[Example, Example] | None]:
    """Of the class ``index``: histograms, and the pair that the first max misorders."""
    passes = unit.passes()
    whole = passes.merged("contrast", unit.stages.watch, partial(_contrast, unit.shards, index))
    found: tuple[Histograms, tuple[Example, Example] | None] = result(
        remote(_sum_up).remote(whole), passes.limit, "The contrast of a class"
    )
    return found


def _contrast(shards: UnitShards, index: int, group: Group) -> Contrast:
    fusion = read_fusion(shards.unit.fusion)

    def of(shard: int) -> Contrast:
        ids, scores = shards.scores(shard)
        names = ids.to_pylist()
        labelled, labels = shards.labels(shard, names)
        places = [(shard, name) for name in names]
        return Contrast.of(places, scores, labels[:, index], index, fusion).only(labelled)

    found: Contrast = total(map(of, group.shards))
    return found


def _sum_up(whole: Contrast) -> Any:
    return whole.histograms(), whole.misordered()
