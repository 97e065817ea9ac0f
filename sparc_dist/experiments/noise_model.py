"""noise-model: what pair scores say of the classes they name, beside the paper's fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparc_dist.config import BackboneConfig, DatasetConfig
from sparc_dist.core.noise_model import NoiseFit
from sparc_dist.experiments import paper
from sparc_dist.experiments.figures import bars
from sparc_dist.experiments.laboratory import Laboratory
from sparc_dist.experiments.opened import Key, Opened
from sparc_dist.experiments.result import Cell, Result, Table, difference, mean
from sparc_dist.pipeline.noise_model import noise_models

#: What is told of a fit: the paper's name, and ours.
FVU = {
    "constant": "constant",
    "only_and": "only AND",
    "only_or": "only OR",
    "additive": "additive",
    "or_static_and_bonus": "OR + one δ",
    "or_variable_and_bonus": "OR + δ of each pair",
    "lookup_table": "look-up table",
}
BONUS = {
    "static_bonus": "δ, one",
    "variable_bonus_q1": "δ of each pair, 1st quartile",
    "variable_bonus_q3": "δ of each pair, 3rd quartile",
}
SHOWN = FVU | BONUS

#: The figures of units, by what is told.
Figures = Mapping[Key, Mapping[str, float | None]]


def noise_model(laboratory: Laboratory) -> Result:
    """FVU of the seven models, and the AND-bonus δ."""
    run = laboratory.run
    fits, failed = laboratory.of_each(laboratory.units.values(), noise_models)
    figures = {key: _figures(found) for key, found in fits.items()}
    columns = _columns(run, figures)
    summary = Table(
        ("figure", *columns),
        [[SHOWN[name], *(column[name] for column in columns.values())] for name in SHOWN],
        digits=3,
    )
    of_models = {name: [column[model] for model in FVU] for name, column in columns.items()}
    told = [name for name in of_models if not name.endswith("difference")]
    figure = bars(
        list(FVU.values()),
        {name: of_models[name] for name in told if not name.endswith("paper")},
        "FVU (fraction of variance unexplained)",
        {name: of_models[name] for name in told if name.endswith("paper")},
    )
    remarks = [
        "FVU: the mean, over pair prompts, of the error that is left over the variance, each of "
        "the four (y_i, y_j) cells of a prompt weighing the same. Paper: means over backbones.",
        *run.remarks(),
        *failed,
        *_unsettled(fits),
    ]
    title = "Noise models of pair prompts"
    return Result(title, _table(run, figures), figure, remarks, summary)


def _unsettled(fits: Mapping[Key, Mapping[str, NoiseFit]]) -> list[str]:
    """The models that were still improving when there had been enough passes."""
    return [
        f"{' × '.join(key)}: {SHOWN[name]} still improved after {found.passes} passes."
        for key, models in fits.items()
        for name, found in models.items()
        if not found.converged
    ]


def _figures(fits: Mapping[str, NoiseFit]) -> dict[str, float | None]:
    found: dict[str, float | None] = {name: fits[name].fvu for name in FVU}
    static = fits["or_static_and_bonus"].delta
    quartiles = fits["or_variable_and_bonus"].quartiles or (None, None)
    found["static_bonus"] = static if isinstance(static, float) else None
    found["variable_bonus_q1"], found["variable_bonus_q3"] = quartiles
    return found


def _table(run: Opened, figures: Figures) -> Table:
    """A row for each unit and figure."""
    rows: list[list[Cell]] = []
    for dataset in run.datasets:
        for backbone in _backbones(run, dataset, figures):
            printed = paper.dataset_name(dataset), paper.backbone_name(backbone)
            for name, ours in figures[dataset.name, backbone.name].items():
                theirs = _printed(printed[0], name, [printed[1]])
                apart = difference(ours, theirs)
                rows.append([dataset.name, backbone.name, SHOWN[name], ours, theirs, apart])
    columns = ("data set", "backbone", "figure", "ours", "paper", "difference")
    return Table(columns, rows, digits=3)


def _columns(run: Opened, figures: Figures) -> dict[str, dict[str, float | None]]:
    """By name the columns of the summary: means over backbones, ours and the paper's."""
    columns: dict[str, dict[str, float | None]] = {}
    shown = set()
    for dataset in run.datasets:
        backbones = _backbones(run, dataset, figures)
        units = [figures[dataset.name, backbone.name] for backbone in backbones]
        ours = {name: mean([unit[name] for unit in units]) for name in SHOWN}
        columns[dataset.name] = ours
        if printed := paper.dataset_name(dataset):
            shown.add(printed)
            names = [paper.backbone_name(backbone) for backbone in backbones]
            theirs = {name: _printed(printed, name, names) for name in SHOWN}
            columns[f"{dataset.name}, paper"] = theirs
            columns[f"{dataset.name}, difference"] = {
                name: difference(ours[name], theirs[name]) for name in SHOWN
            }
    for printed in paper.DATASETS.values():
        if printed not in shown:
            nine = {name: _printed(printed, name, paper.BACKBONES) for name in SHOWN}
            columns[f"{printed}, paper"] = nine
    return columns


def _backbones(run: Opened, dataset: DatasetConfig, figures: Figures) -> list[BackboneConfig]:
    """Under which a data set has figures."""
    return [b for b in run.backbones(dataset.name) if (dataset.name, b.name) in figures]


def _printed(dataset: str | None, name: str, backbones: Sequence[str | None]) -> float | None:
    """The paper's figure, the mean over backbones; None where it lacks one of them."""
    known = paper.tables()["noise_model"].get(dataset, {}).get(name, {})
    found = [known.get(backbone) for backbone in backbones]
    return None if None in found or not found else mean(found)
