"""Small work: done in this process, because starting a Ray would take longer than the work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from sparc_dist.config import Config, DatasetConfig, ResourcesConfig
from sparc_dist.datasets import open_source
from sparc_dist.pipeline.executor import joins_ray
from sparc_dist.runs import EmbeddedRun, Pending, Results, RunLayout
from sparc_dist.runs.results import is_due, read_dataset_facts

#: One unit of at most so many images is small …
SMALL = 2000
#: … if there are no more CPUs than this; with more, Ray is the faster the more there are.
FEW_CPUS = 4
#: Stored embeddings of so many images, or their final scores, are less work than one image.
EMBEDDED = 20


def is_small(resources: ResourcesConfig, units: Iterable[int]) -> bool:
    """Whether work is done in this process. units: the number of images of each unit."""
    if resources.executor != "auto":
        return resources.executor == "process"
    if joins_ray():
        return False
    cpus = resources.cpus or os.cpu_count() or 1
    limit = SMALL * FEW_CPUS / max(cpus, FEW_CPUS)
    sizes = iter(units)
    return next(sizes, 0) <= limit and next(sizes, None) is None


def unit_sizes(
    config: Config, pending: Pending, layout: RunLayout, embeddings: EmbeddedRun | None = None
) -> Iterator[int]:
    """Yields the number of images of each pending unit, or as many as stored embeddings are worth.

    A large data set is not listed whole.
    """
    for dataset in config.datasets:
        for _ in pending[dataset.name]:
            yield _images(dataset, layout, embeddings)


def ensemble_sizes(config: Config, results: Results) -> Iterator[int]:
    """Yields as many images as the final scores of each ensemble that is due are worth."""
    for dataset in config.datasets:
        if is_due(config, dataset.name, results.metrics):
            units = results.metrics.items()
            yield sum(own["images"] for key, own in units if key[0] == dataset.name) // EMBEDDED


def _images(dataset: DatasetConfig, layout: RunLayout, embeddings: EmbeddedRun | None) -> int:
    count = 0
    with suppress(Exception):  # its unit fails when it is prepared, and no other
        if embeddings is not None:
            return int(embeddings.dataset(dataset.name).facts["images"]) // EMBEDDED
        facts = read_dataset_facts(layout.dataset(dataset.name))
        if facts is not None:
            return int(facts["images"])
        for table in open_source(dataset).images():
            count += len(table)
            if count > SMALL:
                break
    return count
