"""Verifies a whole run, group of shards by group of shards, on the current executor."""

from __future__ import annotations

import sys
from functools import reduce
from itertools import product
from operator import add
from typing import Any

from sparc_dist import storage
from sparc_dist.config import ResourcesConfig
from sparc_dist.pipeline.executor import current, executor, get, joins_ray, submit
from sparc_dist.pipeline.progress import heartbeat
from sparc_dist.runs import RunLayout, UnitLayout, lease, read_record, shard_groups
from sparc_dist.runs.results import existing_units
from sparc_dist.runs.verification import (
    Checked,
    Fault,
    check_dataset,
    check_run,
    check_shards,
    check_unit,
    mark,
)

WHAT = "Verifying files"


def verify(root: str) -> Checked:
    """Looks at every file of a run; takes note of damage, so that the next start mends it."""
    layout = RunLayout(root)
    config, resources = read_record(layout)["config"], ResourcesConfig()
    datasets, backbones = ([part["name"] for part in config[k]] for k in ("datasets", "backbones"))
    units = existing_units(layout, datasets, backbones)
    with (
        heartbeat(f"verifying {storage.without_secrets(root)}"),
        executor(resources, not joins_ray()),
    ):
        jobs: list[tuple[UnitLayout | None, Any]] = [(None, submit(check_run, layout))]
        for name, backbone in product(datasets, units):
            data = layout.dataset(name)
            if backbone == units[0]:
                jobs.append((None, submit(check_dataset, data)))
            unit, groups = data.unit(backbone), shard_groups(_shards(layout, name))
            jobs.append((unit, submit(check_unit, unit, range(len(groups)))))
            jobs += [(unit, submit(check_shards, unit, group)) for group in groups]
        for _ in current().finished([job for _, job in jobs], resources.no_progress_seconds, WHAT):
            continue
        found = [(unit, get(job, resources.no_progress_seconds, WHAT)) for unit, job in jobs]
    _mark(layout, [(unit, fault) for unit, checked in found for fault in checked.faults])
    return reduce(add, (checked for _, checked in found), Checked())


def _mark(layout: RunLayout, faults: list[tuple[UnitLayout | None, Fault]]) -> None:
    """Takes note of damage, unless the run cannot be written: whoever writes it, may be mending."""
    if not faults:
        return
    try:
        with lease.writing(layout.root):
            for place in dict.fromkeys(unit for unit, _ in faults):
                mark(layout, place, [fault for unit, fault in faults if unit == place])
    except (lease.Held, OSError) as error:
        print(f"The damage is not noted in the run: {error}", file=sys.stderr)


def _shards(layout: RunLayout, dataset: str) -> int:
    facts = storage.read_json_if_exists(layout.dataset(dataset).marker)
    return int(facts["shards"]) if facts else 0
