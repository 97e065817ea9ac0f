"""Duo: a fusion of what a class's own prompt and its compound prompts show, without sorting.

pass 1   image step → moments of every prompt                  merge: 2 (N + B + P) numbers
pass 2   prompt step → three views → their products            merge: 9 (N + B) numbers
pass 3   prompt step → three views → weigh them, minus rival   → final scores

Columns are the N classes, then B background classes: they are scored, serve as partners and rivals,
and are not reported. Without background, B is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.debias import Scores
from sparc_dist.core.moments import Floats, Moments
from sparc_dist.core.order_statistics import Mentions
from sparc_dist.core.shrinkage import PSEUDO_IMAGES
from sparc_dist.core.states import State
from sparc_dist.core.views import MIN_COLUMNS, Scaling, Views, flat_images, image_step

_Float = TypeVar("_Float", bound=np.floating[Any])

#: The share of an image's highest score that is taken off all its scores.
RIVAL = 0.2


@dataclass(frozen=True)
class DuoOptions:
    """The parts of duo, each of which can be switched off.

    shrinkage: number of pseudo-images in the statistics of prompts and views. rival: the share of
    an image's highest score that is taken off all its scores. scaling: what the image step divides
    by. partners: whether what partners explain is taken off the compounds.
    """

    shrinkage: float = PSEUDO_IMAGES
    rival: float = RIVAL
    scaling: Scaling = "sqrt"
    partners: bool = True

    #: A config validates its section against this class; an unknown key there is an error.
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    def __post_init__(self) -> None:
        if not 0 <= self.shrinkage < float("inf"):
            raise ValueError(f"shrinkage is {self.shrinkage}; it must be at least 0 and finite")
        if not 0 <= self.rival < 1:
            raise ValueError(f"rival is {self.rival}; it must be at least 0 and below 1")
        if self.scaling not in get_args(Scaling):
            raise ValueError(
                f"scaling is {self.scaling!r}; choose one of {', '.join(get_args(Scaling))}"
            )


@dataclass(frozen=True)
class DuoPromptState(State):
    """The state of pass 1: the moments of N + B singletons and P compounds, and the flat images."""

    singleton: Moments
    compound: Moments
    flat_images: int

    @classmethod
    def of(cls, scores: Scores, scaling: Scaling = "sqrt") -> DuoPromptState:
        """Returns the state of one shard."""
        singleton, compound = image_step(scores, scaling)
        return cls(Moments.of(singleton), Moments.of(compound), flat_images(scores))

    def views(self, mentions: Mentions, options: DuoOptions) -> Views:
        """Returns the views for pass 2. The state must be the merged one."""
        constants = (options.shrinkage, options.scaling)
        return Views.of(self.singleton, self.compound, mentions, *constants)


@dataclass(frozen=True)
class DuoViewState(State):
    """The state of pass 2: the sums over images of products of each column's views, uncentred.

    products: (N + B, 3, 3)
    """

    count: int
    products: Floats

    @classmethod
    def of(cls, scores: Scores, views: Views) -> DuoViewState:
        """Returns the state of one shard."""
        parts = views.of_images(scores)
        products = np.empty((len(views.mentions), 3, 3))
        for i, j in combinations_with_replacement(range(3), 2):
            products[:, i, j] = products[:, j, i] = np.einsum("ni,ni->i", parts[i], parts[j])
        return cls(len(scores), products)


def view_weights(state: DuoViewState, counts: Floats, options: DuoOptions) -> Floats:
    """Returns the weights of each column's three views (N + B, 3). counts: m_i, (N + B,)."""
    products = _shrunk_products(state, counts, options.shrinkage)
    weights = np.zeros((len(counts), 3))
    weights[:, 0] = 1.0
    second = np.zeros_like(weights)
    second[:, 1] = 1.0
    if options.partners:
        second[:, 2] = -_leakage(products) / (counts + 1)
    size = _size(second, products)
    used = (counts > 0) & (size > 1e-6)
    share = np.divide(counts, (counts + 1) * size, out=np.zeros_like(size), where=used)
    weights += share[:, None] * second
    size = _size(weights, products)
    # Where nothing varies the size is 0; the scores then are 0 with any weights.
    return np.asarray(weights / np.where(size > 0, size, 1.0)[:, None])


def _shrunk_products(state: DuoViewState, counts: Floats, shrinkage: float) -> Floats:
    """Returns the mean products, with pseudo-images of the mean column added (N + B, 3, 3).

    The mean is over columns with prompts. If there are none, it is over all columns: their own
    scores still need a common size.
    """
    chosen = counts > 0 if (counts > 0).any() else np.ones(len(counts), dtype=bool)
    pooled = state.products[chosen].mean(axis=0) / max(state.count, 1)
    observed = state.count - 1 + shrinkage
    return np.asarray((state.products + shrinkage * pooled) / (observed if observed > 0 else 1.0))


def _leakage(products: Floats) -> Floats:
    """Returns how much of a column's partners its compounds show (N + B,).

    It is the partners' coefficient when own scores and partners predict the compounds; at least 0.
    """
    (ss, sc, sd), (_, _, cd), (_, _, dd) = np.moveaxis(products, 0, -1)
    determinant = ss * dd - sd**2
    known = determinant > 1e-9 * ss * dd
    slope = np.divide(ss * cd - sd * sc, determinant, out=np.zeros_like(ss), where=known)
    return np.asarray(np.maximum(slope, 0.0))


def _size(weights: Floats, products: Floats) -> Floats:
    """Returns the root mean square of each column's weighted views (N + B,)."""
    squares = np.einsum("ia,iab,ib->i", weights, products, weights)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def without_rival(total: NDArray[_Float], share: float) -> NDArray[_Float]:
    """Returns scores (n, N + B) without a share of the highest score of their image."""
    return np.asarray(total - share * total.max(axis=1, keepdims=True))


@dataclass(frozen=True)
class Duo:
    """The fitted model: the statistics and weights needed to score a new image.

    weights: of the three views of each column, (N + B, 3)
    """

    options: DuoOptions
    views: Views
    weights: Floats
    notes: Sequence[str] = field(default=())

    def final(self, scores: Scores) -> tuple[Floats, Floats]:
        """Returns the scores before and after the rival is taken off, both (n, N + B).

        The rival of an image is its highest score, background included.
        """
        return self.weigh(self.views.of_images(scores))

    def weigh(self, views: tuple[Floats, Floats, Floats]) -> tuple[Floats, Floats]:
        """Returns the scores of images whose views, each (n, N + B), are known."""
        own, compounds, partners = views
        weights = self.weights.T
        total = weights[0] * own + weights[1] * compounds + weights[2] * partners
        return total, without_rival(total, self.options.rival)

    def contributions(self, scores: Scores, columns: Iterable[int]) -> list[Floats]:
        """Returns, per column, what each of its m_i prompts adds to its final score (n, m_i).

        The rest of a score is the column's own score, its partners and the rival.
        """
        compound = self.views.debias(scores)[1]
        return [
            self.prompt_weights(compound, i) * compound[:, self.views.mentions[i]] for i in columns
        ]

    def prompt_weights(self, compound: Floats, column: int) -> Floats:
        """Returns the weights (n, m_i) of a column's prompts in images; compound: debiased (n, P).

        They are all the same: the prompts' view is a mean.
        """
        count = len(self.views.mentions[column])
        return np.full((len(compound), count), self.weights[column, 1] / max(count, 1))

    def column_weights(self, column: int) -> Floats:
        """Returns the weights of a column's own score, its prompts and its partners (3,)."""
        return np.asarray(self.weights[column])


def finish_duo(
    prompts: DuoPromptState, products: DuoViewState, views: Views, options: DuoOptions
) -> Duo:
    """Returns the fitted model for the merged states."""
    weights = view_weights(products, views.counts, options)
    return Duo(options, views, weights, _notes(prompts, views))


def _notes(prompts: DuoPromptState, views: Views) -> list[str]:
    """Returns notes for the user about degenerate data."""
    columns, notes = len(views.mentions), []
    if columns < MIN_COLUMNS:
        notes.append(
            f"There are {columns} columns (classes and background), fewer than {MIN_COLUMNS}: "
            "the image-level step is skipped."
        )
    if prompts.flat_images:
        notes.append(f"{prompts.flat_images} images score every column the same: they become 0.")
    constant = views.sd == 0
    for kind, part in (("singleton", constant[:columns]), ("compound", constant[columns:])):
        if part.any():
            notes.append(f"{part.sum()} {kind} prompts score every image the same: they become 0.")
    return notes
