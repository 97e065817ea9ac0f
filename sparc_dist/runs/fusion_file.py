"""fusion.json: the fusions of a unit of version 0.1, which has no labeler. It is only read."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparc_dist import storage
from sparc_dist.core import (
    Duo,
    DuoOptions,
    Fusion,
    Fusions,
    Method,
    Moments,
    Views,
    method_options,
)
from sparc_dist.errors import UserError


def read_fusion(url: str) -> Fusion:
    """Reads SPARC's fusion, which every version has written."""
    return _sparc(storage.read_json(url))


def read_fusions(url: str) -> Fusions:
    """Reads both fusions; raises UserError where there is only SPARC's."""
    stored = storage.read_json(url)
    if "duo" not in stored:
        raise UserError(
            f"{url} was written by an older version, without duo; delete metrics.json beside it "
            "and start the run again: it keeps the scores and computes the rest."
        )
    sparc, duo = _sparc(stored), stored["duo"]
    views = Views(sparc.mentions, np.array(duo["centre"]), np.array(duo["sd"]))
    fitted = Duo(_options(stored), views, np.array(duo["weights"]), stored["notes"])
    return Fusions(sparc, fitted, len(stored["classes"]))


def _options(stored: dict[str, Any]) -> DuoOptions:
    return DuoOptions(**stored["duo"]["options"]) if "duo" in stored else DuoOptions()


def _sparc(stored: dict[str, Any]) -> Fusion:
    return Fusion(
        Method(**{**method_options(stored["method"]), "duo": _options(stored)}),
        [np.array(indices, dtype=np.int64) for indices in stored["mentions"]],
        Moments(stored["images"], np.array(stored["mean"]), np.array(stored["deviations"])),
        [np.array(weights) for weights in stored["weights"]],
        stored["notes"],
    )
