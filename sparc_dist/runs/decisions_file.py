"""decisions.json: the decision rule of each class, and which method decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparc_dist import storage
from sparc_dist.core import Decision

#: The numbers of a class, as they are called in the file and in ``Decision``.
NUMBERS = ("prevalence", "threshold", "intercept", "mean", "sd")


def write_decisions(
    url: str,
    decisions: Mapping[str, Decision],
    classes: Sequence[str],
    primary: str,
    rule: Mapping[str, Any] | None = None,
) -> None:
    """Writes the rules of each method; floats keep every bit, and a missing number is null.

    rule: what ``sparc-dist decide`` was told; left out where it is nothing
    """
    methods = {name: _to_json(rule, classes) for name, rule in decisions.items()}
    told = {"rule": dict(rule)} if rule else {}
    storage.write_json(url, {"primary": primary, **told, **methods})


def read_decisions(url: str) -> tuple[dict[str, Decision], str]:
    """Reads the rules by method, and the name of the method that decides."""
    stored = dict(storage.read_json(url))
    primary = str(stored.pop("primary"))
    stored.pop("rule", None)
    return {name: _from_json(rule) for name, rule in stored.items()}, primary


def _to_json(rule: Decision, classes: Sequence[str]) -> dict[str, Any]:
    probability = rule.threshold_probability
    rows = {
        name: {
            "status": rule.status[index],
            "threshold_probability": _number(probability[index]),
            **{key: _number(getattr(rule, key)[index]) for key in NUMBERS},
        }
        for index, name in enumerate(classes)
    }
    return {"slope": rule.slope, "before_rival": rule.before_rival, "classes": rows}


def _from_json(stored: Mapping[str, Any]) -> Decision:
    rows = list(stored["classes"].values())
    columns = {
        key: np.array([np.nan if row[key] is None else row[key] for row in rows]) for key in NUMBERS
    }
    status = tuple(row["status"] for row in rows)
    return Decision(
        **columns, slope=stored["slope"], status=status, before_rival=stored["before_rival"]
    )


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
