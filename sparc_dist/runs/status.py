"""How far a run is, told from what lies in storage: without Ray, without torch, at any time.

Everything is found by its name and read; nothing is listed and nothing is written, so it may be
asked from anywhere while the run goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

from sparc_dist import storage
from sparc_dist.core.fusion import Method
from sparc_dist.core.sparc import needs_ranks
from sparc_dist.runs.layout import STAGES, DatasetLayout, RunLayout, UnitLayout, shard_groups
from sparc_dist.runs.markers import READERS, MarkerSummary
from sparc_dist.runs.record import read_record
from sparc_dist.runs.results import Results
from sparc_dist.runs.tables import aligned, shown

HEAD = ("data set", "backbone", "scored", "images", "errors", "shards", "stage")


@dataclass(frozen=True)
class UnitStatus:
    """How far a unit is.

    images, shards: all of its data set, 0 as long as that is not prepared. scored, errors: images
    that have scores, and that could not be read.
    stage: "not prepared", "not begun", "scoring", a pass of the reduce with the groups of shards
    that it has done, "finishing", "done" with the mAP, or "failed" with the reason that the last
    start left, which stands there until the next one ends.
    """

    dataset: str
    backbone: str
    stage: str
    images: int = 0
    scored: int = 0
    errors: int = 0
    shards: int = 0
    shards_done: int = 0

    @property
    def done(self) -> bool:
        """Whether nothing is missing."""
        return self.stage.startswith("done")


def status(root: str) -> list[UnitStatus]:
    """How far each unit of the run at ``root`` is, in the order of its config."""
    layout = RunLayout(root)
    record = read_record(layout)
    results = Results.read(layout, record)
    method = Method(**record["config"]["method"])
    datasets = {name: _Dataset.read(layout.dataset(name), method) for name in results.datasets}
    return [
        _unit(datasets[name], (name, backbone), results)
        for name, backbone in product(results.datasets, results.backbones)
    ]


def to_text(units: Sequence[UnitStatus]) -> str:
    """A table: one line a unit, and their sum."""
    done = f"{sum(unit.done for unit in units)} of {len(units)} units done"
    return aligned([HEAD, *map(_cells, units), ("sum", "", *_numbers(units), done)], "llrrrrl")


def _cells(unit: UnitStatus) -> tuple[str, ...]:
    return unit.dataset, unit.backbone, *_numbers([unit]), unit.stage


def _numbers(units: Sequence[UnitStatus]) -> tuple[str, ...]:
    """The columns of numbers, summed over units; nothing where no data set is prepared."""
    names = ("scored", "images", "errors", "shards_done", "shards")
    scored, images, errors, done, shards = (
        sum(getattr(unit, name) for unit in units) for name in names
    )
    if not images:
        return ("–",) * 4
    return f"{scored:,}", f"{images:,}", f"{errors:,}", f"{done:,}/{shards:,}"


@dataclass(frozen=True)
class _Dataset:
    """What a unit's status depends on beside the unit. passes: those that its reduce takes."""

    layout: DatasetLayout
    images: int
    shards: int
    passes: tuple[str, ...]

    @classmethod
    def read(cls, layout: DatasetLayout, method: Method) -> _Dataset:
        facts = storage.read_json_if_exists(layout.marker) or {
            "images": 0,
            "shards": 0,
            "labelled": 0,
        }
        prompts, ranks, final, precision = STAGES
        passes = [prompts, ranks, final] if needs_ranks(method) else [prompts, final]
        if facts["labelled"]:
            passes.append(precision)
        return cls(layout, facts["images"], facts["shards"], tuple(passes))


def _unit(data: _Dataset, key: tuple[str, str], results: Results) -> UnitStatus:
    failure = results.failures.get(key)
    failed = failure and f"failed: {' '.join(failure.split())}"
    if not data.images:
        return UnitStatus(*key, failed or "not prepared")
    if metrics := results.metrics.get(key):
        scored, errors, missing = metrics["images"], metrics["errors"]["images"], 0
        stage = failed or _done(results, key)
    else:
        unit = data.layout.unit(key[1])
        tally = MarkerSummary.of(unit, data.shards)
        scored, errors, missing = sum(tally.images), tally.errors, len(tally.missing)
        stage = failed or _stage(unit, data, missing)
    return UnitStatus(*key, stage, data.images, scored, errors, data.shards, data.shards - missing)


def _done(results: Results, key: tuple[str, str]) -> str:
    before, after = (results.mean_ap(*key, method) for method in ("zsclip", "sparc"))
    if after is None:
        return "done, without labels"
    return f"done, mAP {shown(before)} ZSCLIP, {shown(after)} SPARC"


def _stage(unit: UnitLayout, data: _Dataset, missing: int) -> str:
    """The stage of a unit that is not done: the first one of which something is missing."""
    if missing:
        return "scoring" if missing < data.shards else "not begun"
    groups = len(shard_groups(data.shards))
    with ThreadPoolExecutor(READERS) as readers:
        for name in data.passes:
            urls = [unit.state(name, group) for group in range(groups)]
            done = sum(readers.map(_exists, urls))
            if done < groups:
                return f"{name.replace('_', ' ')}, {done} of {groups} groups"
    return "finishing"


def _exists(url: str) -> bool:
    """Whether there is such a file; of a state, which may be large, one byte is enough."""
    return storage.read_if_exists(storage.byte_range(url, 0, 1)) is not None
