"""Variants: many ways to debias and fuse the same scores, computed in the same passes.

The passes are those of ``core.sparc`` and ``core.duo``. Whatever variants have in common is
computed once: the debiased scores of an image, the sorted scores of a class, the scatter of its
ranks, the views of duo.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core import (
    Duo,
    DuoOptions,
    Floats,
    Mentions,
    Method,
    Moments,
    Positives,
    Reached,
    Scatter,
    Scores,
    States,
    Views,
    merge,
)
from sparc_dist.core.average_precision import average_precision
from sparc_dist.core.debias import debias_compound, debias_prompts, debias_singleton
from sparc_dist.core.duo import DuoMoments, ViewProducts
from sparc_dist.core.fusion import without_rival
from sparc_dist.core.sparc import rank_weights
from sparc_dist.datasets import chunks
from sparc_dist.pipeline.executor import get, share, submit
from sparc_dist.pipeline.passes import Passes, ShardGroup, total
from sparc_dist.pipeline.unit import Unit
from sparc_dist.research.score_view import STORED, ScoreView
from sparc_dist.runs import UnitShards

#: The names of scores that are not debiased, and of compound prompts in moments, by their scaling.
RAW = "raw"
COMPOUND = {"full": "compound", "sqrt": "compound, sqrt"}
#: Images per slice; small, because each has final scores under all variants.
ROWS = 512
#: Slices whose final scores are ranked together.
SLICES = 8

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Variant:
    """One way to compute final scores.

    prompts: the name of a set of compound prompts. debias: whether scores are debiased, or fused
    raw.
    """

    method: Method = field(default_factory=Method)
    prompts: str = STORED
    debias: bool = True

    @property
    def debiasing(self) -> str:
        """A key that variants with the same debiased scores share."""
        return self.method.image_debias if self.debias else RAW

    @property
    def compound(self) -> str:
        """A key that variants with the same compound scores share."""
        if not self.debias:
            return RAW
        return "sqrt" if self.method.image_debias == "sqrt" else "full"


#: The three columns of every report.
ZSCLIP = Variant(Method("singleton", merge=False), debias=False)
DEBIASED = Variant(Method("singleton", merge=False))
SPARC = Variant()


@dataclass(frozen=True)
class Variants:
    """Variants of SPARC and of duo on the same scores.

    mentions: for each set of prompts and each class, the columns of the compound scores that are in
    the set and mention the class. duo: variants of duo, which use the stored prompts.
    """

    variants: tuple[Variant, ...]
    mentions: Mapping[str, Mentions]
    duo: tuple[DuoOptions, ...] = ()

    def __len__(self) -> int:
        return len(self.variants) + len(self.duo)

    def moments(self, scores: Scores) -> States[Any]:
        """Pass 1: returns the moments of prompts, for each way in which they are debiased."""
        modes = {variant.debiasing for variant in self.variants if variant.debias}
        found: dict[Any, Any] = {
            mode: Moments.of(_singleton(scores, mode)) for mode in sorted(modes)
        }
        for scaling in sorted({v.compound for v in self.variants if v.debias}):
            debiased = debias_compound(scores, scaling)  # type: ignore[arg-type]
            found[COMPOUND[scaling]] = Moments.of(debiased)
        for scale in dict.fromkeys(options.scaling for options in self.duo):
            found["duo", scale] = DuoMoments.of(scores, scale)
        return States(found)

    def products(self, scores: Scores, moments: States[Any]) -> States[Any]:
        """Pass 2: returns the scatter of each class's ranks, if used, and the products of views."""
        ranked = [variant for variant in self.variants if _needs_ranks(variant)]
        found: dict[Any, Any] = {
            (variants[0].debiasing, variants[0].prompts, index): Scatter.of(rows)
            for variants, index, rows in self._ranks(scores, moments, ranked)
        }
        for key, views in self._views(moments).items():
            found[key] = ViewProducts.of(scores, views)
        return States(found)

    def fit(self, moments: States[Any], products: States[Any]) -> Fitted:
        """Returns the fitted variants for the merged states."""
        views = self._views(moments)
        duo = [
            Duo.of(moments["duo", o.scaling], products[_key(o)], views[_key(o)], o)
            for o in self.duo
        ]
        return Fitted(self, moments, [self._weights(v, products) for v in self.variants], duo)

    def _weights(self, variant: Variant, products: States[Any]) -> list[Floats]:
        """Returns the weights of a variant: per class, (1 + m_i,)."""
        method, ranked = variant.method, _needs_ranks(variant)
        return [
            rank_weights(
                method,
                len(columns),
                products[variant.debiasing, variant.prompts, index] if ranked else None,
            )
            for index, columns in enumerate(self.mentions[variant.prompts])
        ]

    def _views(self, moments: States[Any]) -> dict[tuple[str, float], Views]:
        """Returns the views that variants of duo share."""
        return {
            _key(o): moments["duo", o.scaling].views(self.mentions[STORED], o) for o in self.duo
        }

    def _ranks(
        self, scores: Scores, moments: States[Any], variants: Sequence[Variant]
    ) -> Iterator[tuple[list[Variant], int, Floats]]:
        """Yields the vectors (n, 1 + m_i) of each class, with the variants that share them.

        Sorting is most of the work and does not depend on how the singleton is debiased.
        """
        members: dict[tuple[str, str], dict[str, list[Variant]]] = {}
        for variant in variants:
            modes = members.setdefault((variant.compound, variant.prompts), {})
            modes.setdefault(variant.debiasing, []).append(variant)
        singleton = {
            mode: _standardised(_singleton(scores, mode), mode, moments)
            for mode in {variant.debiasing for variant in variants}
        }
        compound = {
            name: _compounds(scores, name, moments) for name in {v.compound for v in variants}
        }
        for (name, prompts), modes in members.items():
            for index, columns in enumerate(self.mentions[prompts]):
                # Unlike an index, ``take`` keeps an image's scores side by side: it sorts faster.
                taken = np.take(compound[name], columns, axis=1).astype(np.float64)
                ranked = np.sort(taken, axis=1)[:, ::-1]
                for mode, sharing in modes.items():
                    yield sharing, index, np.column_stack([singleton[mode][:, index], ranked])


@dataclass(frozen=True)
class Fitted:
    """Fitted variants. weights: of each variant and class. duo: the fitted variants of duo."""

    variants: Variants
    moments: States[Any]
    weights: list[list[Floats]]
    duo: list[Duo]

    def final(self, scores: Scores) -> Float32:
        """Pass 3: returns the final scores (n, variants, N), as float32; those of duo last."""
        ranked = self.variants.variants
        final = np.empty((len(scores), len(self.variants), scores.singleton.shape[1]), np.float32)
        position = {variant: index for index, variant in enumerate(ranked)}
        for variants, index, rows in self.variants._ranks(scores, self.moments, ranked):
            positions = [position[variant] for variant in variants]
            fused = rows @ np.stack([self.weights[member][index] for member in positions], axis=1)
            merged = np.array([variant.method.merge for variant in variants])
            final[:, positions, index] = np.where(merged, merge(rows[:, :1], fused), fused)
        for index, variant in enumerate(ranked):
            if variant.method.rival:
                final[:, index] = without_rival(final[:, index], variant.method.rival)
        views = {_key(duo.options): duo.views for duo in self.duo}
        parts = {key: shared.of_images(scores) for key, shared in views.items()}
        for index, duo in enumerate(self.duo, start=len(ranked)):
            final[:, index] = duo.weigh(parts[_key(duo.options)])[1]
        return final


def _needs_ranks(variant: Variant) -> bool:
    """Whether the weights depend on the data, so that they need the scatters of ranks."""
    return variant.method.strategy == "max-variance"


def _key(options: DuoOptions) -> tuple[str, float]:
    """Returns a key that variants of duo with the same views share."""
    return options.scaling, options.shrinkage


def _singleton(scores: Scores, mode: str) -> Floats:
    """Returns the singleton scores (n, N) after the image-level step."""
    return debias_singleton(scores, "none" if mode == RAW else mode)  # type: ignore[arg-type]


def _compounds(scores: Scores, scaling: str, moments: States[Any]) -> NDArray[np.floating]:
    """Returns the compound scores (n, P) after both steps, or raw."""
    if scaling == RAW:
        return scores.compound
    debiased = debias_compound(scores, scaling)  # type: ignore[arg-type]
    return _standardised(debiased, COMPOUND[scaling], moments)


def _standardised(values: Floats, name: str, moments: States[Any]) -> Floats:
    """Returns the values after the prompt-level step, or unchanged if they stay raw."""
    return values if name == RAW else debias_prompts(values, moments[name])


def evaluate_variants(
    unit: Unit, variants: Variants, view: Any
) -> dict[Variant, list[float | None]]:
    """Returns the AP of every class under every variant. view: a reference to a ``ScoreView``.

    A worker holds the scores of all positives under all variants: 4 bytes × labels × variants.
    """
    passes, watch = unit.passes(), unit.stages
    shared = (view, fitted_variants(unit, passes, variants, view))
    positives = passes.merged("variant_positives", watch, partial(_positives, unit.shards), *shared)
    reached = passes.merged(
        "variant_reached", watch, partial(_reached, unit.shards), *shared, positives
    )
    job = submit(average_precision, positives, reached)
    aps = get(job, passes.limit, "The last step of the variants")
    width = len(unit.data.bank.classes)
    return {
        variant: aps[i * width : (i + 1) * width] for i, variant in enumerate(variants.variants)
    }


def fitted_variants(unit: Unit, passes: Passes, variants: Variants, view: Any) -> Any:
    """Fits all variants in two passes; returns a reference to a ``Fitted``."""
    watch, shards = unit.stages, unit.shards
    shared = (view, share(variants))  # sent once, not with every task
    moments = passes.merged("variant_moments", watch, partial(_moments, shards), *shared)
    work = partial(_products, shards)
    products = passes.merged("variant_products", watch, work, *shared, moments)
    return submit(Variants.fit, shared[1], moments, products)


def _moments(
    shards: UnitShards, group: ShardGroup, view: ScoreView, variants: Variants
) -> States[Any]:
    found: States[Any] = total(
        variants.moments(scores) for _, _, scores in _slices(shards, group, view)
    )
    return found


def _products(
    shards: UnitShards, group: ShardGroup, view: ScoreView, variants: Variants, moments: States[Any]
) -> States[Any]:
    parts = _slices(shards, group, view)
    found: States[Any] = total(variants.products(scores, moments) for _, _, scores in parts)
    return found


def _positives(shards: UnitShards, group: ShardGroup, view: ScoreView, fitted: Fitted) -> Positives:
    final = _labelled(shards, group, view, fitted)
    found: Positives = total(Positives.of(scores, labels) for scores, labels in final)
    return found


def _reached(
    shards: UnitShards, group: ShardGroup, view: ScoreView, fitted: Fitted, positives: Positives
) -> Reached:
    final = _labelled(shards, group, view, fitted)
    found: Reached = total(Reached.of(scores, positives) for scores, _ in final)
    return found


def _labelled(
    shards: UnitShards, group: ShardGroup, view: ScoreView, fitted: Fitted
) -> Iterator[tuple[Float32, NDArray[np.bool_]]]:
    """Yields final scores and labels (n, variants · N) of labelled images in several slices.

    The ranking that follows takes almost the same time for few images as for many.
    """

    def final(part: tuple[int, list[str], Scores]) -> tuple[Float32, NDArray[np.bool_]]:
        shard, ids, scores = part
        labelled, labels = shards.labels(shard, ids)
        columns = fitted.final(scores)[labelled, :, : labels.shape[1]]  # no background classes
        tiled = np.tile(labels[labelled], (1, len(fitted.variants)))
        return columns.reshape(tiled.shape), tiled

    for parts in chunks(map(final, _slices(shards, group, view)), SLICES):
        scores, labels = zip(*parts, strict=True)
        yield np.concatenate(scores), np.concatenate(labels)


def _slices(
    shards: UnitShards, group: ShardGroup, view: ScoreView
) -> Iterator[tuple[int, list[str], Scores]]:
    """Yields (shard, ids, scores) of up to ``ROWS`` images at a time."""
    for shard in group.shards:
        for ids, scores in view.slices(shards, shard, ROWS):
            yield shard, ids, scores
