"""A bare open_clip script: scores some images under some texts, and nothing else.

start.py compares a run with it: ``python bare.py JOB.json`` with a file of {model, weights,
backbones, images, texts}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import open_clip
import torch
from PIL import Image


def main(path: str) -> None:
    """Scores the images of a job on all cores; prints the mean score under each backbone."""
    with open(path) as file:
        job = json.load(file)
    torch.set_grad_enabled(False)
    models = [_model(job["model"], job["weights"]) for _ in range(job["backbones"])]
    tokens = open_clip.get_tokenizer(job["model"])(job["texts"])
    texts = [model.encode_text(tokens, normalize=True) for model in models]
    prepare = open_clip.image_transform(models[0].visual.image_size, is_train=False)
    pixels = torch.stack([prepare(Image.open(name)) for name in job["images"]])
    for model, rows in zip(models, texts, strict=True):
        print(float((model.encode_image(pixels, normalize=True) @ rows.T).mean()))


def _model(name: str, weights: str | None) -> Any:
    """Returns a model with its weights; without any, the bundled one."""
    if weights is not None:
        return open_clip.create_model(name, pretrained=weights).eval()
    from sparc_dist.backbones.tiny import load_tiny_model

    return load_tiny_model()


if __name__ == "__main__":
    main(*sys.argv[1:])
