"""Small score matrices, as arrays and as the authors' two pickles hold them."""

from __future__ import annotations

from typing import Any

import numpy as np


def small() -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(0)
    arrays = {
        "singleton": rng.normal(size=(6, 2)),
        "auxiliary": rng.normal(size=(6, 2)),
        "compound": rng.normal(size=(6, 1)),
        "labels": rng.integers(0, 2, (6, 2)),
    }
    return arrays, {"classes": ["cat", "dog"], "prompts": ["cat and dog"]}


def authors_small() -> tuple[dict[str, Any], dict[str, Any]]:
    arrays, prompts = small()
    impaths = [f"{i}.jpg" for i in range(6)]
    singles = {
        "cossims": arrays["singleton"],
        "gts": arrays["labels"],
        "classnames": prompts["classes"],
        "impaths": impaths,
    }
    both = {
        "cossims": np.concatenate([arrays["auxiliary"], arrays["compound"]], axis=1),
        "gts": arrays["labels"],
        "simple_single_and_compound_prompts": prompts["classes"] + prompts["prompts"],
        "impaths": impaths,
    }
    return singles, both
