"""Data sets: reads each kind and makes images.parquet and a prompt bank from it.

Belongs here: the readers of all kinds; labels and manifests as users write them.
Does not: decoding (``images``), wording prompts (``prompts``). Uses: ``prompts``, ``images``,
``runs``, ``config``, ``storage``, ``errors``.
"""

from sparc_dist.datasets.bank import DatasetSize, bank_facts, dataset_bank, size_of
from sparc_dist.datasets.changes import image_changes
from sparc_dist.datasets.images import (
    SCHEMA,
    check_unique,
    chunks,
    images_table,
    list_images,
    write_images,
    write_shards,
)
from sparc_dist.datasets.manifest import Manifest
from sparc_dist.datasets.reused import ReusedImages
from sparc_dist.datasets.sources import class_names, open_source

__all__ = [
    "SCHEMA",
    "DatasetSize",
    "Manifest",
    "ReusedImages",
    "bank_facts",
    "check_unique",
    "chunks",
    "class_names",
    "dataset_bank",
    "image_changes",
    "images_table",
    "list_images",
    "open_source",
    "size_of",
    "write_images",
    "write_shards",
]
