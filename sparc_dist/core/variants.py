"""Variants: many ways to debias and fuse the same scores, computed in the same passes.

The passes are those of ``core.sparc``. Whatever variants have in common is computed once: the
debiased scores of an image, the sorted scores of a class, the scatter of its ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.debias import Scores, debias_compound, debias_prompts, debias_singleton
from sparc_dist.core.duo import (
    Duo,
    DuoOptions,
    DuoPromptState,
    DuoViewState,
    finish_duo,
    without_rival,
)
from sparc_dist.core.fusion import Method, merge, rank_weights
from sparc_dist.core.moments import Floats, Moments, Scatter
from sparc_dist.core.order_statistics import Mentions, descending
from sparc_dist.core.sparc import needs_ranks

#: The name of the compound prompts that a run was scored with.
STORED = "stored"
#: The names of scores that are not debiased, and of compound prompts in moments, by their scaling.
RAW = "raw"
COMPOUND = {"full": "compound", "sqrt": "compound, sqrt"}


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
        return _compound(self.method.image_debias) if self.debias else RAW


#: The three columns of every report.
ZSCLIP = Variant(Method("singleton", merge=False), debias=False)
DEBIASED = Variant(Method("singleton", merge=False))
SPARC = Variant()


@dataclass(frozen=True)
class Each:
    """States by name; ``+`` merges those of the same name."""

    states: Mapping[Any, Any]

    def __add__(self, other: Each) -> Each:
        return Each({name: add(state, other[name]) for name, state in self.states.items()})

    def __getitem__(self, name: Any) -> Any:
        return self.states[name]


@dataclass(frozen=True)
class Variants:
    """Variants on the same scores.

    mentions: for each set of prompts and each class, the columns of the compound scores that are in
    the set and mention the class.
    """

    variants: tuple[Variant, ...]
    mentions: Mapping[str, Mentions]

    def moments(self, scores: Scores) -> Each:
        """Pass 1: returns the moments of compound prompts, and of singletons per debiasing."""
        modes = {variant.debiasing for variant in self.variants if variant.debias}
        found = {mode: Moments.of(_singleton(scores, mode)) for mode in sorted(modes)}
        scalings = {v.compound for v in self.variants if v.debias}
        kinds = {COMPOUND[s]: Moments.of(debias_compound(scores, s)) for s in sorted(scalings)}  # type: ignore[arg-type]
        return Each(found | kinds)

    def scatters(self, scores: Scores, moments: Each) -> Each:
        """Pass 2: returns the scatter of each class's ranks, if some variant's weights need it."""
        ranked = [variant for variant in self.variants if needs_ranks(variant.method)]
        return Each(
            {
                (variants[0].debiasing, variants[0].prompts, index): Scatter.of(rows)
                for variants, index, rows in self._ranks(scores, moments, ranked)
            }
        )

    def weights(self, scatters: Each) -> list[list[Floats]]:
        """Returns the weights of each variant: per class, (1 + m_i,)."""
        return [
            [
                rank_weights(
                    variant.method,
                    len(columns),
                    scatters[variant.debiasing, variant.prompts, index]
                    if needs_ranks(variant.method)
                    else None,
                )
                for index, columns in enumerate(self.mentions[variant.prompts])
            ]
            for variant in self.variants
        ]

    def final(
        self, scores: Scores, moments: Each, weights: list[list[Floats]]
    ) -> NDArray[np.float32]:
        """Pass 3: returns the final scores of every variant (n, variants, N), as float32."""
        final = np.empty((len(scores), len(self.variants), scores.singleton.shape[1]), np.float32)
        position = {variant: index for index, variant in enumerate(self.variants)}
        for variants, index, rows in self._ranks(scores, moments, self.variants):
            positions = [position[variant] for variant in variants]
            fused = rows @ np.stack([weights[member][index] for member in positions], axis=1)
            merged = np.array([variant.method.merge for variant in variants])
            final[:, positions, index] = np.where(merged, merge(rows[:, :1], fused), fused)
        for index, variant in enumerate(self.variants):
            if variant.method.rival:
                final[:, index] = without_rival(final[:, index], variant.method.rival)
        return final

    def _ranks(
        self, scores: Scores, moments: Each, variants: Sequence[Variant]
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
                ranked = descending(compound[name], columns)
                for mode, sharing in modes.items():
                    yield sharing, index, np.column_stack([singleton[mode][:, index], ranked])


def _singleton(scores: Scores, mode: str) -> Floats:
    """Returns the singleton scores (n, N) after the image-level step."""
    return debias_singleton(scores, "none" if mode == RAW else mode)  # type: ignore[arg-type]


def _compound(mode: str) -> str:
    """Returns how compound scores are scaled where singletons are debiased so."""
    return "sqrt" if mode == "sqrt" else "full"


def _compounds(scores: Scores, scaling: str, moments: Each) -> NDArray[np.floating]:
    """Returns the compound scores (n, P) after both steps, or raw."""
    if scaling == RAW:
        return scores.compound
    debiased = debias_compound(scores, scaling)  # type: ignore[arg-type]
    return _standardised(debiased, COMPOUND[scaling], moments)


def _standardised(values: Floats, name: str, moments: Each) -> Floats:
    """Returns the values after the prompt-level step, or unchanged if they stay raw."""
    return values if name == RAW else debias_prompts(values, moments[name])


@dataclass(frozen=True)
class DuoVariants:
    """Variants of duo on the same scores; those with the same views share them."""

    variants: tuple[DuoOptions, ...]
    mentions: Mentions

    def moments(self, scores: Scores) -> Each:
        """Pass 1: returns the moments of prompts for each scaling."""
        scalings = dict.fromkeys(options.scaling for options in self.variants)
        return Each({scaling: DuoPromptState.of(scores, scaling) for scaling in scalings})

    def products(self, scores: Scores, moments: Each) -> Each:
        """Pass 2: returns the products of views, for each kind of views."""
        views = {_views(options): options for options in self.variants}
        return Each(
            {
                key: DuoViewState.of(scores, moments[key[0]].views(self.mentions, options))
                for key, options in views.items()
            }
        )

    def fit(self, moments: Each, products: Each) -> list[Duo]:
        """Returns the fitted model of each variant."""
        views = {
            _views(options): moments[options.scaling].views(self.mentions, options)
            for options in self.variants
        }
        return [
            finish_duo(moments[o.scaling], products[_views(o)], views[_views(o)], o)
            for o in self.variants
        ]


def _views(options: DuoOptions) -> tuple[str, float]:
    """Returns a key that variants of duo with the same views share."""
    return options.scaling, options.shrinkage


def duo_final(fitted: Sequence[Duo], scores: Scores) -> NDArray[np.float32]:
    """Pass 3: returns the final scores of variants of duo (n, variants, N), as float32."""
    parts: dict[tuple[str, float], tuple[Floats, Floats, Floats]] = {}
    finals = []
    for duo in fitted:
        key = _views(duo.options)
        if key not in parts:
            parts[key] = duo.views.of_images(scores)
        finals.append(duo.weigh(parts[key])[1].astype(np.float32))
    return np.stack(finals, axis=1)
