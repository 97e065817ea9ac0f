"""Decisions in storage: decisions.json, and what is said about classes in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


#: What is said about the classes of a status; {names} are theirs.
SENTENCES = {
    "constant": (
        "Every image scores the same for {names}, so these answers mean nothing; reword the class "
        "or use another model."
    ),
    "prior": (
        "There are too few images or classes to estimate how many images contain {names}: a share "
        "was assumed, the same for every class; more images help, or `sparc-dist decide` with "
        "--per-image, --prevalence or --answers."
    ),
    "unclear": (
        "The scores do not show how many images contain {names}; `sparc-dist decide` with "
        "--prevalence or with --answers about 50 images helps."
    ),
    "common": (
        "Many images seem to contain {names}, and how many is hard to tell from scores; check some "
        "images, or use `sparc-dist decide` with --prevalence."
    ),
}
SHOWN = 8  # names in a sentence


def doubts_of(status: Sequence[str], classes: Sequence[str]) -> dict[str, list[str]]:
    """Returns the classes of each status that is in doubt; ``status``: of every class."""
    pairs = list(zip(status, classes, strict=True))
    found = {kind: [name for own, name in pairs if own == kind] for kind in SENTENCES}
    return {kind: names for kind, names in found.items() if names}


def sentences(doubts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields a sentence for each status in doubt."""
    for kind, names in doubts.items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield SENTENCES[kind].format(names=", ".join(names[:SHOWN]) + more)
