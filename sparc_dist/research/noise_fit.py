"""The paper's noise model of pair prompts: s = θ₁(t)·f(y_i, y_j) + θ₀(t) + noise, fitted by FVU.

The loss is the fraction of variance unexplained (FVU), so a model that contains another is never
worse. All models, each from several starts, advance together, one pass over the images at a time. A
pass finds the best θ of every image for every trial table; its sums suffice to improve the tables
without the images. This alternation never raises the loss. Extrapolating from the last few steps
(Anderson acceleration) speeds it up; a trial that gains less than the plain step is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core import Floats
from sparc_dist.research.noise_cells import Balance, CellSums
from sparc_dist.research.noise_tables import ClassTerms, Model, Quadratic, first_table, models

#: A search ends when a pass lowers its loss by less than this fraction.
TOLERANCE = 1e-6

#: Number of past steps that an extrapolation uses.
DEPTH = 6

#: Relative rounding error of the loss: a trial that is higher by no more is not worse.
LOSS_ROUNDING = 1e-10

OnePass = Callable[[Floats], CellSums]


@dataclass(frozen=True)
class NoiseFit:
    """One fitted model, scaled so that the mean of θ₁ is 1.

    a0, a1: (N,), NaN for a class in no prompt that counts. If all prompts share one δ, a0 is known
    only up to a common shift, and its minimum is 0. delta: one value, or (P,) with NaN for a prompt
    on which it has no effect; quartiles: the 25th and 75th percentile of those. table: f (P, 4).
    passes: over the images, for this model. converged: whether it converged within these passes.
    """

    fvu: float
    table: Floats
    passes: int
    converged: bool
    a0: Floats | None = None
    a1: Floats | None = None
    delta: float | Floats | None = None
    quartiles: tuple[float, float] | None = None


@dataclass
class Search:
    """The search for one model's parameters from one start.

    x: the best parameters so far, with their loss and mean θ₁; trial: those the next pass tries
    """

    model: Model
    trial: Floats
    x: Floats = field(default_factory=lambda: np.zeros(0))
    loss: float = np.inf
    scale: float = 1.0
    passes: int = 0
    done: bool = False
    _plain_step: Floats = field(default_factory=lambda: np.zeros(0))
    _bound: float = np.inf
    _history: list[tuple[Floats, Floats]] = field(default_factory=list)

    def update(self, loss: float, scale: float, quadratic: Quadratic) -> None:
        """Takes the result of a pass for the trial, and chooses the next trial."""
        if loss > self._bound + LOSS_ROUNDING * abs(loss):
            # The plain step can only fail by rounding: the search has converged.
            self.done = self.trial is self._plain_step
            self.trial, self._history = self._plain_step, []
            return
        self.done = np.isfinite(self._bound) and self.loss - loss < TOLERANCE * loss
        self.x, self.loss, self.scale = self.trial, loss, scale
        better = self.model.improved(self.x, quadratic)
        gain = quadratic(self.model.table(self.x)) - quadratic(self.model.table(better))
        self._plain_step, self._bound = better, loss - gain
        self._history = [*self._history, (self.x, better)][-DEPTH:]
        self.trial = self._extrapolated(better)

    def _extrapolated(self, better: Floats) -> Floats:
        """Returns the combination of the last points whose own step is shortest."""
        if len(self._history) < 2:
            return better
        before, after = (np.array(points) for points in zip(*self._history, strict=True))
        steps = after - before
        mix = np.linalg.lstsq(np.diff(steps, axis=0).T, steps[-1], rcond=1e-8)[0]
        point: Floats = np.maximum(better - mix @ np.diff(after, axis=0), self.model.lowest)
        return point


class Rounds:
    """Counts the passes over the images and lets searches share them."""

    def __init__(self, one_pass: OnePass, balance: Balance, most_passes: int) -> None:
        self.one_pass, self.balance = one_pass, balance
        self.most_passes, self.passes = most_passes, 0

    def __call__(self, tables: Sequence[Floats]) -> CellSums:
        """Runs one pass for all ``tables``."""
        self.passes += 1
        return self.one_pass(np.stack(tables))

    def run(self, searches: Iterable[Search]) -> None:
        """Advances all searches until each is done or no passes are left."""
        active = [search for search in searches if not search.done]
        while active and self.passes < self.most_passes:
            sums = self([search.model.table(search.trial) for search in active])
            for k, search in enumerate(active):
                scale = float(sums.scale[k]) / sums.count
                search.update(float(sums.loss[k]), scale, Quadratic.of(sums, k, self.balance))
                search.passes = self.passes
            active = [search for search in active if not search.done]


def fit(
    one_pass: OnePass,
    balance: Balance,
    pairs: NDArray[np.integer],
    count: int,
    starts: int = 2,
    most_passes: int = 60,
) -> dict[str, NoiseFit]:
    """Fits the seven models to prompts over ``pairs`` (P, 2) of ``count`` = N classes.

    one_pass: returns the sums of all images for tables (K, P, 4)
    """
    rounds = Rounds(one_pass, balance, most_passes)
    first = Quadratic.of(rounds([first_table(len(pairs))]), 0, balance)
    kinds = models(pairs, count)
    searches = {}
    for name, model in kinds.items():
        points = [model.start(np.random.default_rng(seed)) for seed in range(starts)]
        # Without class terms a start is not random.
        points = points if isinstance(model, ClassTerms) else points[:1]
        searches[name] = [Search(model, model.improved(x, first)) for x in points]
    rounds.run(search for group in searches.values() for search in group)
    best = {name: min(group, key=attrgetter("loss")) for name, group in searches.items()}
    _nest(best, rounds)
    return {name: _outcome(search, balance) for name, search in best.items()}


def _nest(best: dict[str, Search], rounds: Rounds) -> None:
    """Restarts each model from a better one that it contains, so that it is never worse."""
    inner = ["only_or", "additive"]
    for name in ("or_static_and_bonus", "or_variable_and_bonus", "lookup_table"):
        if name == "lookup_table":
            inner = [other for other in best if other != name]
        source = min((best[other] for other in inner), key=attrgetter("loss"))
        if source.loss < best[name].loss:
            best[name] = _embedded(best[name].model, source)
            rounds.run([best[name]])
        inner = [name]


def _embedded(model: Model, source: Search) -> Search:
    """Returns a search of ``model`` that starts where ``source``, which it contains, ended."""
    if isinstance(model, ClassTerms) and isinstance(source.model, ClassTerms):
        x = model.nested(source.model, source.x)
    else:
        x = source.model.table(source.x).ravel()
    return Search(model, x, x, source.loss, source.scale, source.passes)


def _outcome(search: Search, balance: Balance) -> NoiseFit:
    """Returns the fit with its scale and shift fixed."""
    model, x = search.model, search.x
    # If every θ₁ is 0, there is no scale to fix.
    scale = search.scale if search.scale > 0 else 1.0
    if not isinstance(model, ClassTerms):
        return NoiseFit(search.loss, scale * model.table(x), search.passes, search.done)
    a, delta = scale * x[: 2 * model.count].reshape(2, -1), x[2 * model.count :]
    used = np.isin(np.arange(model.count), model.pairs[balance.used])
    if model.bonus != "each":
        a[0] -= a[0, used].min()
    x = np.concatenate([*a, delta])
    a0, a1 = np.where(used, a, np.nan)
    fitted = NoiseFit(search.loss, model.table(x), search.passes, search.done, a0, a1)
    if model.bonus == "one":
        return replace(fitted, delta=float(delta[0]))
    if model.bonus == "each":
        has_effect = (balance.weights * np.minimum(*model.terms(x)) ** 2).any(axis=1)
        fitted = replace(fitted, delta=np.where(has_effect, delta, np.nan))
        if has_effect.any():
            q1, q3 = np.quantile(delta[has_effect], [0.25, 0.75])
            return replace(fitted, quartiles=(float(q1), float(q3)))
    return fitted
