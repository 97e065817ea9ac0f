"""ensemble: each backbone, their mean, and the ensemble, with intervals of what it gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from sparc_dist.config import ENSEMBLE
from sparc_dist.core import METHODS
from sparc_dist.errors import UserError
from sparc_dist.experiments.figures import bars, intervals
from sparc_dist.experiments.resampling import REMARK, ResampledMean, StoredScores, resampled_means
from sparc_dist.experiments.result import Result
from sparc_dist.experiments.session import ExperimentSession
from sparc_dist.pipeline.unit import Unit
from sparc_dist.runs import TITLES, UnitShards
from sparc_dist.runs.tables import Cell, Table

MEAN = "mean of backbones"
COLUMNS = ("data set", "method", "backbone", "mAP (%)", "ensemble minus it", "low", "high")
SUMMARY = (*COLUMNS[:4], "ensemble minus it")
REMARKS = (
    REMARK,
    f"`{ENSEMBLE}`: the mean over backbones of each class's standardised final score. `{MEAN}`: "
    "the mean of their mAPs. The best backbone of each method is in italics.",
)
NONE = (
    "{}: the run has no ensemble, which needs two finished backbones and `average_backbones`; "
    "start the run again."
)

#: The mAPs of a method by backbone.
Means = Mapping[str, ResampledMean]


@dataclass(frozen=True)
class MethodResult:
    """A method on a data set. means: of backbones. ensemble: None if there is none."""

    dataset: str
    method: str
    means: Means
    ensemble: ResampledMean | None

    @property
    def best(self) -> str:
        """The backbone with the highest mAP."""
        return max(self.means, key=lambda name: self.means[name].observed)

    @property
    def compared(self) -> dict[str, ResampledMean]:
        """What the ensemble is compared with: each backbone, and their mean."""
        every = list(self.means.values())
        mean = ResampledMean(
            float(np.mean([one.observed for one in every])),
            np.mean([one.draws for one in every], axis=0),
        )
        return {**self.means, MEAN: mean}

    def rows(self) -> list[list[Cell]]:
        """Returns a row for each backbone, their mean and the ensemble."""
        start: list[Cell] = [self.dataset, TITLES[self.method]]
        found: list[list[Cell]] = []
        for name, mean in self.compared.items():
            gap = (None,) * 3 if self.ensemble is None else self.ensemble.minus(mean)
            found.append([*start, name, mean.observed, *gap])
        if self.ensemble is not None:
            found.append([*start, ENSEMBLE, self.ensemble.observed, None, None, None])
        return found

    def summary(self) -> list[list[Cell]]:
        """Returns the rows for the page."""
        return [
            [*row[:2], f"*{row[2]}*" if row[2] == self.best else row[2], row[3], _text(row[4:])]
            for row in self.rows()
        ]


def ensemble(session: ExperimentSession) -> Result:
    """Returns the mAP of each backbone and of the ensemble, and what that gains over each."""
    found: list[MethodResult] = []
    remarks: list[str] = []
    for name in _datasets(session):
        units = {key[1]: unit for key, unit in session.units.items() if key[0] == name}
        if (name, ENSEMBLE) not in session.run.results.metrics:
            remarks.append(NONE.format(name))
        found += _results(session, name, units)
    rows = [row for result in found for row in result.rows()]
    summary = [row for result in found for row in result.summary()]
    told = [*REMARKS, *remarks]
    table = Table(COLUMNS, rows)
    return Result("Ensemble of backbones", table, _figure(found), told, Table(SUMMARY, summary, 2))


def _datasets(session: ExperimentSession) -> list[str]:
    """Returns the data sets of the run, or the one that the user named."""
    names = [dataset.name for dataset in session.run.datasets]
    chosen = session.options.dataset
    if chosen is not None and chosen not in names:
        raise UserError(f"--dataset {chosen}: the run has {', '.join(names)}; choose one of them.")
    return [name for name in names if chosen in (None, name)]


def _results(
    session: ExperimentSession, dataset: str, units: Mapping[str, Unit]
) -> list[MethodResult]:
    """Returns the results of all methods that the units have."""
    known = session.run.results.metrics
    methods = tuple(m for m in METHODS if all(m in known[dataset, name] for name in units))
    means = {
        name: resampled_means(unit, _source(unit, name, methods)) for name, unit in units.items()
    }
    whole: Mapping[str, ResampledMean] = {}
    if (dataset, ENSEMBLE) in known:
        first = next(iter(units.values()))
        whole = resampled_means(first, _source(first, ENSEMBLE, methods))
    return [
        MethodResult(dataset, m, {name: own[m] for name, own in means.items()}, whole.get(m))
        for m in methods
    ]


def _source(unit: Unit, name: str, methods: tuple[str, ...]) -> StoredScores:
    """Returns the final scores of a unit, or of another one of its data set."""
    data, bank = unit.data, unit.data.bank
    sizes = (len(bank.classes), len(bank.compound), len(bank.background))
    return StoredScores(UnitShards(data.layout, data.layout.unit(name), *sizes), methods)


def _figure(results: Sequence[MethodResult]) -> Figure:
    """Returns what ensembles gain over each backbone; without ensembles, the mAPs."""
    gains = {
        f"{one.dataset}, {TITLES[one.method]}, minus {name}": one.ensemble.minus(mean)
        for one in results
        if one.ensemble is not None
        for name, mean in ((f"best ({one.best})", one.means[one.best]), (MEAN, one.compared[MEAN]))
    }
    if gains:
        return intervals([*gains], {ENSEMBLE: [*gains.values()]}, "mAP gained (points)")
    values = {
        (one.dataset, name, one.method): mean.observed
        for one in results
        for name, mean in one.means.items()
    }
    units = list(dict.fromkeys(key[:2] for key in values))
    series = {
        TITLES[method]: [values.get((*unit, method)) for unit in units]
        for method in dict.fromkeys(key[2] for key in values)
    }
    return bars([" × ".join(unit) for unit in units], series, "mAP (%)")


def _text(gap: Sequence[Cell]) -> str | None:
    if gap[0] is None:
        return None
    value, low, high = (f"{number:+.2f}" for number in gap)
    return f"{value} [{low}, {high}]"
