"""The status of a run, read from storage at any time, without Ray and torch.

Files are read by name; nothing is listed and nothing is written, so the status can be requested
from anywhere while the run is active.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

from sparc_dist import storage
from sparc_dist.config import ENSEMBLE
from sparc_dist.core import FUSIONS, PLAIN, deciding, stages_of
from sparc_dist.runs.layout import AFTER_FIT, DatasetLayout, RunLayout, UnitLayout, shard_groups
from sparc_dist.runs.markers import READERS, MarkerSummary
from sparc_dist.runs.record import read_record
from sparc_dist.runs.results import Results, possible_units, read_dataset_facts
from sparc_dist.runs.tables import aligned, shown

HEADER = ("data set", "backbone", "scored", "images", "errors", "shards", "stage")


@dataclass(frozen=True)
class UnitStatus:
    """The status of a unit.

    stage: "not prepared", "not begun", "texts embedded", "scoring", a pass of the reduce with its
    finished groups of shards, "finishing", "done" with the mAP, or "failed" with the reason from
    the last start, until the next one ends. images, shards: of the data set, 0 before it is
    prepared. scored, errors: number of images that have scores, and that could not be read. done:
    whether nothing is missing. failed: whether the last start failed.
    """

    dataset: str
    backbone: str
    stage: str
    images: int = 0
    scored: int = 0
    errors: int = 0
    shards: int = 0
    shards_done: int = 0
    done: bool = False
    failed: bool = False


def status(root: str) -> list[UnitStatus]:
    """Returns the status of each unit of the run at ``root``, in the order of its config."""
    layout = RunLayout(root)
    record = read_record(layout)
    results = Results.read(layout, record)
    datasets = {name: _Dataset.read(layout.dataset(name)) for name in results.datasets}
    passes = (*stages_of(record["config"]["method"]["fusions"]), *AFTER_FIT)
    return [
        _unit(datasets[name], (name, backbone), results, passes)
        for name, backbone in product(results.datasets, possible_units(results.backbones))
        if backbone != ENSEMBLE or _has_ensemble(datasets[name], name, results)
    ]


def _has_ensemble(data: _Dataset, name: str, results: Results) -> bool:
    """Whether the ensemble of a data set was made or begun; the run may be told to make none."""
    if (name, ENSEMBLE) in {**results.metrics, **results.failures}:
        return True
    return bool(data.images) and _exists(data.layout.unit(ENSEMBLE).state(AFTER_FIT[0], 0))


def to_text(units: Sequence[UnitStatus]) -> str:
    """Returns a table with one line per unit, and their sum."""
    done = f"{sum(unit.done for unit in units)} of {len(units)} units done"
    return aligned([HEADER, *map(_cells, units), ("sum", "", *_numbers(units), done)], "llrrrrl")


def _cells(unit: UnitStatus) -> tuple[str, ...]:
    return unit.dataset, unit.backbone, *_numbers([unit]), unit.stage


def _numbers(units: Sequence[UnitStatus]) -> tuple[str, ...]:
    """Returns the numeric columns, summed over units; dashes if no data set is prepared."""
    names = ("scored", "images", "errors", "shards_done", "shards")
    scored, images, errors, done, shards = (
        sum(getattr(unit, name) for unit in units) for name in names
    )
    if not images:
        return ("–",) * 4
    return f"{scored:,}", f"{images:,}", f"{errors:,}", f"{done:,}/{shards:,}"


@dataclass(frozen=True)
class _Dataset:
    """The facts shared by the units of a data set; no images before it is prepared."""

    layout: DatasetLayout
    images: int
    shards: int

    @classmethod
    def read(cls, layout: DatasetLayout) -> _Dataset:
        facts = read_dataset_facts(layout) or {"images": 0, "shards": 0}
        return cls(layout, facts["images"], facts["shards"])


def _unit(
    data: _Dataset, key: tuple[str, str], results: Results, passes: Sequence[str]
) -> UnitStatus:
    """Returns the status of a unit. passes: of its reduce; an ensemble has only the last ones."""
    failure = results.failures.get(key)
    failed = failure and f"failed: {' '.join(failure.split())}"
    if not data.images:
        return UnitStatus(*key, failed or "not prepared", failed=bool(failed))
    metrics = results.metrics.get(key)
    if metrics is not None:
        scored, errors, missing = metrics["images"], metrics["errors"]["images"], 0
        stage = failed or _done(results, key)
    else:
        unit, made = data.layout.unit(key[1]), key[1] == ENSEMBLE
        markers = MarkerSummary.of(unit, 0 if made else data.shards)
        scored, errors, missing = sum(markers.images), markers.errors, len(markers.missing)
        stage = failed or _stage(unit, data, missing, AFTER_FIT if made else passes)
    return UnitStatus(
        *key,
        stage,
        images=data.images,
        scored=scored,
        errors=errors,
        shards=data.shards,
        shards_done=data.shards - missing,
        done=metrics is not None and not failed,
        failed=bool(failed),
    )


def _done(results: Results, key: tuple[str, str]) -> str:
    found = {name: results.mean_ap(*key, name) for name in (PLAIN, *deciding())}
    if found[PLAIN] is None:
        return "done, without labels"
    known = [(FUSIONS[name].title, value) for name, value in found.items() if value is not None]
    values = [f"{shown(value)} {title}" for title, value in known]
    return f"done, mAP {', '.join(values)}"


def _stage(unit: UnitLayout, data: _Dataset, missing: int, passes: Sequence[str]) -> str:
    """Returns the stage of a unit that is not done: the first one that is not complete."""
    if missing and missing < data.shards:
        return "scoring"
    if missing:
        return "not begun" if storage.read_if_exists(unit.texts) is None else "texts embedded"
    groups = len(shard_groups(data.shards))
    with ThreadPoolExecutor(READERS) as readers:
        for name in passes:
            urls = [unit.state(name, group) for group in range(groups)]
            done = sum(readers.map(_exists, urls))
            if done < groups:
                return f"{name.replace('_', ' ')}, {done} of {groups} groups"
    return "finishing"


def _exists(url: str) -> bool:
    return not storage.is_missing(url)
