"""Presets: the kinds of data sets, and the settings and backbones of the paper.

They are the defaults of what a config leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: The model that is bundled with this package.
TINY = "sparc-tiny"
#: Not a model: ``sparc-dist simulate`` draws its scores from the noise model.
SIMULATED = "simulated"
#: Not a backbone either: the unit that averages those of a data set.
ENSEMBLE = "ensemble"

#: The paper's backbones: the model, and the name of OpenAI's file with its weights.
OPENAI = {
    "ViT-L-14-336": ("ViT-L-14-336-quickgelu", "ViT-L-14-336px.pt"),
    "ViT-L-14": ("ViT-L-14-quickgelu", "ViT-L-14.pt"),
    "ViT-B-16": ("ViT-B-16-quickgelu", "ViT-B-16.pt"),
    "ViT-B-32": ("ViT-B-32-quickgelu", "ViT-B-32.pt"),
    "RN50x64": ("RN50x64-quickgelu", "RN50x64.pt"),
    "RN50x16": ("RN50x16-quickgelu", "RN50x16.pt"),
    "RN50x4": ("RN50x4-quickgelu", "RN50x4.pt"),
    "RN101": ("RN101-quickgelu", "RN101.pt"),
    "RN50": ("RN50-quickgelu", "RN50.pt"),
}


@dataclass(frozen=True)
class DatasetPreset:
    """The paper's settings for an official data set, which has classes and training labels.

    direction: the test for co-occurring pairs. resnet_size: the input side of ResNets, in pixels.
    """

    direction: Literal["either", "forward"]
    resnet_size: int


#: The fusion that decides on official and on other data sets, unless a config names one.
DECIDES = {"official": "sparc", "own": "duo"}

#: Every kind of data set, each with a module in ``datasets``; the official ones have a preset.
DATASET_KINDS: dict[str, DatasetPreset | None] = {
    "voc2007": DatasetPreset("forward", 512),
    "coco2014": DatasetPreset("either", 448),
    "nuswide": DatasetPreset("either", 448),
    "folder": None,
    "manifest": None,
    "webdataset": None,
}
