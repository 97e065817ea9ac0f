"""Preparation: writes a data set's images and prompts to the run, before any image is scored."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparc_dist import storage
from sparc_dist.backbones import embed_names, vocabulary_for
from sparc_dist.config import BackboneConfig, Config, DatasetConfig
from sparc_dist.datasets import (
    ReusedImages,
    bank_facts,
    class_names,
    dataset_bank,
    list_images,
    open_source,
    write_shards,
)
from sparc_dist.errors import OVERWRITE, UserError
from sparc_dist.pipeline.executor import get, submit
from sparc_dist.pipeline.progress import repeated
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import DatasetLayout, EmbeddedDataset
from sparc_dist.runs.labeler_file import read_labeler
from sparc_dist.runs.markers import begin_new
from sparc_dist.runs.results import read_dataset_facts
from sparc_dist.runs.shards import images_sha256, shard_sizes


@dataclass(frozen=True)
class Prepared:
    """A data set that is ready to be scored.

    sizes: the number of images of each shard. earlier: hashes of images.parquet before the data set
    grew. applied_from: the first shard that a labeler labels; None if all shards are fitted.
    embeddings: those of another run, to be scored in place of the images.
    """

    config: DatasetConfig
    layout: DatasetLayout
    bank: PromptBank
    sizes: list[int]
    labelled: int
    images_sha256: str
    earlier: frozenset[str] = frozenset()
    applied_from: int | None = None
    embeddings: EmbeddedDataset | None = None

    @property
    def images(self) -> int:
        """The number of all images, readable or not."""
        return sum(self.sizes)


def prepare(
    config: Config,
    dataset: DatasetConfig,
    layout: DatasetLayout,
    embeddings: EmbeddedDataset | None = None,
) -> Prepared:
    """Writes images.parquet, prompts.parquet and their marker, unless they exist.

    embeddings: the data set of another run whose shards and embeddings are used.
    """
    facts = read_dataset_facts(layout)
    if facts is None:
        facts = _prepare(config, dataset, layout, embeddings)
    bank = PromptBank.from_table(storage.read_table(layout.prompts))
    if bank.sha256 != facts["prompts_sha256"]:
        raise UserError(
            f"{layout.prompts} was changed after it was written; restore it, or start over with "
            f"{OVERWRITE}."
        )
    sizes = shard_sizes(layout)
    images = (sizes, facts["labelled"], facts["images_sha256"], frozenset(facts.get("earlier", ())))
    applied_from = 0 if config.labeler else facts.get("applied_from")
    return Prepared(dataset, layout, bank, *images, applied_from, embeddings)


def _prepare(
    config: Config,
    dataset: DatasetConfig,
    layout: DatasetLayout,
    embeddings: EmbeddedDataset | None,
) -> dict[str, Any]:
    """Prepares on workers: tables of millions of rows would fill the driver's memory."""
    limit = config.resources.no_progress_seconds
    with repeated(lambda: print("building the prompts …", file=sys.stderr, flush=True), every=5):
        if config.labeler is None:
            bank, notes = _bank(dataset, layout, config.backbones, limit)
        else:
            bank, notes = _labeler_bank(config.labeler, dataset), []
    listed = submit(_write_images, dataset, layout, embeddings or config.shard_size)
    what = f"Listing the images of {dataset.name}"
    with repeated(lambda: _say_listed(what, layout), every=5):
        # A list of many million names takes hours, and is fine as long as its parts appear.
        counts, found = get(listed, limit, what, lambda: storage.read_if_exists(layout.listing))
    storage.write_table(layout.prompts, bank.to_table())
    facts = {
        **counts,
        **bank_facts(bank),
        "prompts_sha256": bank.sha256,
        "notes": notes + found,
    }
    for backbone in config.backbones:
        begin_new(layout.unit(backbone.name), facts["shards"])
    storage.write_json(layout.marker, facts)
    return facts


def _say_listed(what: str, layout: DatasetLayout) -> None:
    begun = storage.read_json_if_exists(layout.listing)
    sofar = f" {begun['images']:,} so far" if begun else ""
    print(f"{what[0].lower()}{what[1:]} …{sofar}", file=sys.stderr, flush=True)


def _bank(
    dataset: DatasetConfig, layout: DatasetLayout, backbones: Sequence[BackboneConfig], limit: float
) -> tuple[PromptBank, list[str]]:
    """Returns the bank and notes on it, built on a worker."""
    vocabulary = vocabulary_for(backbones)
    if dataset.prompts.llm is not None:
        # The endpoint's key is in the driver's environment and must stay there; torch is loaded by
        # a worker alone.
        return dataset_bank(
            dataset,
            layout,
            vocabulary,
            lambda names: get(submit(embed_names, backbones, names), limit, "Pairing the classes"),
        )
    embed = partial(embed_names, backbones)
    building = submit(dataset_bank, dataset, layout, vocabulary, embed)
    bank, notes = get(building, limit, "Building the prompts")
    return bank, notes


def _labeler_bank(url: str, dataset: DatasetConfig) -> PromptBank:
    """Returns the bank of a labeler; raises UserError if its classes are not the data set's."""
    bank = PromptBank.from_table(read_labeler(url).prompts)
    if class_names(dataset) != bank.classes:
        raise UserError(
            f"The labeler {storage.without_secrets(url)} has other classes than {dataset.name}: "
            f"{', '.join(bank.classes[:5])}, …; use them, or fit a labeler for your own."
        )
    return bank


def _write_images(
    dataset: DatasetConfig, layout: DatasetLayout, shards: int | EmbeddedDataset
) -> tuple[dict[str, Any], list[str]]:
    if isinstance(shards, int):
        source = open_source(dataset)
        named = f"{dataset.kind} {json.dumps(dataset.images)}"
        made_from = hashlib.sha256(named.encode()).hexdigest()
        counts, notes = list_images(source, layout, shards, made_from), source.notes
    else:
        reused = ReusedImages(dataset, shards)
        counts, notes = write_shards(reused.shards(), layout), reused.notes
    return {**counts, "images_sha256": images_sha256(layout, counts["shards"])}, notes
