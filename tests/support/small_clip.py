"""A real CLIP of open_clip that is small, for tests of how weights are stored and loaded."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import open_clip
import torch

SMALL = "small-vit"
_CONFIG = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
}


def small_clip() -> Any:
    """Returns the model with random weights, always the same, and makes open_clip know its name."""
    if SMALL not in open_clip.list_models():
        with TemporaryDirectory() as folder:
            path = Path(folder, f"{SMALL}.json")
            path.write_text(json.dumps(_CONFIG))
            open_clip.add_model_config(path)
    torch.manual_seed(0)
    return open_clip.create_model(SMALL, load_weights=False).eval()
