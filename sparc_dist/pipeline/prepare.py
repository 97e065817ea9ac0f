"""Preparation: writes a data set's images and prompts to the run, before any model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets import bank_facts, class_names, dataset_bank, open_source, write_images
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import get, submit
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import DatasetLayout


@dataclass(frozen=True)
class Prepared:
    """A data set that is ready to be scored. sizes: the number of images of each shard."""

    config: DatasetConfig
    layout: DatasetLayout
    bank: PromptBank
    sizes: list[int]
    labelled: int
    images_sha256: str

    @property
    def images(self) -> int:
        """The number of all images, readable or not."""
        return sum(self.sizes)


def prepare(
    dataset: DatasetConfig,
    layout: DatasetLayout,
    vocabulary: Sequence[str],
    shard_size: int,
    limit: float,
) -> Prepared:
    """Writes images.parquet, prompts.parquet and their marker, unless they exist.

    vocabulary: the names that ``background: auto`` may add.
    """
    facts = storage.read_json_if_exists(layout.marker)
    if facts is None:
        facts = _prepare(dataset, layout, vocabulary, shard_size, limit)
    bank = PromptBank.from_table(storage.read_table(layout.prompts))
    if bank.sha256 != facts["prompts_sha256"]:
        raise UserError(
            f"{layout.prompts} was changed after it was written; restore it, or start over with "
            "--overwrite."
        )
    sizes = storage.row_group_sizes(layout.images)
    return Prepared(dataset, layout, bank, sizes, facts["labelled"], facts["images_sha256"])


def _prepare(
    dataset: DatasetConfig,
    layout: DatasetLayout,
    vocabulary: Sequence[str],
    shard_size: int,
    limit: float,
) -> dict[str, Any]:
    """Prepares on workers: tables of millions of rows would fill the driver's memory."""
    if dataset.prompts.llm is not None:
        # The endpoint's key is in the driver's environment and must stay there.
        bank, notes = dataset_bank(dataset, layout, vocabulary)
    else:
        building = submit(dataset_bank, dataset, layout, vocabulary)
        bank, notes = get(building, limit, "Building the prompts")
    listed = submit(_write_images, dataset, layout, shard_size)
    counts, found = get(listed, limit, f"Listing the images of {dataset.name}")
    storage.write_table(layout.prompts, bank.to_table())
    facts = {
        **counts,
        **bank_facts(bank),
        "prompts_sha256": bank.sha256,
        "notes": notes + found,
    }
    storage.write_json(layout.marker, facts)
    return facts


def _write_images(
    dataset: DatasetConfig, layout: DatasetLayout, shard_size: int
) -> tuple[dict[str, Any], list[str]]:
    source = open_source(dataset, class_names(dataset))
    counts: dict[str, Any] = dict(write_images(source.images(), layout.images, shard_size))
    counts["images_sha256"] = storage.sha256(layout.images)
    return counts, source.notes
