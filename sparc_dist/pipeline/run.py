"""A run: every data set under every backbone."""

from __future__ import annotations

import logging
import os
import platform
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from ray.data.exceptions import ExecutionTimeoutError

from sparc_dist import __version__, storage
from sparc_dist.config import BackboneConfig, Config, DatasetConfig
from sparc_dist.errors import UserError
from sparc_dist.layout import RunLayout
from sparc_dist.pipeline.cluster import cluster
from sparc_dist.pipeline.prepare import Prepared, prepare
from sparc_dist.pipeline.unit import run_unit

LIBRARIES = ("ray", "torch", "open_clip_torch", "numpy", "pyarrow", "pillow")
log = logging.getLogger(__name__)


@dataclass
class Outcome:
    """What became of a run: metrics of the units that are done, reasons of those that are not."""

    layout: RunLayout
    metrics: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    nothing_to_do: bool = False


def run(config: Config) -> Outcome:
    """Do what is missing of a run; a unit that fails does not stop the others."""
    layout = RunLayout(config.output)
    record = _claim(layout, config)
    outcome = Outcome(layout)
    missing = {dataset.name: _missing(config, dataset, outcome) for dataset in config.datasets}
    outcome.nothing_to_do = not any(missing.values())
    if outcome.nothing_to_do and "units" in record:
        return outcome
    started = time.monotonic()
    if not outcome.nothing_to_do:
        with cluster(config.resources):
            for dataset in config.datasets:
                _run_dataset(config, dataset, missing[dataset.name], outcome)
    record["seconds"] = round(time.monotonic() - started, 1)
    record["units"] = _unit_facts(outcome)
    storage.write_json(layout.run, record)
    return outcome


def _missing(config: Config, dataset: DatasetConfig, outcome: Outcome) -> list[BackboneConfig]:
    """The backbones under which a data set is still to be run; the others' metrics are read."""
    missing = []
    for backbone in config.backbones:
        metrics = outcome.layout.dataset(dataset.name).unit(backbone.name).metrics
        if storage.exists(metrics):
            outcome.metrics[dataset.name, backbone.name] = storage.read_json(metrics)
        else:
            missing.append(backbone)
    return missing


def _run_dataset(
    config: Config, dataset: DatasetConfig, missing: list[BackboneConfig], outcome: Outcome
) -> None:
    data: Prepared | None = None
    for backbone in missing:
        try:
            layout = outcome.layout.dataset(dataset.name)
            data = data or prepare(dataset, layout, config.shard_size)
            outcome.metrics[dataset.name, backbone.name] = run_unit(config, data, backbone)
        except Exception as error:
            log.debug("unit failed", exc_info=True)
            outcome.failures[dataset.name, backbone.name] = sentence(error)


def sentence(error: BaseException) -> str:
    """What to tell of an error: a UserError's own words, wherever on the cluster it was raised."""
    seen = error
    while type(seen) not in (UserError, ExecutionTimeoutError):
        cause = getattr(seen, "cause", None) or seen.__cause__
        if not isinstance(cause, BaseException):
            break
        seen = cause
    if type(seen) is UserError:
        return str(seen)
    if isinstance(seen, ExecutionTimeoutError):
        return (
            "No shard was finished for resources.no_progress_seconds; raise it or lower "
            "shard_size if the machine is slow, or give the cluster what it lacks."
        )
    last = [line.strip() for line in str(seen).splitlines() if line.strip()] or [""]
    return f"{type(seen).__name__}: {last[-1]}"[:500]


def _claim(layout: RunLayout, config: Config) -> dict[str, Any]:
    """Write run.json before anything else, or find that this very run was begun earlier."""
    identity = {"config": config.identity(), "inputs": _input_hashes(config)}
    if storage.exists(layout.run):
        record: dict[str, Any] = storage.read_json(layout.run)
        old = {key: record[key] for key in identity}
        different = list(_differences(old, identity))
        if not different:
            return record
        if _has_results(layout, record):
            raise UserError(
                f"{layout.root} holds a run with another config ({'; '.join(different[:5])}); "
                "choose another `output`, or go back to that config."
            )
    record = {
        "sparc_dist": __version__,
        **identity,
        "versions": {name: version(name) for name in LIBRARIES},
        "host": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "system": platform.system(),
            "cpus": os.cpu_count(),
        },
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    storage.write_json(layout.run, record)
    return record


def _input_hashes(config: Config) -> dict[str, str | None]:
    """Content hashes of the tables and texts that the config names; None where one is missing.

    A folder's images are taken as they are at the run's first start.
    """
    urls = [dataset.images for dataset in config.datasets if dataset.kind == "manifest"]
    for dataset in config.datasets:
        prompts = dataset.prompts
        named = (dataset.classes, prompts.labels, prompts.sets, prompts.descriptive)
        urls += [url for url in named if isinstance(url, str)]
    return {url: storage.sha256(url) for url in sorted(set(urls))}


def _has_results(layout: RunLayout, record: dict[str, Any]) -> bool:
    """Whether the earlier start got as far as a prepared data set; before, nothing is lost."""
    names = [dataset["name"] for dataset in record["config"]["datasets"]]
    return any(storage.exists(layout.dataset(name).marker) for name in names)


def _differences(old: Any, new: Any, path: str = "") -> Any:
    """Where two configs differ, as "field: old → new"."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _differences(*pair, f"{path}.{index}")
    elif old != new:
        yield f"{path}: {_short(old)} → {_short(new)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _unit_facts(outcome: Outcome) -> list[dict[str, Any]]:
    done = [
        {
            "dataset": dataset,
            "backbone": backbone,
            "status": "done",
            **{key: metrics[key] for key in ("images", "errors")},
            **{key: metrics[key] for key in ("weights_sha256", "prompts_sha256")},
        }
        for (dataset, backbone), metrics in outcome.metrics.items()
    ]
    failed = [
        {"dataset": dataset, "backbone": backbone, "status": "failed", "error": reason}
        for (dataset, backbone), reason in outcome.failures.items()
    ]
    return done + failed
