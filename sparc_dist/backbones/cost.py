"""The cost of one image, and of one text, under a backbone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sparc_dist.config import BackboneConfig

#: The most products of patches and prompts that exist at a time.
PRODUCTS = 2**22


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
    patches: whose embeddings are compared with every prompt; none with global features. ``gflop``
    includes the embeddings, but not what depends on the number of prompts.
    """

    image_size: int
    gflop: float
    parameters: int
    activation_bytes: int
    width: int
    text_gflop: float = 0.0
    patches: int = 0

    def scoring_gflop(self, prompts: int) -> float:
        """Returns the cost of an image with its patches compared with this number of prompts.

        The comparison of the image's own embedding is small and not counted.
        """
        return self.gflop + 2e-9 * self.patches * self.width * prompts

    @property
    def product_bytes(self) -> int:
        """The size of the products of patches and prompts, their weights and one more copy."""
        return 3 * 4 * PRODUCTS if self.patches else 0


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
    return _known_costs().get(cost_key(backbone))


def cost_key(backbone: BackboneConfig) -> str:
    """Returns the key of a model, its input size and its features in costs.json."""
    size = "" if backbone.image_size is None else f"@{backbone.image_size}"
    return f"{backbone.model}{size}{'' if backbone.features == 'global' else ' with patches'}"


@cache
def _known_costs() -> dict[str, Cost]:
    content = files("sparc_dist.backbones").joinpath("costs.json").read_text()
    return {key: Cost(**fields) for key, fields in json.loads(content).items()}
