"""What became of the images since an earlier start: new ones, removed ones, failures that pass."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sparc_dist import storage
from sparc_dist.config import ENSEMBLE, Config, DatasetConfig
from sparc_dist.datasets.growth import Growth, grow
from sparc_dist.errors import UserError
from sparc_dist.images.reading import readable
from sparc_dist.pipeline.executor import current, get, submit
from sparc_dist.pipeline.progress import heartbeat
from sparc_dist.runs import (
    DatasetLayout,
    Growing,
    MarkerSummary,
    Pending,
    Results,
    Retry,
    UnitLayout,
)
from sparc_dist.runs.markers import read_segments
from sparc_dist.runs.removal import drop_shards
from sparc_dist.runs.results import (
    LABELLING,
    read_dataset_facts,
    read_metrics,
    reason_unfinished,
    reopen,
)
from sparc_dist.runs.shards import read_images
from sparc_dist.storage import StorageError, without_secrets


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


AT_ONCE = 8  # shards that one piece of work looks at


@dataclass
class Looked:
    """What became of failed images: their number, how many can be read now, and of which shards.

    shards: by backbone.
    """

    failed: int = 0
    readable: int = 0
    shards: dict[str, list[int]] = field(default_factory=dict)

    def add(self, other: Looked) -> None:
        """Adds what was found in other shards."""
        self.failed += other.failed
        self.readable += other.readable
        for name, shards in other.shards.items():
            self.shards.setdefault(name, []).extend(shards)


def retried(config: Config, units: Pending, results: Results, retry: Retry) -> Pending:
    """Reads failed images of units again; makes the shards unscored in which one can be read now.

    Returns the units of those shards, which are unfinished then. All other units stay as they are.
    """
    found: Pending = {}
    for dataset in config.datasets:
        names = [backbone.name for backbone in units[dataset.name]]
        looked = _looked(config, dataset, names, results, retry)
        if looked.failed:
            also = "; scoring their shards again" if looked.readable else ""
            print(
                f"{dataset.name}: {looked.readable:,} of {looked.failed:,} images that could not "
                f"be read can be read now{also}",
                file=sys.stderr,
                flush=True,
            )
        _unscored(dataset.name, looked.shards, results)
        found[dataset.name] = [b for b in units[dataset.name] if b.name in looked.shards]
    return found


def _looked(
    config: Config, dataset: DatasetConfig, names: Sequence[str], results: Results, retry: Retry
) -> Looked:
    """Looks at the failed images of a data set on workers, each image once for all backbones."""
    layout = results.layout.dataset(dataset.name)
    facts = read_dataset_facts(layout) or {"shards": 0}
    found = (_with_errors(layout.unit(name), facts["shards"], retry) for name in names)
    ordered, looked = sorted(set[int]().union(*found)), Looked()
    if not ordered:
        return looked
    jobs = [
        submit(_look, layout, names, ordered[i : i + AT_ONCE], retry, config.max_image_bytes)
        for i in range(0, len(ordered), AT_ONCE)
    ]
    limit, what = config.resources.no_progress_seconds, f"Reading images of {dataset.name} again"
    with heartbeat(f"{what[0].lower()}{what[1:]}"):
        for job in current().finished(jobs, limit, what):
            looked.add(get(job, limit, what))
    return looked


def _with_errors(unit: UnitLayout, shards: int, retry: Retry) -> set[int]:
    """Returns the shards of a unit with errors that are to be looked at."""
    markers = (marker for part in read_segments(unit, shards) for marker in part.markers if marker)
    return {m.shard for m in markers if (m.errors if retry == "all" else m.passing)}


def _look(
    layout: DatasetLayout, names: Sequence[str], shards: Sequence[int], retry: Retry, most: int
) -> Looked:
    """Reads the failed images of shards again; stops where a store does not answer."""
    looked = Looked()
    with suppress(StorageError):
        for shard in shards:
            failed = {name: _failed(layout.unit(name), shard, retry) for name in names}
            wanted = set[str]().union(*failed.values())
            rows = read_images(layout, shard, ["image_id", "uri"]).to_pylist()
            looked.failed += len(wanted)
            again = [row for row in rows if row["image_id"] in wanted]
            now = readable(again, retry == "all", most)
            own = {name: [shard] for name, ids in failed.items() if ids & now}
            looked.add(Looked(0, len(now), own))
    return looked


def _failed(unit: UnitLayout, shard: int, retry: Retry) -> set[str]:
    """Returns the ids of a shard's failed images that are to be looked at."""
    if storage.is_missing(unit.errors(shard)):  # this backbone has not scored it yet
        return set()
    rows = storage.read_table(unit.errors(shard)).to_pylist()
    return {row["image_id"] for row in rows if retry == "all" or row["passing"]}


def _unscored(dataset: str, shards: Mapping[str, Sequence[int]], results: Results) -> None:
    """Makes shards unscored, by backbone."""
    layout = results.layout.dataset(dataset)
    for name, own in shards.items():
        drop_shards(layout.unit(name), own, "images are read again")
        reopen(layout.unit(ENSEMBLE), "its backbones change")
        for key in ((dataset, name), (dataset, ENSEMBLE)):
            results.metrics.pop(key, None)
