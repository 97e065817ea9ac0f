"""The session: a run's units on Ray, where experiments get what they compare.

It opens a cluster when the first experiment asks for one, and does for all experiments together
what several of them need.
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
    """What a user may choose.

    label: the class to look at. scores, method: another method's scores and which it is.
    """

    dataset: str | None = None
    backbone: str | None = None
    label: str | None = None
    scores: str | None = None
    method: MethodName = "other"


@dataclass
class ExperimentSession:
    """A run, what the user chose, and which experiments are to be made."""

    run: FinishedRun
    options: Options
    names: Sequence[str]
    _open: ExitStack = field(default_factory=ExitStack)
    _units: dict[UnitKey, Unit] | None = None
    _aps: tuple[Aps, list[str]] | Exception | None = None
    _contrasts: dict[tuple[UnitKey, int], tuple[Histograms, tuple[Example, Example] | None]] = (
        field(default_factory=dict)
    )

    def __enter__(self) -> ExperimentSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def units(self) -> dict[UnitKey, Unit]:
        """The run's finished units, on a cluster that is there as long as the session."""
        if self._units is None:
            from sparc_dist.pipeline.cluster import cluster
            from sparc_dist.pipeline.prepare import prepare
            from sparc_dist.pipeline.unit import Unit

            config = self.run.config
            self._open.enter_context(cluster(config.resources))
            units = {}
            for dataset in self.run.datasets:
                layout = self.run.layout.dataset(dataset.name)
                limit = config.resources.no_progress_seconds
                data = prepare(dataset, layout, config.shard_size, limit)
                for backbone in self.run.backbones(dataset.name):
                    units[dataset.name, backbone.name] = Unit(config, data, backbone)
            self._units = units
        return self._units

    def of_each(
        self, units: Iterable[Unit], work: Callable[[Unit], T]
    ) -> tuple[dict[UnitKey, T], list[str]]:
        """What work gives of each unit, and remarks on those that failed; not all of them may."""
        found: dict[UnitKey, T] = {}
        failures: dict[UnitKey, Exception] = {}
        for unit in units:
            try:
                found[unit.key] = work(unit)
            except Exception as error:
                log.debug("unit failed", exc_info=error)
                failures[unit.key] = error
        if failures and not found:
            raise next(iter(failures.values()))
        return found, [
            f"{' × '.join(key)} is left out: {explain(e)}" for key, e in failures.items()
        ]

    def chosen(self) -> list[Unit]:
        """The units of the data set and backbone that the user named; all, where none is named."""
        wanted = (self.options.dataset, self.options.backbone)
        found = [
            unit
            for key, unit in self.units.items()
            if all(want in (None, has) for want, has in zip(wanted, key, strict=True))
        ]
        if not found:
            there = ", ".join(" × ".join(key) for key in self.units)
            raise UserError(
                f"The run has no finished and labelled unit {wanted[0] or 'of any data set'} × "
                f"{wanted[1] or 'any backbone'}; there is {there}."
            )
        return found

    def ablations(self) -> tuple[Aps, list[str]]:
        """The AP of every variant of the ablations that are to be made, and remarks."""
        if self._aps is None:
            variants = {
                condition.variant: None
                for name in self.names
                if name in ABLATIONS
                for condition in ABLATIONS[name].conditions
            }
            try:
                self._aps = self._evaluate(list(variants))
            except Exception as error:  # of all ablations, which need not each try again
                self._aps = error
        if isinstance(self._aps, Exception):
            raise self._aps
        return self._aps

    def contrast(self, unit: Unit, index: int) -> tuple[Histograms, tuple[Example, Example] | None]:
        """Of a class of a unit; looked at once, however many ask."""
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
            possible = [variant for variant in variants if columns.has(variant.prompts)]
            remarks += _on_prompts(dataset, len(possible) < len(variants))
            mentions = {name: columns.mentions(name) for name in _sets(possible)}
            views, failures = views_with(units, columns.more)
            for unit in units:
                able = possible
                if reason := failures.get(unit.key[1]):
                    able = [variant for variant in possible if columns.is_stored(variant.prompts)]
                    remarks.append(
                        f"{' × '.join(unit.key)}: prompts that the run did not ask about could "
                        f"not be scored: {reason}"
                    )
                known = Variants(tuple(able), {name: mentions[name] for name in _sets(able)})
                work[unit.key] = partial(evaluate_variants, variants=known, view=views[unit.key[1]])
        aps, failed = self.of_each(self.units.values(), lambda unit: work[unit.key](unit))
        return aps, remarks + failed


def _on_prompts(dataset: DatasetConfig, lacking: bool) -> Iterator[str]:
    """What to know of the prompts that stand for the paper's co-occurring ones."""
    source = dataset.prompts.source
    if source in ("all-pairs", "random", "none"):
        yield f"{dataset.name}: its co-occurring prompts are the run's own, of source: {source}."
    if lacking:
        yield f"{dataset.name}: the run's prompts hold no pair, so rows of pairs are empty."


def _sets(variants: Iterable[Variant]) -> list[str]:
    """The sets of prompts that variants need, each once."""
    return list(dict.fromkeys(variant.prompts for variant in variants))
