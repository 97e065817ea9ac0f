"""Results: what became of the units of a run, in memory and as storage has it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from sparc_dist import storage
from sparc_dist.config import BackboneConfig
from sparc_dist.runs.layout import RunLayout

#: The names of a data set and a backbone.
UnitKey = tuple[str, str]
#: Which part of a run to do: score the images, reduce the scores, or both.
Phase = Literal["all", "score", "reduce"]
#: For each data set the backbones whose units are not finished.
Pending = dict[str, list[BackboneConfig]]

#: The methods of every report: their keys in files, and their titles.
TITLES = {"zsclip": "ZSCLIP", "debiased": "debiased", "sparc": "SPARC"}
NO_LABELS = "There are no labels, so there is no mAP; the scores are in `final/`."


@dataclass
class Results:
    """Metrics of the units that are finished, and why others failed.

    notes: for each data set what its preparation left out. nothing_to_do: all units were finished
    before the run started.
    """

    layout: RunLayout
    datasets: list[str]
    backbones: list[str]
    metrics: dict[UnitKey, dict[str, Any]] = field(default_factory=dict)
    failures: dict[UnitKey, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    nothing_to_do: bool = False

    @classmethod
    def read(cls, layout: RunLayout, record: dict[str, Any]) -> Results:
        """Reads what storage has of a run, whose run.json is ``record``."""
        results = cls(
            layout,
            [dataset["name"] for dataset in record["config"]["datasets"]],
            [backbone["name"] for backbone in record["config"]["backbones"]],
        )
        for name in results.datasets:
            if prepared := storage.read_json_if_exists(layout.dataset(name).marker):
                results.notes[name] = prepared["notes"]
        for key in product(results.datasets, results.backbones):
            if done := storage.read_json_if_exists(layout.dataset(key[0]).unit(key[1]).metrics):
                results.metrics[key] = done
        for unit in record.get("units", []):
            if unit["status"] == "failed":
                results.failures[unit["dataset"], unit["backbone"]] = unit["error"]
        return results

    @property
    def sha256(self) -> str:
        """Of all that a report is made from."""
        units = [[*key, of[key]] for of in (self.metrics, self.failures) for key in of]
        parts = [self.datasets, self.backbones, units, self.notes]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def mean_ap(self, dataset: str, backbone: str, method: str) -> float | None:
        """mAP in percent; None where the unit failed or has no labels."""
        metrics = self.metrics.get((dataset, backbone))
        return metrics[method]["mAP"] if metrics else None

    def average(self, dataset: str, method: str) -> float | None:
        """The mean over the backbones that have a mAP."""
        found = [self.mean_ap(dataset, backbone, method) for backbone in self.backbones]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if known else None

    def rows(self) -> Iterator[tuple[str, str, list[float | None]]]:
        """(data set, method, mAP of each backbone and then their average)."""
        for dataset in self.datasets:
            for method in TITLES:
                values = [self.mean_ap(dataset, name, method) for name in self.backbones]
                yield dataset, method, [*values, self.average(dataset, method)]

    def remarks(self) -> Iterator[str]:
        """What a reader of the table must know beside its numbers."""
        for dataset, notes in self.notes.items():
            yield from (f"{dataset}: {note}" for note in notes)
        for (dataset, backbone), metrics in self.metrics.items():
            unit = f"{dataset} × {backbone}"
            errors = metrics["errors"]
            total = metrics["images"] + errors["images"]
            if not metrics["labelled"]:
                yield f"{unit}: {NO_LABELS}"
            elif metrics["labelled"] < total:
                known = metrics["labelled"]
                yield f"{unit}: {known} of {total} images have labels; mAP is of those."
            if errors["images"]:
                reasons = "; ".join(f"{n} × {why}" for why, n in errors["reasons"].items())
                yield f"{unit}: {errors['images']} of {total} images could not be read: {reasons}."
            empty = [name for name, ap in metrics["sparc"]["AP"].items() if ap is None]
            if empty:
                yield f"{unit}: no image holds {', '.join(empty)}."
            if told := metrics.get("precision"):
                yield (
                    f"{unit}: scored in {told['precision']}; on {told['images']} images its scores "
                    f"differ from float32 by {told['largest_difference']:.2g} at most and "
                    f"{told['mean_difference']:.2g} on average."
                )
            yield from (f"{unit}: {note}" for note in metrics["notes"])
        for (dataset, backbone), reason in self.failures.items():
            yield f"{dataset} × {backbone} failed: {reason}"
