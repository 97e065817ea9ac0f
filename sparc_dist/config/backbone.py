"""The section of a backbone, the models that have a name here, and those of the paper."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from sparc_dist.config.names import Name, Section, Url
from sparc_dist.errors import Option

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

#: What prompts are compared with: the image's embedding, those of its patches, or both.
Features = Literal["global", "local", "both"]
#: The factor that similarities of patches have in their softmax.
LOCAL_SCALE = 100.0
#: What messages about weights ask for.
WEIGHTS = Option("`weights`")
WRITE_MODEL = Option("write model:")
SET_WEIGHTS = Option("on every node and set `weights` to its path")
SET_FOLDER = Option("on every node and set `weights_folder` to its folder")
EVERYWHERE = Option(", on every node, or correct the path")

#: How the names of checkpoint files end.
_FILES = (".pt", ".pth", ".bin", ".safetensors")


def is_file_name(weights: str) -> bool:
    """Whether ``weights`` names a checkpoint file rather than an open_clip tag."""
    return "/" in weights or weights.endswith(_FILES)


class BackboneConfig(Section):
    """A CLIP-type model.

    name: the name of the backbone and of its folders in the run.
    model: an open_clip model name, ``sparc-tiny`` (bundled with this package) or ``simulated``
    (only for ``sparc-dist simulate``).
    weights: an open_clip tag such as ``openai``, or the path or URL of a checkpoint; each node
    downloads a URL once. ``openai@REVISION`` is a commit or tag of the hub's repository.
    sha256: the SHA-256 hash of the checkpoint, which is checked before use.
    precision: the precision of the image tower; ``auto`` is float32 on CPUs and, as in OpenAI's own
    code, fp16 on GPUs. Scores are always stored as float32.
    image_size: the side of the square input, in pixels; the model's own by default.
    features: what prompts are compared with: the image's embedding (``global``, as in the paper),
    the embeddings of its patches (``local``), or ``both``, the mean of the two similarities.
    local_scale: how much a prompt prefers the patches that are most similar to it.
    """

    name: Name
    model: str
    weights: Url | None = None
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    image_size: int | None = Field(None, ge=16, le=4096)
    features: Features = "global"
    local_scale: float = Field(LOCAL_SCALE, ge=0, le=10_000)

    @model_validator(mode="after")
    def _check_weights(self) -> BackboneConfig:
        builtin = self.model in (TINY, SIMULATED)
        if builtin and self.weights is not None:
            raise ValueError(f"{self.model} takes no weights; remove {WEIGHTS}")
        if builtin and self.image_size is not None:
            raise ValueError(f"{self.model} has one input size; remove `image_size`")
        if not builtin and self.weights is None:
            raise ValueError(f"{WEIGHTS} is missing; name an open_clip tag or a checkpoint file")
        if self.sha256 and not is_file_name(self.weights or ""):
            raise ValueError("`sha256` needs a checkpoint file; name one under `weights`")
        file, at, _ = (self.weights or "").rpartition("@")
        if at and file.endswith(_FILES):
            raise ValueError("a file has no revision; remove it, or name the file's `sha256`")
        if self.revision is not None and not re.fullmatch(r"[\w.-]+", self.revision):
            raise ValueError("name a commit or a tag of the hub's repository after the @")
        right = f"{self.model}-quickgelu"
        if self.tag == "openai" and right in dict(OPENAI.values()):
            raise ValueError(
                f"OpenAI's weights give wrong scores with {self.model}; {WRITE_MODEL} {right}"
            )
        return self

    @model_validator(mode="after")
    def _check_features(self) -> BackboneConfig:
        if self.features == "global" and self.local_scale != LOCAL_SCALE:
            raise ValueError("`local_scale` needs features: local or both; set one or remove it")
        if self.features != "global" and self.model == SIMULATED:
            raise ValueError(f"model: {SIMULATED} has no images; remove `features`")
        return self

    @property
    def place(self) -> Option:
        """What messages about it begin with."""
        return Option(f"Backbone {self.name}")

    @property
    def tag(self) -> str:
        """The open_clip tag of the weights, without a revision; empty if they are a file."""
        weights = self.weights or ""
        return "" if is_file_name(weights) else weights.partition("@")[0].lower()

    @property
    def revision(self) -> str | None:
        """The revision of the hub's repository that is asked for."""
        _, at, revision = (self.weights or "").partition("@")
        return revision if at and self.tag else None

    def sized(self, resnet_size: int | None) -> BackboneConfig:
        """Returns the backbone with the input size that a data set sets for ResNets."""
        if self.image_size is not None or not self.model.startswith("RN"):
            return self
        return self.model_copy(update={"image_size": resnet_size})
