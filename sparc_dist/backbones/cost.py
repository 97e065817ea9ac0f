"""The cost of one image under a backbone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
    """

    image_size: int
    gflop: float
    parameters: int
    activation_bytes: int
    width: int


#: The costs of units, by the names of data set and backbone.
Costs = Mapping[tuple[str, str], Cost]
