"""A run in storage, as Arrow tables: no Ray, no model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparc_dist.config import load_config
from sparc_dist.runs.finished_unit import FinishedUnit, open_unit
from sparc_dist.runs.layout import RunLayout
from sparc_dist.runs.record import read_record
from sparc_dist.runs.results import Results, UnitKey
from sparc_dist.runs.status import UnitStatus, status


@dataclass(frozen=True)
class Run:
    """A run at ``root``, finished or not; everything is read from storage when it is asked for.

    The tables are those of a unit's files, all shards one below the other. ``dataset`` and
    ``backbone`` may be left out where there is only one; ``columns`` limits what is kept in memory.
    A unit that is not finished raises UserError.
    """

    root: str

    @property
    def units(self) -> list[UnitStatus]:
        """The status of each unit, in the order of the config."""
        return status(self.root)

    @property
    def metrics(self) -> dict[UnitKey, dict[str, Any]]:
        """The metrics of the finished units, by data set and backbone."""
        return self._results().metrics

    @property
    def failures(self) -> dict[UnitKey, str]:
        """Why other units failed, by data set and backbone."""
        return self._results().failures

    def unit(self, dataset: str | None = None, backbone: str | None = None) -> FinishedUnit:
        """Returns a finished unit: its ``classes``, ``metrics``, ``labeler()`` and more."""
        return open_unit(self.root, dataset, backbone)

    def final(
        self,
        dataset: str | None = None,
        backbone: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Returns the final scores: image_id, and a list of N numbers for each method."""
        return self.unit(dataset, backbone).table("final", columns)

    def labels(
        self,
        dataset: str | None = None,
        backbone: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Returns a row per image and class: image_id, class, probability, present."""
        return self.unit(dataset, backbone).table("labels", columns)

    def scores(
        self,
        dataset: str | None = None,
        backbone: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Returns image_id and lists of numbers: singleton, auxiliary, compound, embedding.

        Only those that the run's ``store`` keeps.
        """
        return self.unit(dataset, backbone).table("scores", columns)

    def errors(
        self,
        dataset: str | None = None,
        backbone: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Returns the images that could not be read: image_id, uri, error."""
        return self.unit(dataset, backbone).table("errors", columns)

    def _results(self) -> Results:
        layout = RunLayout(self.root)
        return Results.read(layout, read_record(layout))


def open_run(uri: str | os.PathLike[str]) -> Run:
    """Opens a run, named by its folder, its URL or its config; raises UserError if there is none.

    It may be under way or have failed: ``units`` says what is finished.
    """
    place = os.fspath(uri)
    run = Run(load_config(place).output if place.endswith((".yaml", ".yml")) else place)
    read_record(RunLayout(run.root))
    return run
