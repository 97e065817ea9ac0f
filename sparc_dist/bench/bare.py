"""A bare open_clip script: what a run does with some images and prompts, and nothing else.

As a program, it prints the seconds that each part took, its imports included.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from typing import Any


def main(path: str) -> None:
    """Scores the images of a job {model, weights, backbones, images, texts} on all cores."""
    with open(path) as file:
        job = json.load(file)
    edges = {"start": time.perf_counter()}
    import open_clip
    import torch
    from PIL import Image

    torch.set_grad_enabled(False)
    edges["imports"] = time.perf_counter()
    models = [_model(job["model"], job["weights"]) for _ in range(job["backbones"])]
    edges["weights"] = time.perf_counter()
    tokens = open_clip.get_tokenizer(job["model"])(job["texts"])
    texts = [model.encode_text(tokens, normalize=True) for model in models]
    edges["texts"] = time.perf_counter()
    prepare = open_clip.image_transform(models[0].visual.image_size, is_train=False)
    pixels = torch.stack([prepare(Image.open(name)) for name in job["images"]])
    edges["decode"] = time.perf_counter()
    for model, rows in zip(models, texts, strict=True):
        print(float((model.encode_image(pixels, normalize=True) @ rows.T).mean()))
    edges["score"] = time.perf_counter()
    parts = pairwise(edges.items())
    print(json.dumps({name: end - start for (_, start), (name, end) in parts}))


def _model(name: str, weights: str | None) -> Any:
    """Returns a model with its weights; without any, the bundled one."""
    import open_clip

    if weights is not None:
        return open_clip.create_model(name, pretrained=weights).eval()
    from sparc_dist.backbones.tiny.model import load_tiny_model

    return load_tiny_model()


if __name__ == "__main__":
    main(*sys.argv[1:])
