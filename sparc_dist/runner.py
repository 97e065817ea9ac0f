"""A run from start to end: find what is missing, do it, record what became of each unit."""

from __future__ import annotations

import sys
import time
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from sparc_dist import storage
from sparc_dist.config import DATASET_KINDS, ENSEMBLE, Config
from sparc_dist.datasets import image_changes
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import joins_ray
from sparc_dist.planning.checks import find_problems
from sparc_dist.runs import (
    EmbeddedRun,
    Growing,
    Pending,
    Phase,
    Results,
    Retry,
    RunLayout,
    UnitKey,
    UnitLayout,
    claim,
    lease,
)
from sparc_dist.runs.record import finished_units, stored_record
from sparc_dist.runs.results import (
    FITTING,
    LABELLING,
    any_due,
    read_dataset_facts,
    reason_unfinished,
)
from sparc_dist.runs.verification import check_shards, check_unit, mark
from sparc_dist.storage import without_secrets

#: A finished unit with more shards is not looked at before a start, because that takes longer than
#: a moment; `sparc-dist verify` looks at any.
LOOKED_AT = 256


def run(
    config: Config,
    overwrite: bool = False,
    phase: Phase = "all",
    growing: Growing | None = None,
    embeddings_from: str | None = None,
    retry_errors: Retry = "passing",
) -> Results:
    """Does what is missing of a run; a unit that fails does not stop the others.

    growing: how the run follows its images; None if it keeps to its own list. embeddings_from: the
    folder or URL of a run of the same images and models, whose embeddings are scored in place of
    the images. retry_errors: which images that could not be read are tried again.
    """
    layout = RunLayout(config.output)
    embeddings = EmbeddedRun.open(embeddings_from, config.output) if embeddings_from else None
    problems = {} if phase == "reduce" else _problems(config, layout, overwrite, embeddings)
    with lease.writing(layout.root):
        record = claim(layout, config, overwrite, image_changes, growing is not None)
        start = Start(phase, growing, retry_errors, embeddings)
        results = _stored_results(layout, record)
        if growing == "label" and _lost(record, results):
            as_it_was = replace(start, growing=None, retry_errors="none")
            if (mended := _continue(config, record, problems, as_it_was, results)).failures:
                return mended
            results = _stored_results(layout, record)
            _check_mended(record, results)
        return _continue(config, record, problems, start, results)


@dataclass(frozen=True)
class Start:
    """What a start is to do; see ``run``."""

    phase: Phase
    growing: Growing | None
    retry_errors: Retry
    embeddings: EmbeddedRun | None


def _stored_results(layout: RunLayout, record: dict[str, Any]) -> Results:
    """Reads the results of a run; units with damaged ones count as unfinished."""
    results = Results.read(layout, record)
    _reopen_damaged(results)
    return results


def _lost(record: dict[str, Any], results: Results) -> list[UnitLayout]:
    """Returns the units that were finished and have lost results since.

    They are completed before their images are listed again: new images would be fitted together
    with the others otherwise, and the labels of all could change.
    """
    finished = finished_units(record)
    lost = []
    for dataset, backbone in product(results.datasets, results.backbones):
        unit = results.layout.dataset(dataset).unit(backbone)
        if (dataset, backbone) not in results.metrics:
            reason = reason_unfinished(unit)
            if reason not in (None, LABELLING, FITTING) or (
                reason is None and (dataset, backbone) in finished
            ):
                lost.append(unit)
    return lost


def _check_mended(record: dict[str, Any], results: Results) -> None:
    for unit in _lost(record, results):
        raise UserError(
            f"{without_secrets(unit.metrics)} is missing or damaged, although it has just been "
            "written; check the store, and repeat the command."
        )


def _continue(
    config: Config,
    record: dict[str, Any],
    problems: dict[UnitKey, str],
    start: Start,
    results: Results,
) -> Results:
    """Does what is missing of a run that ``record`` describes, except of units with problems.

    results: what is stored of them.
    """
    layout, embeddings = results.layout, start.embeddings
    retry_errors = start.retry_errors
    compared = _folder_changes(config, layout, embeddings)
    results.changes = {name: changes for name, changes in compared.items() if changes}
    results.failures = problems  # without those of an earlier start
    pending = _pending(config, {**results.metrics, **problems})
    if start.growing is not None:
        pending |= _growing(config, compared, refits=start.growing == "refit")
    if start.phase == "reduce" or embeddings is not None or "embeddings_from" in record:
        retry_errors = "none"
    failed = _failed(config, results, retry_errors)
    results.nothing_to_do = not (any(pending.values()) or any(failed.values())) and not (
        start.phase != "score" and any_due(config, results.metrics)
    )
    started = time.monotonic()
    if not results.nothing_to_do:
        # Ray takes seconds to import; a finished run should not wait for it.
        from sparc_dist.pipeline.environment import configure_ray

        configure_ray()
        from sparc_dist.pipeline.scheduling import Again, run_units

        again = Again(start.growing, retry_errors, failed)
        run_units(config, pending, results, start.phase, again, embeddings)
    if not results.nothing_to_do:
        record["seconds"] = round(time.monotonic() - started, 1)
        if embeddings is not None:
            record["embeddings_from"] = storage.without_secrets(embeddings.layout.root)
    _check_error_share(results, config.max_error_share)
    lease.check()
    units = _unit_facts(config, results)
    if not results.nothing_to_do or units != record.get("units"):
        record["units"] = units
        storage.write_json(layout.run, record)
    return results


def _reopen_damaged(results: Results) -> None:
    """Takes small finished units with damaged results for unfinished, so that these are mended."""
    for dataset, backbone in [*results.metrics]:
        data = results.layout.dataset(dataset)
        facts, unit = read_dataset_facts(data), data.unit(backbone)
        if facts is None or (shards := facts["shards"]) > LOOKED_AT:
            continue
        found = check_unit(unit, range(0)) + check_shards(unit, range(shards), derived=True)
        if found.faults:
            mark(results.layout, unit, found.faults)
            del results.metrics[dataset, backbone]
            print(
                f"{dataset} × {backbone}  {len(found.faults)} files are damaged or missing, "
                f"{without_secrets(found.faults[0].part.url)} among them; making them again",
                file=sys.stderr,
            )


def _pending(config: Config, known: Container[UnitKey]) -> Pending:
    """Returns the units whose outcome is not known."""
    return {
        dataset.name: [b for b in config.backbones if (dataset.name, b.name) not in known]
        for dataset in config.datasets
    }


def _growing(config: Config, compared: dict[str, str], refits: bool) -> Pending:
    """Returns all units of the data sets that may have grown. compared: as _folder_changes."""
    return {
        dataset.name: list(config.backbones)
        for dataset in config.datasets
        # A small folder has been compared already; others are compared on a worker.
        if refits or compared.get(dataset.name, "unknown")
    }


def _problems(
    config: Config, layout: RunLayout, overwrite: bool, embeddings: EmbeddedRun | None
) -> dict[UnitKey, str]:
    """Returns why units cannot work; raises UserError if none can, before anything is written."""
    if not overwrite:
        stored_record(layout)  # nothing else is read of a run of another format
    finished = Results.read(layout, {"config": config.identity()}).metrics
    pending = _pending(config, () if overwrite else finished)
    resumed = None if overwrite else layout
    found = find_problems(config, pending, resumed, _is_here(config), embeddings)
    if found and len(found) == sum(map(len, pending.values())):
        first, *others = dict.fromkeys(found.values())
        raise UserError(first + (" No other unit of the run can start either." if others else ""))
    return found


def _is_here(config: Config) -> bool:
    """Whether this machine does the work."""
    return config.resources.executor == "process" or not joins_ray()


def _failed(config: Config, results: Results, retry: Retry) -> Pending:
    """Returns the finished units with images to try again, if they could be scored again."""
    counted = {"all": "images", "passing": "passing", "none": ""}[retry]
    finished = {
        dataset.name: [
            backbone
            for backbone in config.backbones
            if (metrics := results.metrics.get((dataset.name, backbone.name)))
            and metrics["errors"].get(counted)
        ]
        for dataset in config.datasets
    }
    if any(finished.values()):
        try:
            problems = find_problems(config, finished, None, _is_here(config))
        except UserError:  # about the labeler, which all of them need
            return {}
        for name, backbones in finished.items():
            finished[name] = [b for b in backbones if (name, b.name) not in problems]
    return finished


def _folder_changes(
    config: Config, layout: RunLayout, embeddings: EmbeddedRun | None
) -> dict[str, str]:
    """Returns what became of images that are few enough to be compared at once."""
    found = {}
    for dataset in config.datasets:
        if DATASET_KINDS[dataset.kind].compared:
            with suppress(UserError):  # a finished run outlives its folder
                data = layout.dataset(dataset.name)
                if embeddings is not None:  # the images are as they were when they were embedded
                    data = embeddings.dataset(dataset.name).layout
                changes = image_changes(dataset, data)
                if changes is not None:
                    found[dataset.name] = changes
    return found


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
    """Returns the `units` of run.json in the order of the config, ensembles after their members."""
    facts = []
    known = {**results.metrics, **results.failures}
    names = [*(backbone.name for backbone in config.backbones), ENSEMBLE]
    for key in product([dataset.name for dataset in config.datasets], names):
        if key not in known:
            continue
        unit: dict[str, Any] = {"dataset": key[0], "backbone": key[1], "status": "done"}
        if metrics := results.metrics.get(key):
            unit |= {"images": metrics["images"], "errors": metrics["errors"]["images"]}
            hashes = ("weights_sha256", "checkpoint", "prompts_sha256")
            unit |= {name: metrics[name] for name in hashes if name in metrics}
            if metrics["errors"]["images"]:  # what the report says was done about them
                unit["max_error_share"] = config.max_error_share
        if key in results.failures:
            unit |= {"status": "failed", "error": results.failures[key]}
        facts.append(unit)
    return facts
