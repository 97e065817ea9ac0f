"""What one image costs under a backbone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What an image costs under a backbone.

    image_size: the side of the square input. width: of an embedding.
    gflop: of the image tower for one image, two for each multiply-add of a product or convolution;
    the rest is small beside them.
    parameters: of both towers.
    activation_bytes: the most that is alive at once of the tensors, the input among them, that the
    image tower makes of one image in float32. Weights and what a library needs within a single
    operation come on top. A batch takes as many times more as it has images.
    """

    image_size: int
    gflop: float
    parameters: int
    activation_bytes: int
    width: int


#: Of units, by the names of data set and backbone.
Costs = Mapping[tuple[str, str], Cost]
