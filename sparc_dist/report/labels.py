"""The most likely classes of each image, from a run's final scores."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

import numpy as np

from sparc_dist import storage
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import RunLayout
from sparc_dist.runs.shards import matrix

Row = tuple[str, list[tuple[str, float]]]


def top_classes(run: str, dataset: str, backbone: str, top: int) -> Iterator[Row]:
    """Yields each image with its ``top`` classes and their scores, the highest score first."""
    data = RunLayout(run).dataset(dataset)
    classes = PromptBank.from_table(storage.read_table(data.prompts)).classes
    for shard in range(len(storage.row_group_sizes(data.images))):
        table = storage.read_table(data.unit(backbone).final(shard), ["image_id", "sparc"])
        scores = matrix(table["sparc"], len(classes))
        for image_id, row in zip(table["image_id"].to_pylist(), scores, strict=True):
            best = np.argsort(-row, kind="stable")[:top]
            yield image_id, [(classes[index], float(row[index])) for index in best]


def write_labels(rows: Iterable[Row], url: str, keep: int) -> tuple[list[Row], int]:
    """Writes one CSV line per image and class; returns the first ``keep`` rows and the total."""
    first: list[Row] = []
    count = 0
    with storage.atomic_file(url) as path, path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["image_id", "rank", "class", "score"])
        for image_id, best in rows:
            count += 1
            if len(first) < keep:
                first.append((image_id, best))
            for rank, (name, score) in enumerate(best, 1):
                writer.writerow([image_id, rank, name, f"{score:.4f}"])
    return first, count
