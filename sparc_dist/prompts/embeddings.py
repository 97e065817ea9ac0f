"""The text embeddings of a prompt bank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class TextEmbeddings:
    """The embeddings of a prompt bank by one backbone, each row of length 1.

    singleton: (N + B, d), auxiliary: (N + B, d), compound: (P, d); B: the background classes.
    """

    singleton: Float32
    auxiliary: Float32
    compound: Float32

    @property
    def by_kind(self) -> tuple[Float32, Float32, Float32]:
        """The embeddings of each kind of prompt."""
        return self.singleton, self.auxiliary, self.compound
