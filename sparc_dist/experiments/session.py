"""The experiment session: a run's units on Ray, for all experiments of a command.

It opens an executor when the first experiment needs one, and shares work between experiments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sparc_dist.config import DatasetConfig
from sparc_dist.core.variants import Variant, Variants
from sparc_dist.errors import UserError, explain
from sparc_dist.experiments.ablations import ABLATIONS, Aps
from sparc_dist.experiments.contrast import Example, Histograms
from sparc_dist.experiments.finished_run import FinishedRun
from sparc_dist.experiments.prompt_sets import Columns
from sparc_dist.external_scores import MethodName
from sparc_dist.runs import UnitKey

if TYPE_CHECKING:
    from sparc_dist.pipeline.unit import Unit

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """The user's options.

    label: the class to show. scores, method: the file of another method's scores, and its name.
    """

    dataset: str | None = None
    backbone: str | None = None
    label: str | None = None
    scores: str | None = None
    method: MethodName = "other"


@dataclass
class ExperimentSession:
    """A run, the user's options and the names of the experiments to run."""

    run: FinishedRun
    options: Options
    names: Sequence[str]
    _stack: ExitStack = field(default_factory=ExitStack)
    _units: dict[UnitKey, Unit] | None = None
    _aps: tuple[Aps, list[str]] | Exception | None = None
    _contrasts: dict[tuple[UnitKey, int], tuple[Histograms, tuple[Example, Example] | None]] = (
        field(default_factory=dict)
    )

    def __enter__(self) -> ExperimentSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def units(self) -> dict[UnitKey, Unit]:
        """The run's finished units, on an executor that stays open until the session ends."""
        if self._units is None:
            from sparc_dist.pipeline.executor import executor
            from sparc_dist.pipeline.prepare import prepare
            from sparc_dist.pipeline.small import is_small
            from sparc_dist.pipeline.unit import Unit

            config = self.run.config
            small = is_small(config.resources, self.run.sizes)
            self._stack.enter_context(executor(config.resources, small))
            units = {}
            for dataset in self.run.datasets:
                layout = self.run.layout.dataset(dataset.name)
                data = prepare(config, dataset, layout)
                for backbone in self.run.backbones(dataset.name):
                    units[dataset.name, backbone.name] = Unit(config, data, backbone)
            self._units = units
        return self._units

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

    def ablations(self) -> tuple[Aps, list[str]]:
        """Returns the APs of all variants of the ablations to run, and remarks; computed once."""
        if self._aps is None:
            variants = {
                condition.variant: None
                for name in self.names
                if name in ABLATIONS
                for condition in ABLATIONS[name].conditions
            }
            try:
                self._aps = self._evaluate(list(variants))
            except Exception as error:  # kept, so that the other ablations do not try again
                self._aps = error
        if isinstance(self._aps, Exception):
            raise self._aps
        return self._aps

    def contrast(self, unit: Unit, index: int) -> tuple[Histograms, tuple[Example, Example] | None]:
        """Returns the contrast of a class of a unit; computed once."""
        from sparc_dist.experiments.contrast import contrast

        if (unit.key, index) not in self._contrasts:
            self._contrasts[unit.key, index] = contrast(unit, index)
        return self._contrasts[unit.key, index]

    def _evaluate(self, variants: Sequence[Variant]) -> tuple[Aps, list[str]]:
        from sparc_dist.experiments.score_view import views_with
        from sparc_dist.experiments.variant_passes import evaluate_variants

        work: dict[UnitKey, Callable[[Unit], dict[Variant, list[float | None]]]] = {}
        remarks: list[str] = []
        for dataset in self.run.datasets:
            units = [unit for key, unit in self.units.items() if key[0] == dataset.name]
            columns = Columns(units[0].data.bank)
            possible = [v for v in variants if columns.is_available(v.prompts)]
            remarks += _prompt_remarks(dataset, len(possible) < len(variants))
            mentions = {name: columns.mentions(name) for name in _sets(possible)}
            views, failures = views_with(units, columns.extra)
            for unit in units:
                usable = possible
                if reason := failures.get(unit.key[1]):
                    usable = [v for v in possible if columns.is_stored(v.prompts)]
                    remarks.append(
                        f"{' × '.join(unit.key)}: prompts that are not the run's own could not be "
                        f"scored: {reason}"
                    )
                used = Variants(tuple(usable), {name: mentions[name] for name in _sets(usable)})
                work[unit.key] = partial(evaluate_variants, variants=used, view=views[unit.key[1]])
        aps, failed = self.for_each(self.units.values(), lambda unit: work[unit.key](unit))
        return aps, remarks + failed


def _prompt_remarks(dataset: DatasetConfig, lacks_pairs: bool) -> Iterator[str]:
    """Yields remarks on how a data set's prompts differ from the paper's co-occurring prompts."""
    source = dataset.prompts.source
    if source in ("all-pairs", "random", "none"):
        yield f"{dataset.name}: the co-occurring prompts are the run's own, with source: {source}."
    if lacks_pairs:
        yield f"{dataset.name}: the run's prompts contain no pairs, so the rows of pairs are empty."


def _sets(variants: Iterable[Variant]) -> list[str]:
    """Returns the names of the prompt sets that variants need, without duplicates."""
    return list(dict.fromkeys(variant.prompts for variant in variants))
