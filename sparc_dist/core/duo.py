"""Duo: a fusion of what a class's own prompt and its compound prompts show, without sorting.

pass 1   image step → moments of every prompt                  merge: 2 (N + B + P) numbers
pass 2   prompt step → three views → their products            merge: 9 (N + B) numbers
pass 3   prompt step → three views → weigh them, minus rival   → final scores

Columns are the N classes, then B background classes: they are scored, serve as partners and rivals,
and are not reported. Without background, B is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.debias import Scores
from sparc_dist.core.fusion import NO_BASE, Arrays, Facts, Fusion, Given, Totals, without_rival
from sparc_dist.core.method import DuoOptions
from sparc_dist.core.moments import Floats, Moments
from sparc_dist.core.order_statistics import Mentions
from sparc_dist.core.states import State
from sparc_dist.core.views import MIN_COLUMNS, Scaling, Views, flat_images, image_step


@dataclass(frozen=True)
class DuoMoments(State):
    """The moments of N + B singletons and P compounds after the image step, and the flat images."""

    singleton: Moments
    compound: Moments
    flat_images: int

    @classmethod
    def of(cls, scores: Scores, scaling: Scaling = "sqrt") -> DuoMoments:
        """Returns the state of one shard."""
        singleton, compound = image_step(scores, scaling)
        return cls(Moments.of(singleton), Moments.of(compound), flat_images(scores))

    def views(self, mentions: Mentions, options: DuoOptions) -> Views:
        """Returns the views for pass 2. The state must be the merged one."""
        constants = (options.shrinkage, options.scaling)
        return Views.of(self.singleton, self.compound, mentions, *constants)


@dataclass(frozen=True)
class ViewProducts(State):
    """The sums over images of products of each column's views, uncentred.

    products: (N + B, 3, 3)
    """

    count: int
    products: Floats

    @classmethod
    def of(cls, scores: Scores, views: Views) -> ViewProducts:
        """Returns the state of one shard."""
        parts = views.of_images(scores)
        products = np.empty((len(views.mentions), 3, 3))
        for i, j in combinations_with_replacement(range(3), 2):
            products[:, i, j] = products[:, j, i] = np.einsum("ni,ni->i", parts[i], parts[j])
        return cls(len(scores), products)


def view_weights(state: ViewProducts, counts: Floats, options: DuoOptions) -> Floats:
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


def _shrunk_products(state: ViewProducts, counts: Floats, shrinkage: float) -> Floats:
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


@dataclass(frozen=True)
class Duo(Fusion):
    """The fitted model: the statistics and weights needed to score a new image.

    weights: of the three views of each column, (N + B, 3)
    """

    name = "duo"
    title = "duo"
    part = "total"
    passes = (("prompt_statistics", DuoMoments), ("rank_statistics", ViewProducts))
    prefix = "views"
    weight_names = ("own", "compounds", "partners")

    options: DuoOptions
    views: Views
    weights: Floats

    @classmethod
    def gather(cls, given: Given) -> Callable[[Scores], State]:
        """Returns the function that makes the state of a shard."""
        options = given.method.duo
        if not given.states:
            return lambda scores: DuoMoments.of(scores, options.scaling)
        views = given.states[0].views(given.mentions, options)
        return lambda scores: ViewProducts.of(scores, views)

    @classmethod
    def fit(cls, given: Given) -> Self:
        """Returns the model for the merged states."""
        prompts, products = given.states
        views = prompts.views(given.mentions, given.method.duo)
        return cls.of(prompts, products, views, given.method.duo)

    @classmethod
    def of(
        cls, prompts: DuoMoments, products: ViewProducts, views: Views, options: DuoOptions
    ) -> Self:
        """Returns the model for merged states and the views that follow from the first of them."""
        weights = view_weights(products, views.counts, options)
        return cls(views.mentions, _notes(prompts, views), options, views, weights)

    def final(self, scores: Scores, base: Mapping[str, Totals] = NO_BASE) -> Totals:
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

    def debiased(self, scores: Scores) -> tuple[Floats, Floats]:
        """Returns the debiased singleton (n, N + B) and compound scores (n, P)."""
        return self.views.debias(scores)

    def prompt_weights(self, compound: NDArray[np.floating], column: int) -> Floats:
        """Returns the weights (n, m_i) of a column's prompts in images.

        They are all the same: the prompts' view is a mean.
        """
        count = len(self.mentions[column])
        return np.full((len(compound), count), self.weights[column, 1] / max(count, 1))

    def column_weights(self, column: int) -> Floats:
        """Returns the weights of a column's own score, its prompts and its partners (3,)."""
        return np.asarray(self.weights[column])

    def arrays(self) -> Arrays:
        """Returns what a labeler stores of it."""
        return {"centre": self.views.centre, "sd": self.views.sd, "weights": self.weights}

    @classmethod
    def restored(cls, given: Given, arrays: Arrays, facts: Facts) -> Self:
        """Returns the model of what ``arrays`` returned."""
        options = given.method.duo
        views = Views(given.mentions, arrays["centre"], arrays["sd"], options.scaling)
        return cls(given.mentions, facts["notes"], options, views, arrays["weights"])


def _notes(prompts: DuoMoments, views: Views) -> list[str]:
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
