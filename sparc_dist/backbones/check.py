"""Checks of backbones: that a model exists, and that it can be loaded and scores an image.

The names and configs of models are read without importing open_clip, which takes seconds. A
backbone is tried in a process of its own, one after the other. So the largest one bounds the memory
needed, the peak is measured per backbone, and a crash does not affect the others.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sparc_dist.config import (
    DATASET_KINDS,
    OPENAI,
    SIMULATED,
    TINY,
    BackboneConfig,
    Config,
    letters,
)
from sparc_dist.errors import UserError

CLOSEST = 4  # names in a message
TITLE = f"{'backbone':<16} input  parameters  width  loaded in  peak memory  weights"


def check_model(config: BackboneConfig) -> None:
    """Raises UserError if there is no such model, or if it lacks the features that are asked for.

    The message has the closest names.
    """
    if config.model == SIMULATED:
        raise UserError(
            f"{config.place}: {SIMULATED} is not a model that can encode images; draw "
            "its scores with sparc-dist simulate."
        )
    known = model_names()
    if config.model in known:
        if config.features != "global" and not _has_patches(config.model):
            raise no_patches(config)
        return
    openai = [model for model, _ in OPENAI.values()]
    if config.tag == "openai":
        known = openai  # no other model has such weights
    plain = {_plain(name): name for name in reversed(known)}
    close = get_close_matches(_plain(config.model), plain, CLOSEST, 0.5)
    named = [plain[name] for name in close] or openai[-CLOSEST:]
    raise UserError(
        f"{config.place}: open_clip has no model {config.model}; did you mean {', '.join(named)}?"
    )


def no_patches(config: BackboneConfig) -> UserError:
    """Returns the error of a model without local features."""
    return UserError(
        f"{config.place}: {config.model} has no local features, which need an attention "
        "pool (open_clip's ResNets) or a class token (its own ViTs); write features: global, or "
        "choose such a model."
    )


def _has_patches(model: str) -> bool:
    """Whether a config promises a tower of open_clip's own without an attentional pooler."""
    vision = {} if model == TINY else _config(model)["vision_cfg"]
    return not (vision.get("timm_model_name") or vision.get("attentional_pool"))


def _config(model: str) -> dict[str, Any]:
    """Returns open_clip's config of a model that it has."""
    loaded = sys.modules.get("open_clip")
    if loaded is not None:
        found: dict[str, Any] = loaded.get_model_config(model)
    else:
        (file,) = (file for file in _config_files() if file.stem == model)
        found = json.loads(file.read_text())
    return found


def _plain(model: str) -> str:
    """Returns a name's letters, without the ending that would make all that have it alike."""
    return letters(model.lower().removesuffix("-quickgelu"))


def model_names() -> list[str]:
    """Returns the names of the bundled model and of open_clip's, by name."""
    loaded = sys.modules.get("open_clip")
    if loaded is not None:  # its caller may have added models
        return sorted({TINY, *loaded.list_models()})
    return sorted({TINY, *(file.stem for file in _config_files())})


def _config_files() -> list[Path]:
    package = find_spec("open_clip")
    folders = package.submodule_search_locations or [] if package else []
    return [file for folder in folders for file in Path(folder).glob("model_configs/*.json")]


@dataclass(frozen=True)
class BackboneCheck:
    """The result of trying a backbone.

    width: of an embedding. seconds: to load the model. peak: memory of the process in bytes.
    """

    name: str
    image_size: int
    parameters: int
    width: int
    seconds: float
    peak: int
    weights_sha256: str

    def __str__(self) -> str:
        return (
            f"{self.name:<16} {self.image_size:>5}  {self.parameters / 1e6:>8.1f} M  "
            f"{self.width:>5}  {self.seconds:>7.1f} s  {self.peak / 1e9:>8.2f} GB  "
            f"{self.weights_sha256[:12]}"
        )


def check_backbones(config: Config | None) -> Iterator[BackboneCheck | UserError]:
    """Yields the result of each backbone of a config, or of the paper's nine backbones."""
    if config is None:
        official = [name for name, kind in DATASET_KINDS.items() if kind.official]
        datasets = [{"name": kind, "kind": kind, "images": "."} for kind in official]
        config = Config.model_validate({"output": ".", "datasets": datasets})
    for backbone in sized_backbones(config):
        try:
            yield _try_in_subprocess(backbone)
        except UserError as error:
            yield error


def sized_backbones(config: Config) -> list[BackboneConfig]:
    """Returns every backbone at every input size that a data set asks for."""
    sizes = [dataset.resnet_size for dataset in config.datasets]
    sized = (backbone.sized(size) for backbone in config.backbones for size in sizes)
    return list(dict.fromkeys(sized))


def _try_in_subprocess(config: BackboneConfig) -> BackboneCheck:
    """Tries a backbone in its own process."""
    process = subprocess.run(
        [sys.executable, "-m", "sparc_dist.backbones.check"],
        input=config.model_dump_json(),
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode < 0:
        raise UserError(
            f"{config.place}: its process was killed by signal {-process.returncode}, most "
            "likely for lack of memory; try it on a machine with more memory."
        )
    lines = process.stdout.splitlines()
    if process.returncode or not lines:
        reason = (process.stderr.strip().splitlines() or ["no error message"])[-1]
        raise UserError(f"{config.place}: cannot be tried ({reason}).")
    result = json.loads(lines[-1])
    if "error" in result:
        raise UserError(result["error"])
    return BackboneCheck(**result)


def _try(config: BackboneConfig) -> BackboneCheck:
    import numpy as np
    import torch

    from sparc_dist.backbones.models import Backbone, Scorer
    from sparc_dist.prompts import TextEmbeddings

    start = time.perf_counter()
    backbone = Backbone(config, "cuda" if torch.cuda.is_available() else "cpu")
    seconds = time.perf_counter() - start
    side = backbone.image_size
    pixels = np.random.default_rng(0).integers(0, 256, (1, side, side, 3), dtype=np.uint8)
    rows = backbone.encode_texts(["a photo of a cat", "a photo of a dog"]).cpu().numpy()
    # The scorer also checks that the scores are numbers.
    _, embedding = Scorer(backbone, TextEmbeddings(rows, rows, rows)).score(pixels, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return BackboneCheck(
        config.name,
        side,
        sum(values.numel() for values in backbone.model.parameters()),
        embedding.shape[1],
        seconds,
        peak if sys.platform == "darwin" else peak * 1024,  # Linux counts in KiB
        backbone.weights_sha256,
    )


def main() -> None:
    """Tries the backbone given on standard input and prints the result as JSON."""
    config = BackboneConfig.model_validate_json(sys.stdin.read())
    try:
        result = asdict(_try(config))
    except UserError as error:
        result = {"error": str(error)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
