"""A run: what of it is done, what is missing, and what became of it."""

from __future__ import annotations

import time
from itertools import product
from typing import Any

from sparc_dist import storage
from sparc_dist.config import BackboneConfig, Config, DatasetConfig
from sparc_dist.layout import RunLayout
from sparc_dist.outcome import Outcome, Part
from sparc_dist.record import claim


def run(config: Config, overwrite: bool = False, part: Part = "all") -> Outcome:
    """Do what is missing of a run; a unit that fails does not stop the others."""
    layout = RunLayout(config.output)
    record = claim(layout, config, overwrite)
    outcome = Outcome(layout)
    missing = {dataset.name: _missing(config, dataset, outcome) for dataset in config.datasets}
    outcome.nothing_to_do = not any(missing.values())
    started = time.monotonic()
    if not outcome.nothing_to_do:
        storage.check_access(layout.root)
        # Ray and torch take seconds to import; a finished run should not wait for them.
        from sparc_dist.pipeline.units import run_units

        run_units(config, missing, outcome, part)
    _judge(outcome, config.max_error_share)
    units = _unit_facts(config, outcome)
    if not outcome.nothing_to_do or units != record.get("units"):
        if not outcome.nothing_to_do:
            record["seconds"] = round(time.monotonic() - started, 1)
        record["units"] = units
        storage.write_json(layout.run, record)
    return outcome


def _missing(config: Config, dataset: DatasetConfig, outcome: Outcome) -> list[BackboneConfig]:
    """The backbones under which a data set is still to be run; the others' metrics are read."""
    missing = []
    for backbone in config.backbones:
        unit = outcome.layout.dataset(dataset.name).unit(backbone.name)
        metrics = storage.read_own_json(unit.metrics)
        if metrics is None:
            missing.append(backbone)
        else:
            outcome.metrics[dataset.name, backbone.name] = metrics
    return missing


def _judge(outcome: Outcome, most: float) -> None:
    """A unit with too many errors has failed, although all it could do is saved."""
    for key, metrics in outcome.metrics.items():
        errors = metrics["errors"]
        if errors["share"] > most:
            (reason, count), *_ = errors["reasons"].items()
            outcome.failures[key] = (
                f"{errors['images']} of {errors['images'] + metrics['images']} images could not be "
                f"read ({count} × {reason}), a share above max_error_share ({most:g}); all else is "
                "saved. Look into errors/, and raise max_error_share if that is as it should be."
            )


def _unit_facts(config: Config, outcome: Outcome) -> list[dict[str, Any]]:
    """For run.json: what became of each unit, in the order of the config."""
    facts = []
    known = {**outcome.metrics, **outcome.failures}
    keys = product(config.datasets, config.backbones)
    for key in [(dataset.name, backbone.name) for dataset, backbone in keys]:
        if key not in known:
            continue
        unit: dict[str, Any] = {"dataset": key[0], "backbone": key[1], "status": "done"}
        if metrics := outcome.metrics.get(key):
            unit |= {"images": metrics["images"], "errors": metrics["errors"]["images"]}
            unit |= {name: metrics[name] for name in ("weights_sha256", "prompts_sha256")}
        if key in outcome.failures:
            unit |= {"status": "failed", "error": outcome.failures[key]}
        facts.append(unit)
    return facts
