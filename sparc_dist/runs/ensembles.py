"""Which ensembles a run should have: of each data set, the mean over its finished backbones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sparc_dist.config import ENSEMBLE, Config
from sparc_dist.runs.results import UnitKey

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
