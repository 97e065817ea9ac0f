"""The cost of one image, and of one text, under a backbone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sparc_dist.config import BackboneConfig


@dataclass(frozen=True)
class Cost:
    """The cost of one image under a backbone.

    image_size: side of the square input in pixels. width: of an embedding.
    gflop: of the image tower, two per multiply-add. Only matrix products and convolutions are
    counted; the rest is small.
    parameters: of both towers.
    activation_bytes: peak size of all tensors, including the input, that the image tower holds for
    one image in float32. Weights and a library's workspace within one operation are extra. A batch
    takes this much per image.
    text_gflop: of the text tower for a text of usual length.
    """

    image_size: int
    gflop: float
    parameters: int
    activation_bytes: int
    width: int
    text_gflop: float = 0.0


#: The costs of units, by the names of data set and backbone.
Costs = Mapping[tuple[str, str], Cost]


def cost_of(backbone: BackboneConfig) -> Cost:
    """Returns the cost of an image under a backbone, at its input size."""
    known = known_cost(backbone)
    if known is not None:
        return known
    from sparc_dist.backbones.counting import count_cost  # loads torch

    return count_cost(backbone)


def known_cost(backbone: BackboneConfig) -> Cost | None:
    """Returns the cost of the bundled model and the paper's nine; None for any other.

    costs.json holds what ``counting`` counts, so that these need no torch, which takes seconds to
    load.
    """
    return _known_costs().get(cost_key(backbone.model, backbone.image_size))


def cost_key(model: str, image_size: int | None) -> str:
    """Returns the key of a model at an input size in costs.json."""
    return model if image_size is None else f"{model}@{image_size}"


@cache
def _known_costs() -> dict[str, Cost]:
    content = files("sparc_dist.backbones").joinpath("costs.json").read_text()
    return {key: Cost(**fields) for key, fields in json.loads(content).items()}
