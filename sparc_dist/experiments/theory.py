"""theory: when the second max wins more often than the first, by Theorems 1 and 2."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from sparc_dist.experiments.figures import LINES, new_figure
from sparc_dist.experiments.result import Result
from sparc_dist.experiments.session import ExperimentSession
from sparc_dist.runs.tables import Cell, Table
from sparc_dist.theory.theorems import (
    EXAMPLES,
    LARGEST_ENUMERATED,
    Setting,
    bounds,
    crossing,
    enumerated,
    simulated,
    win_rate_difference,
    win_rates,
)

M = range(2, 61)
SIMULATED = (2, 4, 8, 16, 32, 60)  # values of m
DRAWN = 50_000  # pairs of images
COLUMNS = (
    *("ν", "m", "Pr(W1)", "Pr(W2)", "difference"),
    *("enumerated", "simulated", "standard error"),
)


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
