"""fusion.json: the fitted fusion, with all that is needed to score a new image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from sparc_dist import storage
from sparc_dist.core import Fusion, Method, Moments


def write_fusion(url: str, fusion: Fusion, classes: Sequence[str], prompts_sha256: str) -> None:
    """Writes a fusion; its floats keep every bit."""
    moments = fusion.moments
    storage.write_json(
        url,
        {
            "classes": list(classes),
            "prompts_sha256": prompts_sha256,
            "method": asdict(fusion.method),
            "images": moments.count,
            "mean": moments.mean.tolist(),
            "deviations": moments.deviations.tolist(),
            "mentions": [indices.tolist() for indices in fusion.mentions],
            "weights": [weights.tolist() for weights in fusion.weights],
            "notes": list(fusion.notes),
        },
    )


def read_fusion(url: str) -> Fusion:
    """Reads a fusion."""
    stored = storage.read_json(url)
    return Fusion(
        Method(**stored["method"]),
        [np.array(indices, dtype=np.int64) for indices in stored["mentions"]],
        Moments(stored["images"], np.array(stored["mean"]), np.array(stored["deviations"])),
        [np.array(weights) for weights in stored["weights"]],
        stored["notes"],
    )
