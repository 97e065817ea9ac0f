"""noise-model: how pair scores depend on the classes they name, compared with the paper's fits.

A fit takes dozens of passes. Each group's pair scores and labels are therefore read once and stay
in memory; a pass is one task per group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.config import BackboneConfig, DatasetConfig
from sparc_dist.core import Floats
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import get, share, submit
from sparc_dist.pipeline.passes import ShardGroup
from sparc_dist.pipeline.unit import Unit
from sparc_dist.prompts import PromptBank, pair_prompt
from sparc_dist.research import paper
from sparc_dist.research.noise_cells import Balance, CellCounts, CellSums, Pairs
from sparc_dist.research.noise_fit import NoiseFit, fit
from sparc_dist.research.result import Result, bars, difference, mean
from sparc_dist.research.session import ExperimentSession, FinishedRun
from sparc_dist.runs import UnitKey, UnitShards
from sparc_dist.runs.tables import Cell, Table

#: The values shown for a fit: keys as in paper.json, and titles.
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
MAX_PASSES = 60
#: An image's own θ₀ and θ₁ explain any two scores, whatever the classes.
MIN_PAIRS = 3

#: For each unit the values by the keys of ``SHOWN``.
Values = Mapping[UnitKey, Mapping[str, float | None]]


def noise_model(session: ExperimentSession) -> Result:
    """Returns the FVU of the seven models, and the AND-bonus δ."""
    run = session.run
    fits, failures = session.for_each(session.units.values(), noise_models)
    values = {key: _values(models) for key, models in fits.items()}
    columns = _columns(run, values)
    summary = Table(
        ("figure", *columns),
        [[SHOWN[name], *(column[name] for column in columns.values())] for name in SHOWN],
        digits=3,
    )
    fvus = {
        name: [column[model] for model in FVU]
        for name, column in columns.items()
        if not name.endswith("difference")
    }
    figure = bars(
        list(FVU.values()),
        {name: fvus[name] for name in fvus if not name.endswith("paper")},
        "FVU (fraction of variance unexplained)",
        {name: fvus[name] for name in fvus if name.endswith("paper")},
    )
    remarks = [
        "FVU: the residual error divided by the variance, averaged over pair prompts; the four "
        "(y_i, y_j) cells of a prompt have equal weight. Paper: means over backbones.",
        *run.remarks(),
        *failures,
        *_not_converged(fits),
    ]
    title = "Noise models of pair prompts"
    return Result(title, _table(run, values), figure, remarks, summary)


def _not_converged(fits: Mapping[UnitKey, Mapping[str, NoiseFit]]) -> list[str]:
    """Returns remarks on the models that were still improving after the last pass."""
    return [
        f"{' × '.join(key)}: {SHOWN[name]} was still improving after {model.passes} passes."
        for key, models in fits.items()
        for name, model in models.items()
        if not model.converged
    ]


def _values(models: Mapping[str, NoiseFit]) -> dict[str, float | None]:
    values: dict[str, float | None] = {name: models[name].fvu for name in FVU}
    static = models["or_static_and_bonus"].delta
    quartiles = models["or_variable_and_bonus"].quartiles or (None, None)
    values["static_bonus"] = static if isinstance(static, float) else None
    values["variable_bonus_q1"], values["variable_bonus_q3"] = quartiles
    return values


def _table(run: FinishedRun, values: Values) -> Table:
    """Returns one row per unit and value."""
    rows: list[list[Cell]] = []
    for dataset in run.datasets:
        for backbone in _backbones(run, dataset, values):
            paper_backbones = [paper.backbone_name(backbone)]
            for name, ours in values[dataset.name, backbone.name].items():
                printed = _printed(paper.dataset_name(dataset), name, paper_backbones)
                pair = (ours, printed)
                rows.append([dataset.name, backbone.name, SHOWN[name], *pair, difference(*pair)])
    columns = ("data set", "backbone", "figure", "ours", "paper", "difference")
    return Table(columns, rows, digits=3)


def _columns(run: FinishedRun, values: Values) -> dict[str, dict[str, float | None]]:
    """Returns the summary's columns by name: means over backbones, ours and the paper's."""
    columns: dict[str, dict[str, float | None]] = {}
    compared = set()
    for dataset in run.datasets:
        backbones = _backbones(run, dataset, values)
        units = [values[dataset.name, backbone.name] for backbone in backbones]
        ours = {name: mean([unit[name] for unit in units]) for name in SHOWN}
        columns[dataset.name] = ours
        if paper_name := paper.dataset_name(dataset):
            compared.add(paper_name)
            names = [paper.backbone_name(backbone) for backbone in backbones]
            printed = {name: _printed(paper_name, name, names) for name in SHOWN}
            columns[f"{dataset.name}, paper"] = printed
            columns[f"{dataset.name}, difference"] = {
                name: difference(ours[name], printed[name]) for name in SHOWN
            }
    for paper_name in paper.DATASETS.values():
        if paper_name not in compared:
            printed = {name: _printed(paper_name, name, paper.BACKBONES) for name in SHOWN}
            columns[f"{paper_name}, paper"] = printed
    return columns


def _backbones(run: FinishedRun, dataset: DatasetConfig, values: Values) -> list[BackboneConfig]:
    """Returns the backbones under which a data set has values."""
    return [b for b in run.backbones(dataset.name) if (dataset.name, b.name) in values]


def _printed(dataset: str | None, name: str, backbones: Sequence[str | None]) -> float | None:
    """Returns the paper's value, averaged over backbones; None if it lacks one of them."""
    by_backbone = paper.tables()["noise_model"].get(dataset, {}).get(name, {})
    values = [by_backbone.get(backbone) for backbone in backbones]
    return None if None in values or not values else mean(values)


def noise_models(unit: Unit) -> dict[str, NoiseFit]:
    """Fits the seven models of pair prompts to a unit's raw scores and labels."""
    columns, classes = pair_columns(unit.data.bank)
    if len(columns) < MIN_PAIRS:
        raise UserError(
            f"The prompts of {unit.key[0]} contain {len(columns)} pairs such as 'A and B', but the "
            f"noise model needs at least {MIN_PAIRS}; use a run with more pairs."
        )
    passes, stages = unit.passes(), unit.stages
    stages.start(STAGE, sum(passes.images))
    parts = passes.each(STAGE, partial(_pairs, unit.shards, columns, classes))

    numbers = count(1)

    def summed(work: Any, *arguments: Any) -> Any:
        stages.next_pass(STAGE, next(numbers))
        return passes.merged_over(parts, STAGE, stages, work, *arguments)

    balance = submit(_balance, summed(CellCounts.of))

    def one_pass(tables: Floats) -> CellSums:
        found: CellSums = get(
            summed(CellSums.of, share(tables), balance), passes.limit, "A pass of the noise model"
        )
        return found

    counted = get(balance, passes.limit, "The first pass of the noise model")
    fits = fit(one_pass, counted, classes, len(unit.data.bank.classes), most_passes=MAX_PASSES)
    stages.say(f"noise model  {next(numbers) - 1} passes")
    return fits


def pair_columns(bank: PromptBank) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the columns of the bank's "A and B" prompts (P,) and their classes (P, 2).

    Pairs with a background class are left out: it has no labels.
    """
    columns, classes = [], []
    for column, prompt in enumerate(bank.compound):
        # The labels say nothing about background classes.
        if prompt.origin == "pair" and max(prompt.class_ids) < len(bank.classes):
            i, j = prompt.class_ids
            texts = (pair_prompt(bank.classes, *order).text for order in ((i, j), (j, i)))
            if prompt.text in texts:
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
    """Returns the pair scores and labels of a group's labelled images."""
    scores, labels = [], []
    for shard in group.shards:
        ids, stored = shards.scores(shard)
        labelled, present = shards.labels(shard, ids.to_pylist())
        scores.append(stored.compound[labelled][:, columns])
        labels.append(present[labelled])
    return Pairs(np.concatenate(scores), np.concatenate(labels), classes)
