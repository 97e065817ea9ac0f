"""The main table, as the paper prints it: data set × method, a column a backbone, the average."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

TITLES = {"zsclip": "ZSCLIP", "debiased": "debiased", "sparc": "SPARC"}
NO_LABELS = "There are no labels, so no mAP can be had; the scores are in `final/`."


@dataclass(frozen=True)
class Results:
    """The metrics of a run's finished units, and the reasons of those that failed.

    notes: for each data set what its preparation left out.
    """

    datasets: Sequence[str]
    backbones: Sequence[str]
    metrics: dict[tuple[str, str], dict[str, Any]]
    failures: dict[tuple[str, str], str]
    notes: dict[str, list[str]] = field(default_factory=dict)

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


def to_markdown(results: Results) -> str:
    """tables.md."""
    head = ["data set", "method", *results.backbones, "average"]
    lines = ["# mAP (%)", "", _row(head), _row(["---", "---"] + ["---:"] * (len(head) - 2))]
    for dataset, method, values in results.rows():
        lines.append(_row([dataset, TITLES[method], *map(shown, values)]))
    remarks = [f"- {remark}" for remark in results.remarks()]
    return "\n".join(lines + ([""] + remarks if remarks else [])) + "\n"


def to_csv(results: Results) -> str:
    """tables.csv: one line for each data set, backbone and method."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["dataset", "backbone", "method", "mAP"])
    for dataset, method, values in results.rows():
        for backbone, value in zip([*results.backbones, "average"], values, strict=True):
            writer.writerow([dataset, backbone, method, "" if value is None else repr(value)])
    return out.getvalue()


def shown(value: float | None) -> str:
    """A mAP as people read it."""
    return "–" if value is None else f"{value:.1f}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
