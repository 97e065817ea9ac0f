"""Evaluates variants on Ray: all of them in the same four passes over a unit's scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core import Floats, Positives, Reached, Scores
from sparc_dist.core.average_precision import average_precision
from sparc_dist.core.variants import Each, Variant, Variants
from sparc_dist.datasets import chunks
from sparc_dist.experiments.score_view import ScoreView
from sparc_dist.pipeline.executor import get, share, submit
from sparc_dist.pipeline.passes import ShardGroup, total
from sparc_dist.pipeline.unit import Unit
from sparc_dist.runs import UnitShards

#: Images per slice; small, because each has final scores under all variants.
ROWS = 512
#: Slices whose final scores are ranked together.
SLICES = 8


def evaluate_variants(
    unit: Unit, variants: Variants, view: Any
) -> dict[Variant, list[float | None]]:
    """Returns the AP of every class under every variant. view: a reference to a ``ScoreView``.

    A worker holds the scores of all positives under all variants: 4 bytes × labels × variants.
    """
    passes, watch, shards = unit.passes(), unit.stages, unit.shards
    shared = (share(variants), view)  # sent once, not with every task
    moments = passes.merged("variant_moments", watch, partial(_moments, shards), *shared)
    scatters = passes.merged(
        "variant_scatters", watch, partial(_scatters, shards), *shared, moments
    )
    fitted = (*shared, moments, submit(Variants.weights, shared[0], scatters))
    positives = passes.merged("variant_positives", watch, partial(_positives, shards), *fitted)
    counted = (*fitted, positives)
    reached = passes.merged("variant_reached", watch, partial(_reached, shards), *counted)
    job = submit(average_precision, positives, reached)
    aps = get(job, passes.limit, "The last step of the variants")
    width = len(unit.data.bank.classes)
    return {
        variant: aps[i * width : (i + 1) * width] for i, variant in enumerate(variants.variants)
    }


def _moments(shards: UnitShards, group: ShardGroup, variants: Variants, view: ScoreView) -> Each:
    found: Each = total(variants.moments(scores) for _, _, scores in _slices(shards, group, view))
    return found


def _scatters(
    shards: UnitShards, group: ShardGroup, variants: Variants, view: ScoreView, moments: Each
) -> Each:
    parts = _slices(shards, group, view)
    found: Each = total(variants.scatters(scores, moments) for _, _, scores in parts)
    return found


@dataclass(frozen=True)
class _Fitted:
    """Fitted variants, which compute the final scores of the labelled images of a group."""

    shards: UnitShards
    variants: Variants
    view: ScoreView
    moments: Each
    weights: list[list[Floats]]

    def final(self, group: ShardGroup) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """Yields final scores and labels (n, variants · N) of several slices at a time.

        The ranking that follows takes almost the same time for few images as for many.
        """
        for parts in chunks(self._slices(group), SLICES):
            scores, labels = zip(*parts, strict=True)
            yield np.concatenate(scores), np.concatenate(labels)

    def _slices(self, group: ShardGroup) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        for shard, ids, scores in _slices(self.shards, group, self.view):
            labelled, labels = self.shards.labels(shard, ids)
            final = self.variants.final(scores, self.moments, self.weights)[labelled]
            final = final[:, :, : labels.shape[1]]  # without background classes
            tiled = np.tile(labels[labelled], (1, len(self.variants.variants)))
            yield final.reshape(tiled.shape), tiled


def _positives(shards: UnitShards, group: ShardGroup, *fitted: Any) -> Positives:
    final = _Fitted(shards, *fitted).final(group)
    found: Positives = total(Positives.of(scores, labels) for scores, labels in final)
    return found


def _reached(shards: UnitShards, group: ShardGroup, *counted: Any) -> Reached:
    *fitted, positives = counted
    final = _Fitted(shards, *fitted).final(group)
    found: Reached = total(Reached.of(scores, positives) for scores, _ in final)
    return found


def _slices(
    shards: UnitShards, group: ShardGroup, view: ScoreView
) -> Iterator[tuple[int, list[str], Scores]]:
    """Yields (shard, ids, scores) of up to ``ROWS`` images at a time."""
    for shard in group.shards:
        for ids, scores in view.slices(shards, shard, ROWS):
            yield shard, ids, scores
