"""main and per-class: tables of the mAPs and APs that a run has stored, beside the paper's."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from sparc_dist.config import BackboneConfig, DatasetConfig
from sparc_dist.core import FUSIONS
from sparc_dist.errors import UserError
from sparc_dist.research import paper
from sparc_dist.research.result import SHADES, Result, bars, difference, mean, new_figure
from sparc_dist.research.session import ExperimentSession, FinishedRun
from sparc_dist.runs.tables import Cell, Table

MAIN = ("data set", "backbone", "method", "mAP (%)", "paper (%)", "difference", "verdict")
PER_CLASS = ("data set", "class", "ZSCLIP AP (%)", "debiased AP (%)", "SPARC AP (%)", "gain")
#: The verdict by the largest distance from the paper's figure, in points.
VERDICTS = {0.3: "within 0.3", 1.0: "within 1"}


def main_table(session: ExperimentSession) -> Result:
    """Returns the mAP of every unit, from the stored metrics alone."""
    run = session.run
    titles = _titles(run)
    rows = [row for dataset in run.datasets for row in _rows(run, dataset)]
    by_key = {(row[0], row[1], row[2]): row for row in rows}
    units = list(dict.fromkeys((row[0], row[1]) for row in rows))
    labels = [f"{dataset} × {backbone}" for dataset, backbone in units]
    figure = bars(
        labels,
        {
            title: [_number(by_key[(*unit, title)][3]) for unit in units]
            for title in titles.values()
        },
        "mAP (%)",
        {
            f"paper, {title}": [_number(by_key[(*unit, title)][4]) for unit in units]
            for title in ("ZSCLIP", "SPARC")
            if title in titles.values()
        },
    )
    return Result("Main table", Table(MAIN, rows), figure, run.remarks())


def _titles(run: FinishedRun) -> dict[str, str]:
    """Returns the titles of the methods that the run has."""
    return {method: FUSIONS[method].title for method in run.results.methods}


def _rows(run: FinishedRun, dataset: DatasetConfig) -> list[list[Cell]]:
    """Returns the rows of a data set: those of each backbone, then the averages."""
    # The paper has numbers only for its own method.
    paper_name, rows = paper.dataset_name(dataset) if run.is_sparc else None, []
    backbones, titles = run.backbones(dataset.name), _titles(run)
    for backbone in backbones:
        for method, title in titles.items():
            ours = run.results.mean_ap(dataset.name, backbone.name, method)
            printed = paper.main_mean_ap(paper_name, method, paper.backbone_name(backbone))
            rows.append(_row(dataset, backbone.name, title, (ours, printed)))
    for method, title in titles.items():
        values = [run.results.mean_ap(dataset.name, b.name, method) for b in backbones]
        pair = (mean(values), _paper_average(paper_name, method, backbones))
        rows.append(_row(dataset, "average", title, pair))
    return rows


def _row(
    dataset: DatasetConfig, backbone: str, title: str, pair: tuple[float | None, float | None]
) -> list[Cell]:
    off = difference(*pair)
    return [dataset.name, backbone, title, *pair, off, verdict(off)]


def verdict(off: float | None) -> str | None:
    """Returns how near a mAP is to the paper's, ``off`` points away; None if the paper has none."""
    if off is None:
        return None
    # The paper prints one decimal: 0.3 and 1 are compared as they are printed.
    return next((text for most, text in VERDICTS.items() if round(abs(off), 1) <= most), "off")


def _paper_average(
    dataset: str | None, method: str, backbones: list[BackboneConfig]
) -> float | None:
    """Returns the paper's average over the same backbones; for all nine, the one it prints."""
    names = {paper.backbone_name(backbone) for backbone in backbones}
    if names == set(paper.BACKBONES):
        return paper.main_mean_ap(dataset, method, "average")
    if None in names:
        return None
    return mean([paper.main_mean_ap(dataset, method, name) for name in names])


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, int | float) else None


def per_class(session: ExperimentSession) -> Result:
    """Returns the AP per class, from the metrics alone; the gain is SPARC minus ZSCLIP."""
    run = session.run
    if "sparc" not in run.results.methods:
        raise UserError(
            "The run has no SPARC scores, because `fusions` of its config does not list sparc; use "
            "a run that has them."
        )
    rows = [row for dataset in run.datasets for row in _class_rows(run, dataset.name)]
    gains = [row[5] for row in rows if isinstance(row[5], float)]
    improved = sum(gain > 0 for gain in gains)
    remarks = [f"SPARC is above ZSCLIP in {improved} of {len(gains)} classes.", *run.remarks()]
    return Result("AP per class", Table(PER_CLASS, rows), _class_figure(run, rows), remarks)


def _class_rows(run: FinishedRun, dataset: str) -> list[list[Cell]]:
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


def _class_figure(run: FinishedRun, rows: list[list[Cell]]) -> Figure:
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
