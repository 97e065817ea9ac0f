"""noise-model: what pair scores say of the classes they name, beside the paper's fits.

A fit takes dozens of passes. So each group's pair scores and labels are read once and stay with the
workers as objects of Ray's, and a pass is a task on each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.config import BackboneConfig, DatasetConfig
from sparc_dist.core.moments import Floats
from sparc_dist.errors import UserError
from sparc_dist.experiments import paper
from sparc_dist.experiments.figures import bars
from sparc_dist.experiments.finished_run import FinishedRun
from sparc_dist.experiments.result import Result, difference, mean
from sparc_dist.experiments.session import ExperimentSession
from sparc_dist.pipeline.passes import ShardGroup, remote, share
from sparc_dist.pipeline.unit import Unit
from sparc_dist.pipeline.waiting import get_with_timeout
from sparc_dist.prompts import PromptBank, pair_prompt
from sparc_dist.runs import UnitKey, UnitShards
from sparc_dist.runs.tables import Cell, Table
from sparc_dist.theory.noise_cells import Balance, CellCounts, CellSums, Pairs
from sparc_dist.theory.noise_model import NoiseFit, fit

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

STAGE = "noise_model"
MOST_PASSES = 60
#: Two scores of an image are explained by its own θ₀ and θ₁, whatever the classes.
LEAST_PAIRS = 3

#: The figures of units, by what is told.
Figures = Mapping[UnitKey, Mapping[str, float | None]]


def noise_model(session: ExperimentSession) -> Result:
    """FVU of the seven models, and the AND-bonus δ."""
    run = session.run
    fits, failed = session.of_each(session.units.values(), noise_models)
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


def _unsettled(fits: Mapping[UnitKey, Mapping[str, NoiseFit]]) -> list[str]:
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


def _table(run: FinishedRun, figures: Figures) -> Table:
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


def _columns(run: FinishedRun, figures: Figures) -> dict[str, dict[str, float | None]]:
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


def _backbones(run: FinishedRun, dataset: DatasetConfig, figures: Figures) -> list[BackboneConfig]:
    """Under which a data set has figures."""
    return [b for b in run.backbones(dataset.name) if (dataset.name, b.name) in figures]


def _printed(dataset: str | None, name: str, backbones: Sequence[str | None]) -> float | None:
    """The paper's figure, the mean over backbones; None where it lacks one of them."""
    known = paper.tables()["noise_model"].get(dataset, {}).get(name, {})
    found = [known.get(backbone) for backbone in backbones]
    return None if None in found or not found else mean(found)


def noise_models(unit: Unit) -> dict[str, NoiseFit]:
    """The seven models of a unit's pair prompts, fitted to its raw scores and labels."""
    columns, classes = pair_columns(unit.data.bank)
    if len(columns) < LEAST_PAIRS:
        raise UserError(
            f"The prompts of {unit.key[0]} hold {len(columns)} pairs such as 'A and B', of which "
            f"the noise model is; take a run with {LEAST_PAIRS} or more."
        )
    passes, stages = unit.passes(), unit.stages
    stages.start(STAGE, sum(passes.images) * (MOST_PASSES + 1))
    parts = passes.each(STAGE, partial(_pairs, unit.shards, columns, classes))

    def summed(work: Any, *arguments: Any) -> Any:
        return passes.merged_over(parts, STAGE, stages, work, *arguments)

    balance = remote(_balance).remote(summed(CellCounts.of))

    def one_pass(tables: Floats) -> CellSums:
        found: CellSums = get_with_timeout(
            summed(CellSums.of, share(tables), balance), passes.limit, "A pass of the noise model"
        )
        return found

    known = get_with_timeout(balance, passes.limit, "The first pass of the noise model")
    fits = fit(one_pass, known, classes, len(unit.data.bank.classes), most_passes=MOST_PASSES)
    stages.say(f"noise model  {max(found.passes for found in fits.values())} passes")
    return fits


def pair_columns(bank: PromptBank) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The columns of the bank's "A and B" prompts (P,) and their classes (P, 2)."""
    columns, classes = [], []
    for column, prompt in enumerate(bank.compound):
        if prompt.origin == "pair":
            i, j = prompt.class_ids
            ways = (pair_prompt(bank.classes, *way).text for way in ((i, j), (j, i)))
            if prompt.text in ways:
                columns.append(column)
                classes.append((i, j))
    return np.array(columns, dtype=np.int64), np.array(classes, dtype=np.int64).reshape(-1, 2)


def _balance(counts: CellCounts) -> Balance:
    try:
        return Balance.of(counts)
    except ValueError as error:
        raise UserError(str(error)) from None


def _pairs(
    shards: UnitShards, columns: NDArray[np.int64], classes: NDArray[np.int64], group: ShardGroup
) -> Pairs:
    """The pair scores and labels of a group's labelled images."""
    scores, labels = [], []
    for shard in group.shards:
        ids, stored = shards.scores(shard)
        labelled, present = shards.labels(shard, ids.to_pylist())
        scores.append(stored.compound[labelled][:, columns])
        labels.append(present[labelled])
    return Pairs(np.concatenate(scores), np.concatenate(labels), classes)
