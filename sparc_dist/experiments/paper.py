"""The paper's own figures, as it prints them, and what of them a run can be compared with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from sparc_dist.config import OPENAI, BackboneConfig, DatasetConfig
from sparc_dist.datasets import KINDS

#: The paper's data sets: their names there, by our kind, in the paper's order.
DATASETS = {
    kind: name
    for name in ("COCO", "VOC", "NUSWIDE")
    for kind, known in KINDS.items()
    if known.paper_name == name
}
BACKBONES = tuple(OPENAI)


@cache
def tables() -> dict[str, Any]:
    """mAP in percent, FVU as a fraction."""
    content = files("sparc_dist.experiments").joinpath("paper.json").read_text()
    found: dict[str, Any] = json.loads(content)
    return found


def dataset_name(dataset: DatasetConfig) -> str | None:
    """What the paper calls a data set; None where it is not the paper's."""
    return DATASETS.get(dataset.kind)


def backbone_name(backbone: BackboneConfig) -> str | None:
    """What the paper calls a backbone; None where it is not the paper's, or has other weights."""
    weights = (backbone.weights or "").rsplit("/", 1)[-1]
    for name, (model, file) in OPENAI.items():
        if backbone.model == model and weights.lower() in ("openai", file.lower()):
            return name
    return None


def main_figure(dataset: str | None, method: str, backbone: str | None) -> float | None:
    """A mAP of the main table; backbone "average" for that of all nine."""
    found = tables()["main"].get(dataset, {}).get(method, {}).get(backbone)
    return None if found is None else float(found)


def ablation_figures(table: str, **condition: Any) -> Mapping[str, float]:
    """The mAPs, by data set, of the row of an ablation that has these cells."""
    for row in tables()[table]:
        if all(row[name] == value for name, value in condition.items()):
            found: Mapping[str, float] = row["mAP"]
            return found
    raise LookupError(f"the paper's {table} has no row with {condition}")


def missing(datasets: Iterable[DatasetConfig], backbones: Iterable[BackboneConfig]) -> list[str]:
    """Which of the paper's data sets and backbones a run lacks, in sentences."""
    return [
        *_lacking("data sets", DATASETS.values(), {dataset_name(data) for data in datasets}),
        *_lacking("backbones", BACKBONES, {backbone_name(backbone) for backbone in backbones}),
    ]


def _lacking(what: str, wanted: Iterable[str], there: set[str | None]) -> Sequence[str]:
    lacking = [name for name in wanted if name not in there]
    return [f"Of the paper's {what} this run lacks {', '.join(lacking)}."] if lacking else []
