"""Trains the tiny CLIP on generated scenes with the contrastive loss, from a seed.

Run it as ``python -m sparc_dist.demo.train --out sparc-tiny.safetensors``.
"""

import argparse
import io
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import open_clip
import torch
from PIL import Image
from torch.nn import functional

from sparc_dist.backbones.tiny import MODEL_NAME, new_model, save_tiny_model
from sparc_dist.demo.scenes import SPLITS, draw_scene

BATCH = 128
PEAK_RATE = 1.5e-3
UNKNOWN = 0.05  # share of words replaced by "unknown", so that new words do no harm
SCENES_PER_WORKER = 500  # at least, because a process takes seconds to start
SHIFT = 4  # largest shift of a batch in pixels
_PADDING = 0  # what open_clip's tokenizer puts after the end-of-text token


@dataclass(frozen=True)
class Corpus:
    """Training pairs: images uint8 [n, 3, side, side], tokens [n, captions, length].

    tokens are rows of the model's small table: 0 for padding and unknown words, 1 + k for the k-th
    of token_ids. These are sorted, so that end-of-text is still the largest.
    """

    images: torch.Tensor
    tokens: torch.Tensor
    token_ids: torch.Tensor


def _example(job: tuple[int, int]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns the pixels [side, side, 3] and captions of a seed's scene; odd seeds become JPEG."""
    seed, side = job
    scene = draw_scene(seed)
    image = scene.image
    if seed % 2:
        packed = io.BytesIO()
        image.save(packed, "JPEG", quality=75 + seed // 2 % 21)
        image = Image.open(packed)
    square = image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(square), scene.captions


def draw_corpus(scenes: int, side: int) -> Corpus:
    """Draws the first training scenes on all available cores."""
    jobs = [(seed, side) for seed in SPLITS["train"][:scenes]]
    workers = min(cores(), scenes // SCENES_PER_WORKER)
    if workers < 2:
        examples = [_example(job) for job in jobs]
    else:
        # Forked workers would inherit torch's threads.
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            examples = list(pool.imap(_example, jobs, chunksize=100))
    images, captions = zip(*examples, strict=True)
    tokenizer = open_clip.get_tokenizer(MODEL_NAME)
    tokens = torch.stack([tokenizer(list(texts)) for texts in captions])
    token_ids = torch.from_numpy(np.setdiff1d(tokens.numpy(), [_PADDING]))
    rows = torch.zeros(int(token_ids.max()) + 1, dtype=torch.long)
    rows[token_ids] = torch.arange(1, len(token_ids) + 1)
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    return Corpus(pixels, rows[tokens], token_ids)


def cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def batches(
    corpus: Corpus, epochs: int, random: torch.Generator
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields images [batch, 3, side, side] and captions [batch, length] with some words unknown."""
    scenes, captions, _ = corpus.tokens.shape
    size = min(BATCH, scenes)
    for _ in range(epochs):
        order = torch.randperm(scenes, generator=random)
        for start in range(0, scenes - size + 1, size):  # a smaller batch has fewer negatives
            chosen = order[start : start + size]
            which = torch.randint(captions, (size,), generator=random)
            yield (
                _augment(corpus.images[chosen], random),
                _forget(corpus.tokens[chosen, which], len(corpus.token_ids), random),
            )


def _augment(images: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Mirrors half of the images and moves all of them by a few pixels."""
    mirror = torch.rand(len(images), 1, 1, 1, generator=random) < 0.5
    pixels = torch.where(mirror, images.flip(3), images).float() / 255
    side = pixels.shape[-1]
    top, left = torch.randint(2 * SHIFT + 1, (2,), generator=random).tolist()
    padded = functional.pad(pixels, (SHIFT,) * 4, mode="reflect")
    return padded[:, :, top : top + side, left : left + side]


def _forget(tokens: torch.Tensor, last: int, random: torch.Generator) -> torch.Tensor:
    """Replaces some words by row 0, except start and end of text, the two largest rows."""
    forgotten = torch.rand(tokens.shape, generator=random) < UNKNOWN
    return tokens.masked_fill(forgotten & (tokens < last - 1), 0)


def contrastive_loss(
    model: open_clip.CLIP, images: torch.Tensor, texts: torch.Tensor
) -> torch.Tensor:
    """Returns CLIP's symmetric loss; images are in [0, 1] and not yet normalised."""
    mean = torch.tensor(model.visual.image_mean).view(1, 3, 1, 1)
    std = torch.tensor(model.visual.image_std).view(1, 3, 1, 1)
    inputs = ((images - mean) / std).contiguous(memory_format=torch.channels_last)
    image_features, text_features, scale = model(inputs, texts)
    logits = scale * image_features @ text_features.T
    target = torch.arange(len(logits))
    match = functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)
    return match / 2


def train(corpus: Corpus, epochs: int, seed: int) -> tuple[open_clip.CLIP, list[float]]:
    """Returns the trained model, with the corpus's small token table, and the loss of each step."""
    torch.manual_seed(seed)
    model = new_model()
    width = model.token_embedding.embedding_dim
    table = torch.nn.Embedding(len(corpus.token_ids) + 1, width)
    torch.nn.init.normal_(table.weight, std=0.02)
    model.token_embedding = table
    model = model.to(memory_format=torch.channels_last).train()
    scenes = len(corpus.images)
    total = epochs * (scenes // min(BATCH, scenes))
    optimiser = torch.optim.AdamW(model.parameters(), PEAK_RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_RATE, total, pct_start=0.15)
    random = torch.Generator().manual_seed(seed)
    losses: list[float] = []
    start = time.monotonic()
    for images, texts in batches(corpus, epochs, random):
        loss = contrastive_loss(model, images, texts)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, np.log(100))
        losses.append(loss.item())
        if len(losses) % 50 == 0 or len(losses) == total:
            _report(losses, total, len(images), time.monotonic() - start)
    return model, losses


def _report(losses: list[float], total: int, batch: int, seconds: float) -> None:
    done = len(losses)
    recent = losses[-50:]
    loss, speed = sum(recent) / len(recent), done * batch / seconds
    left = seconds * (total - done) / done / 60
    print(
        f"step {done}/{total}  loss {loss:.3f}  {speed:.0f} images/s  {left:.1f} min left",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Draws the scenes, trains and writes the weights."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="safetensors file to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenes", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args(arguments)
    torch.set_num_threads(cores())
    side = int(new_model().visual.image_size)
    print(f"drawing {options.scenes} scenes", flush=True)
    corpus = draw_corpus(options.scenes, side)
    model, _ = train(corpus, options.epochs, options.seed)
    save_tiny_model(model, corpus.token_ids, options.out)
    print(f"wrote {options.out}: {options.out.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
