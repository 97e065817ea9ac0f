"""theory: when the second-highest compound score is more informative than the highest.

The paper's model: class 0 is paired with m others, each present with probability rho in a positive
image and q in a negative one; the model sees each label flipped with probability nu. A prompt
scores max + delta · min of the two labels it sees, for any delta > 0. A positive image wins against
a negative one if its highest score (first-max) or its second-highest (second-max) is higher; a tie
is half a win. Computed here: the difference of the win rates, Theorem 1's bounds on m, and both win
rates by enumeration and by simulation, which share no algebra with the closed form.

gamma is (1 − q')/(1 − rho'); the paper prints q without its prime, which holds only for nu = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf, isclose, log

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from sparc_dist.core import Floats, Moments
from sparc_dist.research.result import LINES, Result, new_figure
from sparc_dist.research.session import ExperimentSession
from sparc_dist.runs.tables import Cell, Table

#: Whether class 0 is seen in the (positive, negative) image: the order of ``Setting.pi``.
SEEN = ((0, 0), (1, 1), (0, 1), (1, 0))

#: Values, and the probability of each.
Distribution = tuple[Floats, Floats]

#: The largest m for enumeration, which visits 4^m images of each kind.
LARGEST_ENUMERATED = 8

#: The experiment: all values of m, those that are simulated, and pairs of images for each.
M = range(2, 61)
SIMULATED = (2, 4, 8, 16, 32, 60)  # values of m
DRAWN = 50_000  # pairs of images
COLUMNS = (
    *("ν", "m", "Pr(W1)", "Pr(W2)", "difference"),
    *("enumerated", "simulated", "standard error"),
)


@dataclass(frozen=True)
class Setting:
    """The parameters of the model; pi: the probabilities of the four cases of ``SEEN``."""

    rho: float
    q: float
    nu: float
    pi: tuple[float, float, float, float]

    def __post_init__(self) -> None:
        if not 1 > self.rho > self.q > 0:
            raise ValueError(f"1 > rho > q > 0 must hold, but rho = {self.rho}, q = {self.q}.")
        if not 0 <= self.nu < 0.5:
            raise ValueError(f"nu must be at least 0 and below 1/2, not {self.nu}.")
        if len(self.pi) != 4 or not (all(p >= 0 for p in self.pi) and isclose(sum(self.pi), 1)):
            raise ValueError(f"pi must be four probabilities that sum to 1, not {self.pi}.")
        if not self.gamma > 1:
            raise ValueError(
                f"rho = {self.rho} and q = {self.q} with nu = {self.nu} are not distinct in "
                "double precision: move rho and q further apart or lower nu."
            )

    @property
    def rho_prime(self) -> float:
        """The probability that another class is seen in a positive image."""
        return (1 - self.nu) * self.rho + self.nu * (1 - self.rho)

    @property
    def q_prime(self) -> float:
        """The probability that another class is seen in a negative image."""
        return (1 - self.nu) * self.q + self.nu * (1 - self.q)

    @property
    def a(self) -> float:
        """The probability that another class is not seen in a positive image."""
        return 1 - self.rho_prime

    @property
    def flipped(self) -> float:
        """The probability that class 0 is seen wrongly in at least one of the images."""
        return sum(self.pi[:3])

    @property
    def gamma(self) -> float:
        """How much likelier a class goes unseen in a negative image than in a positive one."""
        return (1 - self.q_prime) / (1 - self.rho_prime)


@dataclass(frozen=True)
class Bounds:
    """The bounds of Theorem 1: second-max wins more often for every m above both."""

    first: float
    second: float

    @property
    def guaranteed(self) -> float:
        """The larger of the two bounds."""
        return max(self.first, self.second)


def _examples(nus: tuple[float, ...]) -> tuple[Setting, ...]:
    hit, miss = 0.55, 1 - 0.55
    return tuple(Setting(0.15, 0.01, nu, (hit * miss, hit * miss, miss**2, hit**2)) for nu in nus)


#: The two settings by which the paper proves Theorem 2: nu = 0.05 and nu = 0.2.
EXAMPLES = _examples((0.05, 0.2))


def case_differences(setting: Setting, m: ArrayLike) -> Floats:
    """Returns Pr(W2) − Pr(W1) in each case of ``SEEN`` (4, …) for m (…) (Lemmas 3 to 6)."""
    return _exactly_one(m, setting.q_prime) * _relative_cases(setting, m)


def win_rate_difference(setting: Setting, m: ArrayLike) -> Floats:
    """Returns Pr(W2) − Pr(W1) for m (…).

    m must be at least 2: for m = 1 the formula would assume a second score that is always at its
    lower value, but there is none.
    """
    return np.tensordot(setting.pi, case_differences(setting, m), 1)


def relative_difference(setting: Setting, m: ArrayLike) -> Floats:
    """Returns (Pr(W2) − Pr(W1)) / G for m (…).

    G > 0 is the probability that exactly one of m classes is seen in a negative image. The result
    has the sign of the difference even where the difference is too small for a float.
    """
    return np.tensordot(setting.pi, _relative_cases(setting, m), 1)


def _relative_cases(setting: Setting, m: ArrayLike) -> Floats:
    """Returns Lemmas 3 to 6 over G (4, …); A/G is (rho'/q') gamma^(1−m), which decreases in m."""
    m = _checked(m)
    p, q, a = setting.rho_prime, setting.q_prime, setting.a
    g = _exactly_one(m, q)
    a_over_g = p / q * setting.gamma ** (1 - m)
    same = 1 - a_over_g
    worst = 1 - a ** (m - 1) * (a + m * p + p * (1 - q) / q)
    best = a_over_g * (g + a * (1 - q) ** (m - 1) * (q / p + setting.gamma) - 1)
    return 0.5 * np.stack([same, same, worst, best])


def win_rates(setting: Setting, m: ArrayLike) -> Floats:
    """Returns Pr(W1) and Pr(W2) (2, …) for m (…)."""
    m = _checked(m)
    low = []
    for seen in (setting.rho_prime, setting.q_prime):
        none = (1 - seen) ** m
        low.append(np.stack([none, none + _exactly_one(m, seen)]))
    positive, negative = low
    same = 0.5 * (1 + negative - positive)
    worst = 0.5 * (1 - positive) * negative
    best = 1 - 0.5 * positive * (1 - negative)
    return np.tensordot(setting.pi, np.stack([same, same, worst, best]), 1)


def bounds(setting: Setting) -> Bounds:
    """Returns the two bounds of Theorem 1 as the paper states them, the first solved for m.

    If pi(0,1) = 1, the second bound is no restriction: minus infinity.
    """
    if not setting.flipped:
        raise ValueError("Theorem 1 needs pi(1,0) < 1: without a flip of class 0 it does not hold.")
    p, q, a, worst = setting.rho_prime, setting.q_prime, setting.a, setting.pi[2]
    ratio = p / q * (1 - worst) / (setting.flipped - worst / 2)
    second = 1 + log(ratio) / log(setting.gamma) if ratio > 0 else -inf
    return Bounds(_first_bound(p, q, a), second)


def _first_bound(p: float, q: float, a: float) -> float:
    """Returns the only m > 1 that equals its own bound.

    The right side is concave in m, above m at m = 1, and its slope stays below 3/4, so fixed-point
    iteration climbs to the solution; 200 steps reach the precision of a float.
    """
    m = 1.0
    for _ in range(200):
        m = 1 + (log(2) + log(a + m * p + p * (1 - q) / q)) / -log(a)
    return m


def crossing(setting: Setting, largest: int = 100_000) -> int | None:
    """Returns the smallest m ≥ 2 from which on second-max always wins more often.

    Theorem 1 covers every m above its bounds, and each m below is tried. Returns None if it
    covers no m up to ``largest``.
    """
    if not setting.flipped:
        return None
    guaranteed = bounds(setting).guaranteed
    if guaranteed >= largest:
        return None
    tried = np.arange(2, floor(guaranteed) + 1)
    worse = tried[relative_difference(setting, tried) <= 0]
    return int(worse[-1]) + 1 if len(worse) else 2


def enumerated(setting: Setting, m: int, delta: float = 0.5) -> Floats:
    """Returns Pr(W1) and Pr(W2) (2,) over all images: every choice of m labels and m flips."""
    if not 2 <= m <= LARGEST_ENUMERATED:
        raise ValueError(f"Enumeration takes m from 2 to {LARGEST_ENUMERATED}, not {m}.")
    labels, seen = np.indices((2,) * (2 * m)).reshape(2, m, -1).transpose(0, 2, 1)
    flips = np.where(labels != seen, setting.nu, 1 - setting.nu)
    positive, negative = (
        np.prod(np.where(labels == 1, present, 1 - present) * flips, axis=1)
        for present in (setting.rho, setting.q)
    )
    tops = [_top_two(np.full(len(seen), target), seen, delta) for target in (0, 1)]
    rates = np.zeros(2)
    for (in_positive, in_negative), probability in zip(SEEN, setting.pi, strict=True):
        for k in (0, 1):
            rates[k] += probability * _wins(
                _distribution(tops[in_positive][:, k], positive),
                _distribution(tops[in_negative][:, k], negative),
            )
    return rates


def simulated(
    setting: Setting, m: int, pairs: int, rng: np.random.Generator, delta: float = 0.5
) -> Moments:
    """Returns the moments of the wins W1, W2 and of W2 − W1 (3,) over drawn pairs of images.

    Results of several draws merge with ``+``.
    """
    _checked(m)
    case = np.array(SEEN)[rng.choice(4, size=pairs, p=setting.pi)]
    tops = []
    for target, present in zip(case.T, (setting.rho, setting.q), strict=True):
        labels = rng.random((pairs, m)) < present
        tops.append(_top_two(target, labels ^ (rng.random((pairs, m)) < setting.nu), delta))
    wins = np.heaviside(tops[0] - tops[1], 0.5)
    return Moments.of(np.column_stack([wins, wins[:, 1] - wins[:, 0]]))


def _checked(m: ArrayLike) -> Floats:
    m = np.asarray(m, dtype=np.float64)
    if not (m >= 2).all():
        raise ValueError("m must be at least 2: a single score has no second-highest.")
    return m


def _exactly_one(m: ArrayLike, seen: float) -> Floats:
    """Returns the probability that exactly one of m classes is seen: A (rho') and G (q')."""
    m = np.asarray(m, dtype=np.float64)
    return np.asarray(m * seen * (1 - seen) ** (m - 1))


def _top_two(target: NDArray[np.integer], others: NDArray[np.generic], delta: float) -> Floats:
    """Returns the two highest scores (n, 2); target: (n,), others: (n, m), the labels seen."""
    target = target[:, None]
    scores = np.maximum(target, others) + delta * np.minimum(target, others)
    return np.asarray(np.sort(scores, axis=1)[:, :-3:-1])


def _distribution(values: Floats, probabilities: Floats) -> Distribution:
    """Returns the distinct values, and the probability of each."""
    levels = np.unique(values)
    return levels, np.array([probabilities[values == level].sum() for level in levels])


def _wins(positive: Distribution, negative: Distribution) -> float:
    """Returns the probability that the positive image's value is larger; a tie is half a win."""
    wins = np.heaviside(np.subtract.outer(positive[0], negative[0]), 0.5)
    return float(positive[1] @ wins @ negative[1])


def theory(session: ExperimentSession) -> Result:
    """Returns the paper's example; uses nothing of the run."""
    table = Table(COLUMNS, [row for setting in EXAMPLES for row in _rows(setting)], digits=4)
    points: list[list[Cell]] = []
    for setting in EXAMPLES:
        bound = bounds(setting)
        points.append([setting.nu, crossing(setting), bound.first, bound.second, bound.guaranteed])
    columns = ("ν", "second max wins from m =", "first bound", "second bound", "guaranteed above")
    remarks = [
        "ρ = 0.15, q = 0.01, π(1,0) = 0.55², π(0,1) = 0.45², the others 0.55 · 0.45; a class is "
        "hidden or spuriously seen with probability ν.",
        "γ is (1 − q′) / (1 − ρ′); the paper prints q without its prime.",
        f"The CSV has the difference for every m, with exact enumeration up to "
        f"{LARGEST_ENUMERATED} and a simulation of {DRAWN:,} pairs of images.",
    ]
    title = "Second max compared with first max, in theory"
    return Result(title, table, _figure(), remarks, Table(columns, points, digits=2))


def _rows(setting: Setting) -> list[list[Cell]]:
    rng = np.random.default_rng(0)
    rows: list[list[Cell]] = []
    for m in M:
        first, second = (float(rate) for rate in win_rates(setting, m))
        exact = drawn = error = None
        if m <= LARGEST_ENUMERATED:
            exact = float(np.diff(enumerated(setting, m))[0])
        if m in SIMULATED:
            moments = simulated(setting, m, DRAWN, rng)
            drawn = float(moments.mean[2])
            error = float(moments.sd[2] / np.sqrt(moments.count))
        gap = float(win_rate_difference(setting, m))
        rows.append([setting.nu, m, first, second, gap, exact, drawn, error])
    return rows


def _figure() -> Figure:
    figure = new_figure(6.5, 3.5)
    axes = figure.add_subplot()
    for setting, line in zip(EXAMPLES, LINES, strict=False):
        axes.plot(
            M,
            win_rate_difference(setting, np.array(M)),
            line,
            color="black",
            label=f"ν = {setting.nu:g}",
        )
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xlabel("m (co-occurring classes)")
    axes.set_ylabel("Pr(W₂) − Pr(W₁)")
    axes.legend()
    return figure
