"""The config of ``label``: some images, their classes and one model."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sparc_dist.config.backbone import EVERYWHERE, SET_FOLDER, SET_WEIGHTS, WEIGHTS, WRITE_MODEL
from sparc_dist.config.file import parse, resolve
from sparc_dist.config.presets import TINY
from sparc_dist.config.schema import Config
from sparc_dist.errors import Option, Terms

#: The model that labels if none is named.
LABEL_MODEL = "ViT-B-16-quickgelu"
#: The names of the only data set and backbone of such a run.
LABEL_UNIT = ("images", "model")


def label_config(
    images: Sequence[str],
    classes: Sequence[str],
    out: str,
    model: str = LABEL_MODEL,
    weights: str | None = None,
) -> Config:
    """Returns the config of some images, their classes and one model.

    images: photos, folders, patterns or URLs. weights: OpenAI's by default.
    """
    if weights is None and model != TINY:
        weights = "openai"
    dataset = {
        "name": LABEL_UNIT[0],
        "kind": "folder",
        "images": images[0] if len(images) == 1 else images,
        "classes": classes,
    }
    raw = {
        "output": out,
        "datasets": [dataset],
        "backbones": [{"name": LABEL_UNIT[1], "model": model, "weights": weights}],
        "max_error_share": 1,  # unreadable images have rows of their own
    }
    return resolve(parse(raw), os.getcwd())


def label_terms(images: str, classes: str, model: str, weights: str, out: str) -> Terms:
    """Returns the terms of a command or function, given what it calls each part of such a config.

    Its weights are on one machine.
    """
    return {
        Option("datasets.0.images"): images,
        Option("datasets.0.classes"): classes,
        Option("backbones.0"): model,
        Option("backbones.0.weights"): weights,
        Option("output"): out,
        Option(f"Backbone {LABEL_UNIT[1]}"): model,
        WRITE_MODEL: f"use {model}",
        WEIGHTS: weights,
        SET_WEIGHTS: f"here and name it with {weights}",
        SET_FOLDER: f"here and name it with {weights}",
        EVERYWHERE: f", or correct {weights}",
    }
