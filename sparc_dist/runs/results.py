"""Results: how far each data set and unit of a run has come, and with what outcome.

dataset.json and metrics.json say it in storage. An ensemble, the mean over the finished backbones
of a data set, is due when these change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from sparc_dist import storage
from sparc_dist.config import ENSEMBLE, BackboneConfig, Config
from sparc_dist.core import FUSIONS, PLAIN
from sparc_dist.errors import OVERWRITE, UserError
from sparc_dist.runs.decisions import sentences
from sparc_dist.runs.layout import DatasetLayout, RunLayout, UnitLayout

#: The key of metrics.json that says why a unit that was finished is not so any more.
UNFINISHED = "unfinished"
#: The reason while decisions are fitted again: everything else of the unit is as it should be.
DECIDING = "deciding"
#: The reasons while images change: new ones are labelled, or all are fitted again.
LABELLING = "its labeler labels new images"
FITTING = "its images change"


def read_dataset_facts(data: DatasetLayout) -> dict[str, Any] | None:
    """Returns dataset.json; None if there is none. Raises UserError if it is damaged.

    A data set without it is listed again, and other images would be found.
    """
    found = storage.read_json_if_exists(data.marker)
    if found is None and not storage.is_missing(data.marker):
        raise UserError(
            f"{storage.without_secrets(data.marker)} is damaged; restore it from a backup, or "
            f"start over with {OVERWRITE}."
        )
    return found


def read_metrics(unit: UnitLayout, deciding: bool = False) -> dict[str, Any] | None:
    """Returns the metrics of a finished unit; None for any other.

    deciding: also those of a unit whose decisions were being fitted again
    """
    found = storage.read_json_if_exists(unit.metrics)
    reason = found.pop(UNFINISHED, None) if found else None
    return found if reason is None or (deciding and reason == DECIDING) else None


def reason_unfinished(unit: UnitLayout) -> str | None:
    """Returns why a unit that was finished is not so any more; None if it was not, or still is."""
    return (storage.read_json_if_exists(unit.metrics) or {}).get(UNFINISHED)


def reopen(unit: UnitLayout, why: str) -> None:
    """Marks a unit as unfinished before its files change: the next start does what is missing.

    Nothing is deleted: a run needs no right to do so.
    """
    found = storage.read_json_if_exists(unit.metrics)
    if found is not None:
        storage.write_json(unit.metrics, {**found, UNFINISHED: why})


#: The names of a data set and a backbone.
UnitKey = tuple[str, str]
#: Which part of a run to do: score the images, reduce the scores, or both.
Phase = Literal["all", "score", "reduce"]
#: How a run follows its images. ``label``: its labeler labels new ones; ``refit``: all are fitted
#: again; both without removed ones. ``extend``: new ones are added, and all are fitted again.
Growing = Literal["label", "refit", "extend"]
#: Which images that could not be read are tried again at a start.
Retry = Literal["all", "passing", "none"]
#: For each data set, the backbones whose units are not finished.
Pending = dict[str, list[BackboneConfig]]

NO_LABELS = "There are no labels, so there is no mAP; the scores are in `final/`."


def error_limits(record: dict[str, Any]) -> dict[UnitKey, float]:
    """Returns the max_error_share of units with unreadable images; ``record`` is a run.json."""
    return {
        (unit["dataset"], unit["backbone"]): unit["max_error_share"]
        for unit in record.get("units", [])
        if "max_error_share" in unit
    }


def possible_units(backbones: Sequence[str]) -> list[str]:
    """Returns the names of the units that a data set can have; one backbone has no ensemble."""
    return [*backbones, *([ENSEMBLE] if len(backbones) > 1 else [])]


def existing_units(
    layout: RunLayout, datasets: Sequence[str], backbones: Sequence[str]
) -> list[str]:
    """Returns the backbones of a run, and ``ensemble`` if any of its data sets has one."""
    ensembles = (layout.dataset(name).unit(ENSEMBLE) for name in datasets)
    *_, last = possible_units(backbones)
    if last != ENSEMBLE or any(map(read_metrics, ensembles)):
        return possible_units(backbones)
    return list(backbones)


@dataclass
class Results:
    """The metrics of the finished units, and why others failed.

    notes: for each data set, what its preparation left out. nothing_to_do: whether all units were
    finished before the run started. changes: for each data set, what became of its images since.
    limits: the max_error_share of units with unreadable images, known once the run has ended.
    """

    layout: RunLayout
    datasets: list[str]
    backbones: list[str]
    metrics: dict[UnitKey, dict[str, Any]] = field(default_factory=dict)
    failures: dict[UnitKey, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    nothing_to_do: bool = False
    changes: dict[str, str] = field(default_factory=dict)
    limits: dict[UnitKey, float] = field(default_factory=dict)

    @classmethod
    def read(cls, layout: RunLayout, record: dict[str, Any]) -> Results:
        """Reads the results of a run from storage; ``record`` is its run.json."""
        results = cls(
            layout,
            [dataset["name"] for dataset in record["config"]["datasets"]],
            [backbone["name"] for backbone in record["config"]["backbones"]],
        )
        for name in results.datasets:
            if prepared := read_dataset_facts(layout.dataset(name)):
                results.notes[name] = prepared["notes"]
        for key in product(results.datasets, possible_units(results.backbones)):
            if done := read_metrics(layout.dataset(key[0]).unit(key[1])):
                results.metrics[key] = done
        for unit in record.get("units", []):
            if unit["status"] == "failed":
                results.failures[unit["dataset"], unit["backbone"]] = unit["error"]
        results.limits = error_limits(record)
        return results

    @property
    def sha256(self) -> str:
        """The hash of everything that a report shows."""
        outcomes = [*self.metrics.items(), *self.failures.items(), *self.limits.items()]
        units = [[*key, outcome] for key, outcome in outcomes]
        parts = [self.datasets, self.backbones, units, self.notes]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def mean_ap(self, dataset: str, backbone: str, method: str) -> float | None:
        """Returns the mAP in percent, or None if the unit failed or has no labels."""
        metrics = self.metrics.get((dataset, backbone))
        found: float | None = metrics.get(method, {}).get("mAP") if metrics else None
        return found

    @property
    def units(self) -> list[str]:
        """The backbones, and ``ensemble`` if any data set has one."""
        made = any(name == ENSEMBLE for _, name in (*self.metrics, *self.failures))
        return possible_units(self.backbones) if made else list(self.backbones)

    @property
    def columns(self) -> list[str]:
        """The columns of the main table: backbones, their average, the ensemble if there is one."""
        return [*self.backbones, "average", *self.units[len(self.backbones) :]]

    def average(self, dataset: str, method: str) -> float | None:
        """Returns the mean over the backbones that have a mAP."""
        maps = [self.mean_ap(dataset, backbone, method) for backbone in self.backbones]
        present = [value for value in maps if value is not None]
        return sum(present) / len(present) if present else None

    @property
    def methods(self) -> list[str]:
        """The methods that some unit has."""
        found = list(self.metrics.values())
        return [name for name in FUSIONS if not found or any(name in one for one in found)]

    def rows(self) -> Iterator[tuple[str, str, list[float | None]]]:
        """Yields (data set, method, mAP of each of ``columns``)."""
        for dataset in self.datasets:
            for method in self.methods:
                values = {name: self.mean_ap(dataset, name, method) for name in self.units}
                values["average"] = self.average(dataset, method)
                yield dataset, method, [values[name] for name in self.columns]

    def warnings(self) -> Iterator[str]:
        """Yields where the method that decides ranks worse than plain CLIP."""
        for (dataset, backbone), metrics in self.metrics.items():
            primary = metrics["primary"]
            ours, plain = metrics[primary]["mAP"], metrics[PLAIN]["mAP"]
            if ours is not None and plain is not None and ours < plain:
                yield (
                    f"{dataset} × {backbone}: {FUSIONS[primary].title} has a lower mAP "
                    f"({ours:.1f}) than ZSCLIP ({plain:.1f}); prefer the ZSCLIP scores here, or "
                    "add classes, background or images."
                )

    def remarks(self) -> Iterator[str]:
        """Yields what a reader must know besides the numbers of the table."""
        for dataset, notes in self.notes.items():
            yield from (f"{dataset}: {note}" for note in notes)
        for (dataset, backbone), metrics in self.metrics.items():
            unit = f"{dataset} × {backbone}"
            errors = metrics["errors"]
            total = metrics["images"] + errors["images"]
            if not metrics["labelled"]:
                yield f"{unit}: {NO_LABELS}"
            elif metrics["labelled"] < total:
                labelled = metrics["labelled"]
                yield f"{unit}: {labelled} of {total} images have labels; mAP covers only those."
            if errors["images"]:
                reasons = "; ".join(f"{n} × {why}" for why, n in errors["reasons"].items())
                yield f"{unit}: {errors['images']} of {total} images could not be read: {reasons}."
            empty = [name for name, ap in metrics[PLAIN]["AP"].items() if ap is None]
            if empty:
                yield f"{unit}: no image contains {', '.join(empty)}."
            if check := metrics.get("precision"):
                yield (
                    f"{unit}: scored in {check['precision']}; on {check['images']} images its "
                    f"scores differ from float32 by {check['largest_difference']:.2g} at most and "
                    f"{check['mean_difference']:.2g} on average."
                )
            yield from (f"{unit}: {note}" for note in metrics["notes"])
            yield from (f"{unit}: {doubt}" for doubt in sentences(metrics["doubts"]))
        for (dataset, backbone), reason in self.failures.items():
            yield f"{dataset} × {backbone} failed: {reason}"


#: The fewest backbones that are averaged.
FEWEST = 2

Metrics = Mapping[UnitKey, Mapping[str, Any]]


def members_of(config: Config, dataset: str, metrics: Metrics) -> dict[str, str]:
    """Returns the backbones to average, each with the key of its final scores; none if too few.

    metrics: of the finished units. Those that a labeler labelled have no key: what an ensemble
    needs was not gathered there.
    """
    if not config.average_backbones:
        return {}
    finished = ((b.name, metrics.get((dataset, b.name), {})) for b in config.backbones)
    found = {name: own["final_key"] for name, own in finished if "final_key" in own}
    return found if len(found) >= FEWEST else {}


def members_key(members: Mapping[str, str]) -> str | None:
    """Returns a hash of all that decides an ensemble's final scores; None for no ensemble."""
    if not members:
        return None
    return hashlib.sha256(json.dumps([*members.items()]).encode()).hexdigest()


def is_due(config: Config, dataset: str, metrics: Metrics) -> bool:
    """Whether the ensemble of a data set is to be made, made again or deleted."""
    stored = metrics.get((dataset, ENSEMBLE), {}).get("final_key")
    return stored != members_key(members_of(config, dataset, metrics))


def any_due(config: Config, metrics: Metrics) -> bool:
    """Whether an ensemble of any data set is to be made, made again or deleted."""
    return any(is_due(config, dataset.name, metrics) for dataset in config.datasets)
