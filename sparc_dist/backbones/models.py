"""Backbones: an open_clip model as a black box that returns embeddings and similarities."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray

from sparc_dist.backbones import tiny
from sparc_dist.backbones.checkpoints import create_model
from sparc_dist.backbones.devices import Transfer
from sparc_dist.backbones.hub import create_tokenizer
from sparc_dist.backbones.texts import TextCache, in_kinds, maker, texts_of, user_file
from sparc_dist.backbones.towers import (
    check_patches,
    embed_with_patches,
    encode_tokens,
    local_similarities,
)
from sparc_dist.backbones.weights import describe_checkpoint
from sparc_dist.config import TINY, BackboneConfig
from sparc_dist.core import Scores
from sparc_dist.errors import UserError
from sparc_dist.prompts import PromptBank, TextEmbeddings

Float32 = NDArray[np.float32]
#: The most texts that are embedded at a time.
MOST = 65_536
#: The templates of singleton prompts, by the word of the config.
TEMPLATES = {
    "simple": open_clip.SIMPLE_IMAGENET_TEMPLATES,
    "openai": open_clip.OPENAI_IMAGENET_TEMPLATES,
}
#: The dtype that autocast uses for each precision below float32.
AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: Number of images on which a lower precision is compared with float32.
COMPARED_IMAGES = 32


class Backbone:
    """One model on one device. Weights, texts and scores are float32.

    precision: of the image tower's products. It is applied by autocast, not by converting the
    weights, so that norms and softmax stay in float32. turn: a lock of threads that share the
    device: one of them computes with a batch, others copy theirs or hand over results.
    """

    def __init__(
        self,
        config: BackboneConfig,
        device: str | torch.device = "cpu",
        turn: AbstractContextManager[Any] | None = None,
    ) -> None:
        # Keeps oneDNN from using AMX, unless the user has set a limit: some machines declare it but
        # kill any process that uses it, as bf16 on the CPU would. oneDNN reads the limit at its
        # first product in a process.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
        self.turn = turn or nullcontext()
        self.name, self.place = config.name, config.place
        self.features = config.features
        self.local_scale = config.local_scale
        self._path: str | None = None
        if config.model == TINY:
            tiny.register()
            self.model = tiny.load_tiny_model()
        else:
            self.model, self._path = create_model(config)
        if self.features != "global":
            check_patches(config, self.model.visual)
        self.device = torch.device(device)
        self.precision = config.precision
        if self.precision == "auto":
            self.precision = "fp32" if self.device.type == "cpu" else "fp16"
        self.model.to(self.device).eval()
        self._config = config
        size = self.model.visual.image_size
        self.image_size = int(size[0] if isinstance(size, tuple | list) else size)
        self._mean, self._std = (
            torch.tensor(values, device=self.device).view(1, 3, 1, 1) * 255.0
            for values in (self.model.visual.image_mean, self.model.visual.image_std)
        )
        # Otherwise cuDNN would round float32 convolutions to TF32.
        torch.backends.cudnn.allow_tf32 = False

    @cached_property
    def checkpoint(self) -> dict[str, str] | None:
        """The SHA-256 of the file that has the weights, and its revision; None if bundled."""
        return None if self._path is None else describe_checkpoint(self._path)

    @property
    def input(self) -> dict[str, Any]:
        """The images that it takes: the side of the square, and what standardises its channels."""
        visual = self.model.visual
        numbers = {"mean": list(visual.image_mean), "std": list(visual.image_std)}
        return {"size": self.image_size, "resize": "bicubic, to a square", **numbers}

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer; created on first use, because it may come from the hub."""
        return create_tokenizer(self._config)

    @torch.inference_mode()
    def encode_images(
        self, pixels: NDArray[np.uint8], batch_size: int, precision: str | None = None
    ) -> torch.Tensor:
        """Returns embeddings (n, d) of length 1, on the device, of RGB squares (n, S, S, 3)."""
        batches = []
        with self._autocast(precision):
            for batch in self.transfer().batches(pixels, batch_size):
                with self.turn:
                    batches.append(self._encode(batch))
        return torch.nn.functional.normalize(torch.cat(batches), dim=-1)

    def transfer(self) -> Transfer:
        """Returns a way to the device and back for one thread."""
        return Transfer(self.device)

    def _encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Returns embeddings (n, d) of one batch of squares (n, S, S, 3) on the device."""
        embeddings: torch.Tensor = self.model.encode_image(self._standardised(batch)).float()
        return embeddings

    @torch.inference_mode()
    def encode_patches(
        self, batch: torch.Tensor, precision: str | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns embeddings (n, d) of squares (n, S, S, 3), one batch, and of their patches.

        Those of the patches are (n, p, d). All have length 1 and are on the device.
        """
        with self._autocast(precision):
            embeddings, patches = embed_with_patches(self.model, self._standardised(batch))
        return torch.nn.functional.normalize(embeddings.float(), dim=-1), patches

    def _autocast(self, precision: str | None) -> torch.autocast:
        dtype = AUTOCAST_DTYPES.get(precision or self.precision)
        return torch.autocast(self.device.type, dtype, enabled=dtype is not None)

    def _standardised(self, batch: torch.Tensor) -> torch.Tensor:
        """Returns squares (n, S, S, 3) as the model takes them, (n, 3, S, S)."""
        return (batch.permute(0, 3, 1, 2).float() - self._mean) / self._std

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """Returns embeddings (n, d) of length 1, on the device."""
        if not texts:
            return torch.zeros(0, 0, device=self.device)
        parts = [list(texts[start : start + MOST]) for start in range(0, len(texts), MOST)]
        return torch.cat([encode_tokens(self.model, self.tokenizer(p), self.device) for p in parts])

    def embed(self, bank: PromptBank, store: str | None = None) -> TextEmbeddings:
        """Returns the embeddings of a prompt bank; a singleton is the mean of its templates.

        store: a file with embeddings of an earlier start, to be used and added to.
        """
        spare = user_file(self._config.model, self.weights_sha256)
        made_by = maker(self.weights_sha256, self.device.type)
        cache = TextCache([store] if store else [], made_by, spare)
        return in_kinds(cache.embed(texts_of(bank), self._embed_new), bank)

    def _embed_new(self, texts: Sequence[str]) -> Float32:
        """Returns embeddings (n, d) of texts and, as ``texts_of`` writes them, of singletons."""
        written = [written_out(text) for text in texts]
        rows = self.encode_texts([text for group in written for text in group])
        means = [
            group.mean(dim=0) for group in torch.split(rows, [len(group) for group in written])
        ]
        # The mean of one row is that row, and has length 1 already.
        return torch.nn.functional.normalize(torch.stack(means), dim=-1).cpu().numpy()

    @cached_property
    def weights_sha256(self) -> str:
        """A hash of the weights in use, independent of the file they came from."""
        digest = hashlib.sha256()
        for name, values in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(values.detach().cpu().contiguous().view(-1).numpy().data)
        return digest.hexdigest()


def written_out(text: str) -> list[str]:
    """Returns a text, or a singleton as ``texts_of`` writes it in each of its templates."""
    templates, mark, name = text.partition("\0")
    return [template(name) for template in TEMPLATES[templates]] if mark else [text]


class Scorer:
    """A backbone with a prompt bank: images in, cosine similarities out."""

    def __init__(self, backbone: Backbone, texts: TextEmbeddings) -> None:
        self.backbone = backbone
        kinds = [
            torch.tensor(rows, device=backbone.device)
            for rows in (texts.singleton, texts.auxiliary, texts.compound)
        ]
        self._widths = [len(rows) for rows in kinds]
        # One product for all kinds, which saves nothing on the CPU.
        self._texts = kinds if backbone.device.type == "cpu" else [torch.cat(kinds)]

    @torch.inference_mode()
    def score(self, pixels: NDArray[np.uint8], batch_size: int) -> tuple[Scores, Float32]:
        """Returns the scores and embeddings (n, d) of uint8 RGB squares (n, S, S, 3), n ≥ 1."""
        found, images = self._scores(pixels, batch_size)
        *scores, embeddings = self.backbone.transfer().fetched([*found, images])
        singleton, auxiliary, compound = scores
        if not all(np.isfinite(part).all() for part in scores):
            raise UserError(
                f"{self.backbone.place}: the model returns scores that are not numbers; "
                "its weights are damaged, download them again."
            )
        return Scores(singleton, auxiliary, compound, embeddings), embeddings

    def _scores(
        self, pixels: NDArray[np.uint8], batch_size: int, precision: str | None = None
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Returns the scores of each kind of prompt, and the embeddings (n, d) of the images."""
        backbone = self.backbone
        if backbone.features == "global":
            images = backbone.encode_images(pixels, batch_size, precision)
            return self._by_kind(lambda rows: images @ rows.T), images
        batches = []
        for batch in backbone.transfer().batches(pixels, batch_size):
            with backbone.turn:
                batches.append(self._local_scores(*backbone.encode_patches(batch, precision)))
        *scores, images = (torch.cat(parts) for parts in zip(*batches, strict=True))
        return scores, images

    def _by_kind(self, similar: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        """Returns the similarities of images to each kind of prompt, from those to embeddings."""
        products = [similar(rows) for rows in self._texts]
        if len(products) > 1:
            return products
        return list(torch.split(products[0], self._widths, dim=1))

    def _local_scores(
        self, images: torch.Tensor, patches: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Returns the same for one batch: no more patches exist at a time."""
        scale = self.backbone.local_scale

        def similar(rows: torch.Tensor) -> torch.Tensor:
            local = local_similarities(patches, rows, scale)
            return (local + images @ rows.T) / 2 if self.backbone.features == "both" else local

        return *self._by_kind(similar), images

    @torch.inference_mode()
    def difference(self, pixels: NDArray[np.uint8], batch_size: int) -> dict[str, Any] | None:
        """Returns how far scores are from those in float32; None in float32, or without images."""
        sample = pixels[:COMPARED_IMAGES]
        if self.backbone.precision not in AUTOCAST_DTYPES or not len(sample):
            return None
        exact, lower = (
            torch.cat(self._scores(sample, batch_size, precision)[0], dim=1)
            for precision in ("fp32", None)
        )
        difference, spread = (lower - exact).abs(), exact.std(dim=0)
        return {
            "precision": self.backbone.precision,
            "images": len(sample),
            "largest_difference": float(difference.max()),
            "mean_difference": float(difference.mean()),
            "mean_spread_of_a_prompt": float(spread.mean()) if len(sample) > 1 else None,
        }
