"""The names of models that have a meaning of their own, and the backbones of the paper."""

from __future__ import annotations

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
