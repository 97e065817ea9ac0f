"""The first step: a shard's images, read and decoded on a CPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from sparc_dist.images.reading import decode_shard
from sparc_dist.pipeline.steps import errors_as_rows
from sparc_dist.runs import DatasetLayout
from sparc_dist.runs.image_list import read_images
from sparc_dist.runs.shards import ERRORS
from sparc_dist.storage import retries


@dataclass(frozen=True)
class DecodeShard:
    """Reads and decodes a shard's images to uint8 squares at the sizes its backbones need.

    jpeg_scaling: whether large JPEGs are decoded at a smaller scale. max_image_bytes: of a file.
    """

    dataset: DatasetLayout
    sizes: Mapping[str, int]
    jpeg_scaling: bool
    max_image_bytes: int

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Turns one row {shard, backbones} into one with image_ids, pixels and errors."""
        start, before = time.perf_counter(), retries()
        (row,) = batch.to_pylist()
        rows = read_images(self.dataset, row["shard"], ["image_id", "uri"])
        sizes = sorted({self.sizes[name] for name in row["backbones"]})
        decoded = decode_shard(rows.to_pylist(), sizes, self.jpeg_scaling, self.max_image_bytes)
        pixels = [decoded.squares[size].reshape(-1).data for size in sizes]
        return pa.table(
            {
                "shard": batch["shard"],
                "backbones": batch["backbones"],
                "image_ids": pa.array([decoded.ids], pa.list_(pa.string())),
                "sizes": pa.array([sizes]),
                "pixels": pa.array([pixels], pa.list_(pa.large_binary())),
                "errors": pa.array([decoded.errors], pa.list_(pa.struct(ERRORS))),
                "retries": [retries() - before],
                "seconds": [time.perf_counter() - start],
            }
        )
