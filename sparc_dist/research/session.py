"""A session: a finished run whose units experiments share, and how experiments are run on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sparc_dist import storage
from sparc_dist.config import BackboneConfig, Config, DatasetConfig
from sparc_dist.core import Method
from sparc_dist.errors import UserError, explain
from sparc_dist.pipeline import configure_ray
from sparc_dist.pipeline.executor import executor
from sparc_dist.pipeline.prepare import prepare
from sparc_dist.pipeline.small import is_small
from sparc_dist.pipeline.unit import Unit
from sparc_dist.research import EXPERIMENTS, paper
from sparc_dist.research.plug_in_scores import MethodName
from sparc_dist.research.result import Result
from sparc_dist.runs import Results, RunLayout, UnitKey, read_record

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class FinishedRun:
    """A run and the results of its finished units."""

    layout: RunLayout
    config: Config
    results: Results

    @property
    def keys(self) -> list[UnitKey]:
        """The finished units that have labels, without ensembles; only these are compared."""
        units = self.results.metrics.items()
        return [key for key, own in units if own["labelled"] and key[1] in self.results.backbones]

    @property
    def datasets(self) -> list[DatasetConfig]:
        """The data sets with a finished and labelled unit."""
        names = {dataset for dataset, _ in self.keys}
        return [dataset for dataset in self.config.datasets if dataset.name in names]

    def backbones(self, dataset: str) -> list[BackboneConfig]:
        """Returns the backbones under which a data set is finished and labelled."""
        return [b for b in self.config.backbones if (dataset, b.name) in self.keys]

    @property
    def is_sparc(self) -> bool:
        """Whether the run used the paper's method."""
        method = self.config.method
        same = replace(Method(), duo=method.duo, primary=method.primary, fusions=method.fusions)
        return same == method

    def has_all_nine(self, dataset: str) -> bool:
        """Whether a data set is finished under the paper's nine backbones and no others."""
        names = [paper.backbone_name(backbone) for backbone in self.backbones(dataset)]
        return sorted(map(str, names)) == sorted(paper.BACKBONES)

    def remarks(self) -> list[str]:
        """Returns remarks on what differs from the paper and on missing units."""
        units = len(self.config.datasets) * len(self.config.backbones)
        finished = {backbone for _, backbone in self.keys}
        backbones = [b for b in self.config.backbones if b.name in finished]
        remarks = paper.missing(self.datasets, backbones)
        if len(self.keys) < units:
            remarks.append(
                f"{len(self.keys)} of the run's {units} units are finished and have labels; "
                "only those are shown."
            )
        if not self.is_sparc:
            remarks.append(
                "The run's `method` is not the paper's; `main`, `per-class`, `compare`, "
                "`histograms` and `examples` show it as SPARC, the other experiments use the "
                "paper's method."
            )
        return remarks


def open_run(url: str, labels: bool = True) -> FinishedRun:
    """Opens the run at a URL; raises UserError if ``labels`` are needed and it has none."""
    layout = RunLayout(url)
    record = read_record(layout)
    run = FinishedRun(layout, _config(url, record["config"]), Results.read(layout, record))
    if labels and not run.keys:
        raise UserError(
            f"No unit of the run at {url} is finished and has labels; experiments compare scores "
            "with labels. Finish the run, or use a run on a labelled data set."
        )
    return run


def _config(url: str, identity: dict[str, Any]) -> Config:
    """Returns the config of a run, as far as it affects the results."""
    values = dict(identity)
    threads = values.pop("threads_per_scorer")
    return Config.model_validate(
        {**values, "output": url, "resources": {"threads_per_scorer": threads}}
    )


@dataclass(frozen=True)
class Options:
    """The user's options.

    label: the class to show. scores, method: the file of another method's scores, and its name.
    variants: whether variants are compared, and not the run's own methods.
    """

    dataset: str | None = None
    backbone: str | None = None
    label: str | None = None
    scores: str | None = None
    method: MethodName = "other"
    variants: bool = False


@dataclass
class ExperimentSession:
    """A run, the user's options and the names of the experiments to run.

    It opens an executor when the first experiment needs one, and shares work between experiments.
    """

    run: FinishedRun
    options: Options
    names: Sequence[str]
    _stack: ExitStack = field(default_factory=ExitStack)
    _units: dict[UnitKey, Unit] | None = None
    _found: dict[Hashable, Any] = field(default_factory=dict)

    def __enter__(self) -> ExperimentSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def units(self) -> dict[UnitKey, Unit]:
        """The run's finished units, on an executor that stays open until the session ends."""
        if self._units is None:
            config, results = self.run.config, self.run.results
            sizes = [results.metrics[key]["images"] for key in self.run.keys]
            self._stack.enter_context(executor(config.resources, is_small(config.resources, sizes)))
            units = {}
            for dataset in self.run.datasets:
                data = prepare(config, dataset, self.run.layout.dataset(dataset.name))
                for backbone in self.run.backbones(dataset.name):
                    units[dataset.name, backbone.name] = Unit(config, data, backbone)
            self._units = units
        return self._units

    def selected_units(self) -> list[Unit]:
        """Returns the units of the data set and backbone that the user named; all by default."""
        dataset, backbone = self.options.dataset, self.options.backbone
        selected = [
            unit
            for key, unit in self.units.items()
            if dataset in (None, key[0]) and backbone in (None, key[1])
        ]
        if not selected:
            available = ", ".join(" × ".join(key) for key in self.units)
            raise UserError(
                "No finished and labelled unit of the run matches "
                f"{dataset or 'any data set'} × {backbone or 'any backbone'}; choose one of: "
                f"{available}."
            )
        return selected

    def for_each(
        self, units: Iterable[Unit], work: Callable[[Unit], T]
    ) -> tuple[dict[UnitKey, T], list[str]]:
        """Returns ``work(unit)`` for each unit, and remarks on failures; raises if all fail."""
        results: dict[UnitKey, T] = {}
        failures: dict[UnitKey, Exception] = {}
        for unit in units:
            try:
                results[unit.key] = work(unit)
            except Exception as error:
                log.debug("unit failed", exc_info=error)
                failures[unit.key] = error
        if failures and not results:
            raise next(iter(failures.values()))
        return results, [
            f"{' × '.join(key)} is left out: {explain(e)}" for key, e in failures.items()
        ]

    def once(self, key: Hashable, work: Callable[[], T]) -> T:
        """Returns ``work()``, or raises what it raised; done once for all experiments."""
        if key not in self._found:
            try:
                self._found[key] = work()
            except Exception as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]


def run_experiments(
    names: Sequence[str], url: str, options: Options
) -> Iterator[tuple[str, Result | str]]:
    """Yields each experiment's name with its result, or with the reason why it failed."""
    configure_ray()
    run = open_run(url, any(EXPERIMENTS[name].needs_labels for name in names))
    storage.check_access(url)
    with ExperimentSession(run, options, names) as session:
        for name in names:
            try:
                result = EXPERIMENTS[name].run(session)
                _write(run.layout, name, result)
            except Exception as error:
                log.debug("experiment failed", exc_info=error)
                yield name, explain(error)
            else:
                yield name, result


def _write(layout: RunLayout, name: str, result: Result) -> None:
    """Writes the files of an experiment, and the pages of all on the run to one page.

    When the run is replaced, the pictures on that page say which experiments to delete.
    """
    for ending, content in result.files(name).items():
        storage.write_bytes(layout.experiment(name, ending), content)
    pages = [storage.read_if_exists(layout.experiment(other, "md")) for other in EXPERIMENTS]
    index = b"\n".join(page for page in pages if page is not None)
    storage.write_bytes(layout.experiments_index, index)
