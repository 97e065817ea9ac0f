"""The names and configs of models, without importing open_clip, which takes seconds."""

from __future__ import annotations

import json
import sys
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sparc_dist.config import OPENAI, SIMULATED, TINY, BackboneConfig, letters
from sparc_dist.errors import UserError

CLOSEST = 4  # names in a message


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
