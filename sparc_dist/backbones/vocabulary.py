"""The names that background classes are taken from, as the backbones know them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from sparc_dist.config import TINY, BackboneConfig
from sparc_dist.prompts import general_vocabulary


def vocabulary_for(backbones: Sequence[BackboneConfig]) -> tuple[str, ...]:
    """Returns the names of the bundled model if there is no other, else the general vocabulary."""
    if all(backbone.model == TINY for backbone in backbones):
        return tiny_classes()
    return general_vocabulary()


@cache
def tiny_classes() -> tuple[str, ...]:
    """Returns the classes that the bundled model was trained on; it knows no others."""
    # Not through the package ``tiny``, which loads torch.
    content = files("sparc_dist.backbones").joinpath("tiny/classes.txt").read_text(encoding="utf-8")
    return tuple(content.split("\n")[:-1])
