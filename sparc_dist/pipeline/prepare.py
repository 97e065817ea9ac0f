"""Before any model: a data set's images and prompts, written to the run."""

from __future__ import annotations

from dataclasses import dataclass

import ray

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets import image_batches, prompt_bank, write_images
from sparc_dist.layout import DatasetLayout
from sparc_dist.prompts.bank import PromptBank


@dataclass(frozen=True)
class Prepared:
    """A data set that is ready to be scored. ``sizes``: the number of images of each shard."""

    name: str
    layout: DatasetLayout
    bank: PromptBank
    sizes: list[int]
    labelled: int

    @property
    def images(self) -> int:
        """All images, good and bad."""
        return sum(self.sizes)


def prepare(dataset: DatasetConfig, layout: DatasetLayout, shard_size: int) -> Prepared:
    """Write what is missing of images.parquet, prompts.parquet and their marker."""
    if not storage.exists(layout.marker):
        # On a worker, because reading a manifest of millions would swell the driver.
        ray.get(ray.remote(num_cpus=1)(_prepare).remote(dataset, layout, shard_size))
    bank = PromptBank.from_table(storage.read_table(layout.prompts))
    facts = storage.read_json(layout.marker)
    sizes = storage.row_group_sizes(layout.images)
    return Prepared(dataset.name, layout, bank, sizes, facts["labelled"])


def _prepare(dataset: DatasetConfig, layout: DatasetLayout, shard_size: int) -> None:
    bank = prompt_bank(dataset)
    counts = write_images(image_batches(dataset, bank.classes), layout.images, shard_size)
    storage.write_table(layout.prompts, bank.to_table())
    prompts = {"compound": len(bank.compound), "prompts_sha256": bank.sha256}
    storage.write_json(layout.marker, {**counts, "classes": len(bank.classes), **prompts})
