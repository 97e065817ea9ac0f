"""fusion.json: both fitted fusions, with all that is needed to score a new image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from sparc_dist import storage
from sparc_dist.core import Duo, DuoOptions, Fusion, Fusions, Method, Moments, Views


def write_fusions(url: str, fusions: Fusions, columns: Sequence[str], prompts_sha256: str) -> None:
    """Writes both fusions; floats keep every bit. columns: classes, then background classes."""
    sparc, duo, count = fusions.sparc, fusions.duo, fusions.classes
    storage.write_json(
        url,
        {
            "classes": list(columns[:count]),
            "background": list(columns[count:]),
            "prompts_sha256": prompts_sha256,
            "method": asdict(sparc.method),
            "images": sparc.moments.count,
            "mean": sparc.moments.mean.tolist(),
            "deviations": sparc.moments.deviations.tolist(),
            "mentions": [indices.tolist() for indices in sparc.mentions],
            "weights": [weights.tolist() for weights in sparc.weights],
            "duo": {
                "options": asdict(duo.options),
                "centre": duo.views.centre.tolist(),
                "sd": duo.views.sd.tolist(),
                "weights": duo.weights.tolist(),
            },
            "notes": fusions.notes,
        },
    )


def read_fusion(url: str) -> Fusion:
    """Reads SPARC's fusion, which every version has written."""
    return _sparc(storage.read_json(url))


def read_fusions(url: str) -> Fusions:
    """Reads both fusions."""
    stored = storage.read_json(url)
    sparc, duo = _sparc(stored), stored["duo"]
    views = Views(sparc.mentions, np.array(duo["centre"]), np.array(duo["sd"]))
    fitted = Duo(DuoOptions(**duo["options"]), views, np.array(duo["weights"]), stored["notes"])
    return Fusions(sparc, fitted, len(stored["classes"]))


def _sparc(stored: dict[str, Any]) -> Fusion:
    return Fusion(
        Method(**stored["method"]),
        [np.array(indices, dtype=np.int64) for indices in stored["mentions"]],
        Moments(stored["images"], np.array(stored["mean"]), np.array(stored["deviations"])),
        [np.array(weights) for weights in stored["weights"]],
        stored["notes"],
    )
