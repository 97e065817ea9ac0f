"""The numbers that the paper prints, and which of them a run can be compared with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from sparc_dist.config import OPENAI, BackboneConfig, DatasetConfig
from sparc_dist.datasets import KINDS

#: The paper's names of its data sets, by kind, in the paper's order.
DATASETS = {
    kind: name
    for name in ("COCO", "VOC", "NUSWIDE")
    for kind, details in KINDS.items()
    if details.paper_name == name
}
BACKBONES = tuple(OPENAI)


@cache
def tables() -> dict[str, Any]:
    """Returns the paper's tables: mAP in percent, FVU as a fraction."""
    content = files("sparc_dist.experiments").joinpath("paper.json").read_text()
    found: dict[str, Any] = json.loads(content)
    return found


def dataset_name(dataset: DatasetConfig) -> str | None:
    """Returns the paper's name of a data set; None if the paper does not use it."""
    return DATASETS.get(dataset.kind)


def backbone_name(backbone: BackboneConfig) -> str | None:
    """Returns the paper's name of a backbone; None if its model, weights or features are other."""
    if backbone.features != "global":
        return None
    weights = backbone.tag or (backbone.weights or "").rsplit("/", 1)[-1]
    for name, (model, file) in OPENAI.items():
        if backbone.model == model and weights.lower() in ("openai", file.lower()):
            return name
    return None


def main_mean_ap(dataset: str | None, method: str, backbone: str | None) -> float | None:
    """Returns a mAP of the main table; backbone "average" is the average over all nine."""
    found = tables()["main"].get(dataset, {}).get(method, {}).get(backbone)
    return None if found is None else float(found)


def ablation_mean_aps(table: str, **condition: Any) -> Mapping[str, float]:
    """Returns the mAPs by data set of the ablation row with these cells."""
    for row in tables()[table]:
        if all(row[name] == value for name, value in condition.items()):
            found: Mapping[str, float] = row["mAP"]
            return found
    raise LookupError(f"the paper's {table} has no row with {condition}")


def missing(datasets: Iterable[DatasetConfig], backbones: Iterable[BackboneConfig]) -> list[str]:
    """Returns remarks on the paper's data sets and backbones that a run lacks."""
    return [
        *_missing("data sets", DATASETS.values(), {dataset_name(data) for data in datasets}),
        *_missing("backbones", BACKBONES, {backbone_name(backbone) for backbone in backbones}),
    ]


def _missing(what: str, wanted: Iterable[str], present: set[str | None]) -> Sequence[str]:
    names = [name for name in wanted if name not in present]
    return [f"Of the paper's {what}, this run lacks {', '.join(names)}."] if names else []
