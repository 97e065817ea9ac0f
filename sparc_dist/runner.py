"""A run from start to end: find what is missing, do it, record what became of each unit."""

from __future__ import annotations

import time
from collections.abc import Container
from contextlib import suppress
from itertools import product
from typing import Any

from sparc_dist import storage
from sparc_dist.config import Config
from sparc_dist.datasets import image_changes
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import joins_ray
from sparc_dist.planning.checks import find_problems
from sparc_dist.runs import Pending, Phase, Results, RunLayout, UnitKey, claim


def run(config: Config, overwrite: bool = False, phase: Phase = "all") -> Results:
    """Does what is missing of a run; a unit that fails does not stop the others."""
    layout = RunLayout(config.output)
    problems = {} if phase == "reduce" else _problems(config, layout, overwrite)
    record = claim(layout, config, overwrite, image_changes)
    results = Results.read(layout, record)
    results.changes = _folder_changes(config, layout, record["started"])
    results.failures = problems  # without those of an earlier start
    pending = _pending(config, {**results.metrics, **problems})
    results.nothing_to_do = not any(pending.values())
    started = time.monotonic()
    if not results.nothing_to_do:
        storage.check_access(layout.root)
        # Ray takes seconds to import; a finished run should not wait for it.
        from sparc_dist.pipeline.environment import configure_ray

        configure_ray()
        from sparc_dist.pipeline.scheduling import run_units

        run_units(config, pending, results, phase)
    _check_error_share(results, config.max_error_share)
    units = _unit_facts(config, results)
    if not results.nothing_to_do or units != record.get("units"):
        if not results.nothing_to_do:
            record["seconds"] = round(time.monotonic() - started, 1)
        record["units"] = units
        storage.write_json(layout.run, record)
    return results


def _pending(config: Config, known: Container[UnitKey]) -> Pending:
    """Returns the units whose outcome is not known."""
    return {
        dataset.name: [b for b in config.backbones if (dataset.name, b.name) not in known]
        for dataset in config.datasets
    }


def _problems(config: Config, layout: RunLayout, overwrite: bool) -> dict[UnitKey, str]:
    """Returns why units cannot work; raises UserError if none can, before anything is written."""
    finished = Results.read(layout, {"config": config.identity()}).metrics
    pending = _pending(config, () if overwrite else finished)
    here = config.resources.executor == "process" or not joins_ray()
    found = find_problems(config, pending, None if overwrite else layout, here)
    if found and len(found) == sum(map(len, pending.values())):
        first, *others = dict.fromkeys(found.values())
        raise UserError(first + (" No other unit of the run can start either." if others else ""))
    return found


def _folder_changes(config: Config, layout: RunLayout, started: str) -> dict[str, str]:
    """Returns what became of the folders of images; a run keeps to those it has begun with."""
    found = {}
    for dataset in config.datasets:
        if dataset.kind == "folder":
            with suppress(UserError):  # a finished run outlives its folder
                found[dataset.name] = image_changes(dataset, layout.dataset(dataset.name), started)
    return {name: changes for name, changes in found.items() if changes}


def _check_error_share(results: Results, limit: float) -> None:
    """Counts a unit with too many unreadable images as failed; its results are kept."""
    for key, metrics in results.metrics.items():
        errors = metrics["errors"]
        if errors["share"] > limit:
            (reason, count), *_ = errors["reasons"].items()
            results.failures[key] = (
                f"{errors['images']} of {errors['images'] + metrics['images']} images could not be "
                f"read ({count} × {reason}), more than max_error_share ({limit:g}) allows; all "
                "other results are saved. Look into errors/, and raise max_error_share if this is "
                "expected."
            )


def _unit_facts(config: Config, results: Results) -> list[dict[str, Any]]:
    """Returns the `units` of run.json, in the order of the config."""
    facts = []
    known = {**results.metrics, **results.failures}
    keys = product(config.datasets, config.backbones)
    for key in [(dataset.name, backbone.name) for dataset, backbone in keys]:
        if key not in known:
            continue
        unit: dict[str, Any] = {"dataset": key[0], "backbone": key[1], "status": "done"}
        if metrics := results.metrics.get(key):
            unit |= {"images": metrics["images"], "errors": metrics["errors"]["images"]}
            unit |= {name: metrics[name] for name in ("weights_sha256", "prompts_sha256")}
        if key in results.failures:
            unit |= {"status": "failed", "error": results.failures[key]}
        facts.append(unit)
    return facts
