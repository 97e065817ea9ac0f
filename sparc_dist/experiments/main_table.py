"""main: every data set under every backbone, ZSCLIP and SPARC, with the paper's main table."""

from __future__ import annotations

from sparc_dist.config import BackboneConfig, DatasetConfig
from sparc_dist.experiments import paper
from sparc_dist.experiments.figures import bars
from sparc_dist.experiments.finished_run import FinishedRun
from sparc_dist.experiments.result import Result, difference, mean
from sparc_dist.experiments.session import ExperimentSession
from sparc_dist.runs import TITLES
from sparc_dist.runs.tables import Cell, Table

COLUMNS = ("data set", "backbone", "method", "mAP (%)", "paper (%)", "difference", "verdict")
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
    return Result("Main table", Table(COLUMNS, rows), figure, run.remarks())


def _titles(run: FinishedRun) -> dict[str, str]:
    """Returns the titles of the methods that the run has."""
    return {method: TITLES[method] for method in run.results.methods}


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
