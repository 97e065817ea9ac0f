"""The laboratory: a run's units on Ray, where experiments get what they compare.

It opens a cluster when the first experiment asks for one, and does for all experiments together
what several of them need.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparc_dist.core.trials import Trial, Trials
from sparc_dist.errors import UserError
from sparc_dist.experiments.ablations import ABLATIONS, Aps
from sparc_dist.experiments.opened import Key, Opened
from sparc_dist.experiments.prompt_sets import Columns
from sparc_dist.plug_in import MethodName

if TYPE_CHECKING:
    from sparc_dist.pipeline.unit import Unit


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
class Laboratory:
    """A run, what the user chose, and which experiments are to be made."""

    run: Opened
    options: Options
    names: Sequence[str]
    _open: ExitStack = field(default_factory=ExitStack)
    _units: dict[Key, Unit] | None = None
    _aps: tuple[Aps, list[str]] | None = None

    def __enter__(self) -> Laboratory:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def units(self) -> dict[Key, Unit]:
        """The run's finished units, on a cluster that is there as long as the laboratory."""
        if self._units is None:
            from sparc_dist.pipeline.cluster import cluster
            from sparc_dist.pipeline.prepare import prepare
            from sparc_dist.pipeline.unit import Unit

            config = self.run.config
            self._open.enter_context(cluster(config.resources))
            self._units = {}
            for dataset in self.run.datasets:
                layout = self.run.layout.dataset(dataset.name)
                limit = config.resources.no_progress_seconds
                data = prepare(dataset, layout, config.shard_size, limit)
                for backbone in self.run.backbones(dataset.name):
                    self._units[dataset.name, backbone.name] = Unit(config, data, backbone)
        return self._units

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
        """The AP of every trial of the ablations that are to be made, and remarks."""
        if self._aps is None:
            trials = {
                condition.trial: None
                for name in self.names
                if name in ABLATIONS
                for condition in ABLATIONS[name].conditions
            }
            self._aps = self._try(list(trials))
        return self._aps

    def _try(self, trials: Sequence[Trial]) -> tuple[Aps, list[str]]:
        from sparc_dist.pipeline.looks import looks_with
        from sparc_dist.pipeline.trials import try_all

        aps, remarks = {}, []
        for dataset in self.run.datasets:
            units = [unit for key, unit in self.units.items() if key[0] == dataset.name]
            columns = Columns(units[0].data.bank)
            mentions = {name: columns.mentions(name) for name in _sets(trials)}
            looks, failures = looks_with(units, columns.more)
            for unit in units:
                able = trials
                if told := failures.get(unit.key[1]):
                    able = [trial for trial in trials if columns.is_stored(trial.prompts)]
                    remarks.append(
                        f"{' × '.join(unit.key)}: prompts that the run did not ask about could "
                        f"not be scored: {told}"
                    )
                known = {name: mentions[name] for name in _sets(able)}
                aps[unit.key] = try_all(unit, Trials(tuple(able), known), looks[unit.key[1]])
        return aps, remarks


def _sets(trials: Iterable[Trial]) -> list[str]:
    """The sets of prompts that trials need, each once."""
    return list(dict.fromkeys(trial.prompts for trial in trials))
