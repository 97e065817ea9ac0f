"""The paper: the numbers that it prints, which of them suit a run, and its method."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.config import DATASET_KINDS, OPENAI, BackboneConfig, DatasetConfig
from sparc_dist.core import Mentions, Scores

#: The paper's names of its data sets, by kind, in the paper's order.
DATASETS = {
    kind: name
    for name in ("COCO", "VOC", "NUSWIDE")
    for kind, details in DATASET_KINDS.items()
    if details.paper_name == name
}
BACKBONES = tuple(OPENAI)
#: mAP of SPARC on local features of RN50x64, as the paper's final version has them.
LOCAL, LOCAL_MEAN_APS = "RN50x64", {"COCO": 77.8, "VOC": 91.1, "NUSWIDE": 43.5}
#: mAP of PIAA (ICML 2026), another method on patches of CLIP.
PIAA = {"VOC": 92.5, "NUSWIDE": 50.6}


@cache
def tables() -> dict[str, Any]:
    """Returns the paper's tables: mAP in percent, FVU as a fraction."""
    content = files("sparc_dist.research").joinpath("paper.json").read_text()
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


def published_mean_ap(
    dataset: DatasetConfig, backbone: BackboneConfig, method: str
) -> float | None:
    """Returns the published mAP of a method with the backbone's features; None if there is none."""
    name = dataset_name(dataset)
    model = backbone_name(backbone.model_copy(update={"features": "global"}))
    if backbone.features == "global":
        return main_mean_ap(name, method, model)
    is_local = backbone.features == "local" and (model, method) == (LOCAL, "sparc")
    return LOCAL_MEAN_APS.get(name or "") if is_local else None


def peers(datasets: Iterable[DatasetConfig]) -> list[str]:
    """Returns a remark on what another method has published for these data sets."""
    names = {dataset_name(dataset): dataset.name for dataset in datasets}
    known = [f"{names[name]} {mean_ap} %" for name, mean_ap in PIAA.items() if name in names]
    return [f"PIAA (ICML 2026), on patches, publishes: {', '.join(known)}."] if known else []


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


def reference_sparc(scores: Scores, mentions: Mentions) -> NDArray[np.float64]:
    """Returns the final scores (M, N) of SPARC in its most direct form, for tests and benchmarks.

    Holds everything in memory, uses no shards and does not handle degenerate data.
    """
    singleton = scores.singleton.astype(np.float64)
    auxiliary = scores.auxiliary.astype(np.float64)
    compound = scores.compound.astype(np.float64)
    compound -= auxiliary.mean(1, keepdims=True)
    compound /= auxiliary.std(1, ddof=1, keepdims=True)
    singleton -= singleton.mean(1, keepdims=True)
    singleton /= singleton.std(1, ddof=1, keepdims=True)
    singleton = (singleton - singleton.mean(0)) / singleton.std(0, ddof=1)
    compound = (compound - compound.mean(0)) / compound.std(0, ddof=1)
    final = np.empty(singleton.shape)
    for index, prompts in enumerate(mentions):
        ranked = -np.sort(-compound[:, prompts], axis=1)
        vectors = np.column_stack([singleton[:, index], ranked])
        weights = np.linalg.eigh(np.cov(vectors, rowvar=False))[1][:, -1]
        weights *= np.sign(weights.sum()) / np.abs(weights).sum()
        final[:, index] = 0.5 * singleton[:, index] + 0.5 * vectors @ weights
    return final
