"""A run that grows: its images are listed again on a worker before new ones are scored."""

from __future__ import annotations

from sparc_dist.config import ENSEMBLE, Config, DatasetConfig
from sparc_dist.datasets.growth import Growth, grow
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import get, submit
from sparc_dist.pipeline.progress import heartbeat
from sparc_dist.runs import Growing, MarkerSummary, Results, UnitLayout
from sparc_dist.runs.outcome import (
    LABELLING,
    read_dataset_facts,
    read_metrics,
    reason_unfinished,
)
from sparc_dist.storage import without_secrets


def follow(growing: Growing, config: Config, dataset: DatasetConfig, results: Results) -> bool:
    """Takes over the changes of a data set's images; returns whether there is work to do."""
    layout = results.layout.dataset(dataset.name)
    keys = [(dataset.name, backbone.name) for backbone in config.backbones]
    units = [layout.unit(backbone.name) for backbone in config.backbones]
    if (facts := read_dataset_facts(layout)) is None:
        return True  # it has listed nothing so far
    both = [*zip(keys, units, strict=True)]
    if growing == "label":
        for unit in (unit for key, unit in both if key in results.metrics):
            _check_markers(unit, facts["shards"])
    fitted = all(
        key in results.metrics or reason_unfinished(unit) == LABELLING for key, unit in both
    )
    applies = growing == "label" and fitted
    how = Growth(config.shard_size, drops=growing != "extend", applies=applies)
    ensemble = layout.unit(ENSEMBLE)  # not finished either if the others are not
    listing = submit(grow, dataset, layout, [*units, ensemble], how)
    with heartbeat(f"listing the images of {dataset.name}"):
        limit = config.resources.no_progress_seconds
        changes = get(listing, limit, f"Listing the images of {dataset.name}")
    if changes:
        results.changes[dataset.name] = f"{changes} since the run"
    for key, unit in [*both, ((dataset.name, ENSEMBLE), ensemble)]:
        if read_metrics(unit) is None:
            results.metrics.pop(key, None)
    return any(key not in results.metrics for key in keys)


def _check_markers(unit: UnitLayout, shards: int) -> None:
    """Raises UserError if a finished unit has lost the marker of a shard.

    The shard would be scored again without the photos that were removed since, and its other photos
    labelled as if they were new.
    """
    for shard in MarkerSummary.of(unit, shards).missing[:1]:
        raise UserError(
            f"{without_secrets(unit.marker(shard))} is missing, although its photos have labels; "
            "run `sparc-dist verify` on the output, then repeat the command."
        )
