"""per-class: the AP of each class under ZSCLIP and SPARC, averaged over backbones, by gain."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from sparc_dist.errors import UserError
from sparc_dist.experiments.figures import SHADES, new_figure
from sparc_dist.experiments.finished_run import FinishedRun
from sparc_dist.experiments.result import Result, difference, mean
from sparc_dist.experiments.session import ExperimentSession
from sparc_dist.runs.tables import Cell, Table

COLUMNS = ("data set", "class", "ZSCLIP AP (%)", "debiased AP (%)", "SPARC AP (%)", "gain")


def per_class(session: ExperimentSession) -> Result:
    """Returns the AP per class, from the metrics alone; the gain is SPARC minus ZSCLIP."""
    run = session.run
    if "sparc" not in run.results.methods:
        raise UserError(
            "The run has no SPARC scores, because `fusions` of its config does not list sparc; use "
            "a run that has them."
        )
    rows = [row for dataset in run.datasets for row in _rows(run, dataset.name)]
    gains = [row[5] for row in rows if isinstance(row[5], float)]
    improved = sum(gain > 0 for gain in gains)
    remarks = [f"SPARC is above ZSCLIP in {improved} of {len(gains)} classes.", *run.remarks()]
    return Result("AP per class", Table(COLUMNS, rows), _figure(run, rows), remarks)


def _rows(run: FinishedRun, dataset: str) -> list[list[Cell]]:
    """Returns a data set's rows, largest gain first, classes without positives last."""
    metrics = [run.results.metrics[dataset, b.name] for b in run.backbones(dataset)]
    rows: list[list[Cell]] = []
    for name in metrics[0]["sparc"]["AP"]:
        before, debiased, after = (
            mean([unit[method]["AP"][name] for unit in metrics])
            for method in ("zsclip", "debiased", "sparc")
        )
        rows.append([dataset, name, before, debiased, after, difference(after, before)])
    return sorted(rows, key=lambda row: -row[5] if isinstance(row[5], float) else np.inf)


def _figure(run: FinishedRun, rows: list[list[Cell]]) -> Figure:
    """Plots the AP of ZSCLIP and SPARC per class, joined by a line; one panel per data set."""
    names = [dataset.name for dataset in run.datasets]
    parts = [[row for row in rows if row[0] == name and row[5] is not None] for name in names]
    widest = max(len(part) for part in parts)
    figure = new_figure(max(6.0, 0.16 * widest + 1.5), 3.2 * len(names))
    for axes, name, part in zip(np.ravel(figure.subplots(len(names))), names, parts, strict=True):
        positions = range(len(part))
        before, after = ([row[column] for row in part] for column in (2, 4))
        axes.vlines(positions, before, after, color=SHADES[1], linewidth=1)
        white = {"markerfacecolor": "white", "markeredgecolor": "black"}
        axes.plot(positions, before, "o", label="ZSCLIP", **white)
        axes.plot(positions, after, "^", color="black", label="SPARC")
        axes.set_xticks(positions, [str(row[1]) for row in part], rotation=90, fontsize=7)
        axes.set_ylabel("AP (%)")
        axes.set_xlabel("class, by gain")
        axes.set_title(name, fontsize=9)
        axes.legend(fontsize=8)
    return figure
