"""The names of models, without importing open_clip, which takes seconds."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from sparc_dist.config import OPENAI, SIMULATED, TINY, BackboneConfig, letters
from sparc_dist.errors import UserError

CLOSEST = 4  # names in a message


def check_model(config: BackboneConfig) -> None:
    """Raises UserError if there is no such model; the message has the closest names."""
    if config.model == SIMULATED:
        raise UserError(
            f"Backbone {config.name}: {SIMULATED} is not a model that can encode images; draw "
            "its scores with sparc-dist simulate."
        )
    known = model_names()
    if config.model in known:
        return
    openai = [model for model, _ in OPENAI.values()]
    if (config.weights or "").lower() == "openai":
        known = openai  # no other model has such weights
    plain = {_plain(name): name for name in reversed(known)}
    close = get_close_matches(_plain(config.model), plain, CLOSEST, 0.5)
    named = [plain[name] for name in close] or openai[-CLOSEST:]
    raise UserError(
        f"Backbone {config.name}: open_clip has no model {config.model}; did you mean "
        f"{', '.join(named)}?"
    )


def _plain(model: str) -> str:
    """Returns a name's letters, without the ending that would make all that have it alike."""
    return letters(model.lower().removesuffix("-quickgelu"))


def model_names() -> list[str]:
    """Returns the names of the bundled model and of open_clip's, by name."""
    loaded = sys.modules.get("open_clip")
    if loaded is not None:  # its caller may have added models
        return sorted({TINY, *loaded.list_models()})
    package = find_spec("open_clip")
    folders = package.submodule_search_locations or [] if package else []
    files = [file for folder in folders for file in Path(folder).glob("model_configs/*.json")]
    return sorted({TINY, *(file.stem for file in files)})
