"""run.json: the record of which run is stored at an output, so that two are never mixed."""

from __future__ import annotations

import logging
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import product
from typing import Any

from sparc_dist import __version__, storage
from sparc_dist.config import DATASET_KINDS, Config, DatasetConfig
from sparc_dist.errors import NEW_OUTPUT, OVERWRITE, UserError
from sparc_dist.runs.changes import config_changes, input_changes
from sparc_dist.runs.layout import DatasetLayout, RunLayout
from sparc_dist.runs.markers import MarkerSummary
from sparc_dist.runs.results import UnitKey, possible_units, read_dataset_facts
from sparc_dist.runs.shards import shard_sizes
from sparc_dist.storage import join, without_secrets

log = logging.getLogger(__name__)

LIBRARIES = ("ray", "torch", "open_clip_torch", "numpy", "pyarrow", "pillow")

#: The version of the run format (docs/run-format.md): of all files, states of the reduce included.
FORMAT = 3

Record = dict[str, Any]
#: Returns what became of a data set's images since the run, in words.
Compare = Callable[[DatasetConfig, DatasetLayout], str | None]


def claim(
    layout: RunLayout,
    config: Config,
    overwrite: bool = False,
    compare: Compare | None = None,
    grows: bool = False,
) -> Record:
    """Writes run.json before anything else, or returns that of the same run to resume.

    compare: says what changed in a table of images. grows: whether such a table may have changed.
    """
    identity = {"config": config.identity(), "inputs": _input_hashes(config)}
    record = stored_record(layout) if not overwrite else None
    if overwrite:
        discard(layout, _read(layout) or identity)
    elif record is None:
        _check_unused(layout, identity)
    else:
        if grows:
            record["inputs"] |= _grown_tables(config, record, identity)
        # Inputs that were missing at an earlier start, whose units have failed.
        record["inputs"] = {**_present(identity["inputs"]), **record["inputs"]}
        different = _different(record, identity)
        if not different:
            _check_listed(layout, record)
            return record
        if _has_scores(layout, record):
            told = different if compare is None else _compared(different, layout, config, compare)
            raise UserError(
                f"{layout.root} holds a run with another config ({'; '.join(told[:5])}); go "
                f"back to that config, keep both with {NEW_OUTPUT}, or replace it with {OVERWRITE}."
            )
        discard(layout, record)  # of a run without scores: there is nothing to lose
    identity["inputs"] = _present(identity["inputs"])
    record = {"format": FORMAT, "sparc_dist": __version__, **identity, **_facts()}
    storage.write_json(layout.run, record)
    return record


def _grown_tables(config: Config, record: Record, identity: Record) -> dict[str, Any]:
    """Returns the hashes of the tables of images as they are now, of those that the run had."""
    tables = {str(dataset.images) for dataset in config.datasets} & {*record["inputs"]}
    return {url: sha256 for url, sha256 in identity["inputs"].items() if url in tables}


def _check_unused(layout: RunLayout, identity: Record) -> None:
    """Raises UserError if an output without run.json has files with names that a run writes.

    They are a run's whose run.json was lost, or somebody else's.
    """
    own = [layout.labels_csv, layout.report_marker, join(layout.report, "index.html")]
    for dataset in identity["config"]["datasets"]:
        data = layout.dataset(dataset["name"])
        own += [data.marker, data.images]
    found = [url for url in own if not storage.is_missing(url)]
    if not found and not storage.is_remote(layout.report) and storage.is_folder(layout.report):
        found = [layout.report]
    if found:
        raise UserError(
            f"{layout.root} has {found[0].removeprefix(layout.root + '/')}, but no run.json of a "
            f"run that wrote it; restore run.json, choose another place with {NEW_OUTPUT}, or "
            f"delete what is there with {OVERWRITE}."
        )


def finished_units(record: Record) -> list[UnitKey]:
    """Returns the units that run.json calls finished."""
    units = (unit for unit in record.get("units", []) if unit["status"] == "done")
    return [(unit["dataset"], unit["backbone"]) for unit in units]


def _check_listed(layout: RunLayout, record: Record) -> None:
    """Raises UserError if a data set with a finished unit has lost its dataset.json.

    Without it the images would be listed again, and others may be found.
    """
    for name in dict.fromkeys(dataset for dataset, _ in finished_units(record)):
        if storage.is_missing(layout.dataset(name).marker):
            raise UserError(
                f"{without_secrets(layout.dataset(name).marker)} is missing, although run.json "
                "calls this data set finished; restore it from a backup, or start over with "
                f"{OVERWRITE}."
            )


def _different(record: Record, identity: Record) -> list[str]:
    return [
        *config_changes(record["config"], identity["config"]),
        *input_changes(record["inputs"], identity["inputs"]),
    ]


def _compared(
    different: list[str], layout: RunLayout, config: Config, compare: Compare
) -> list[str]:
    """Returns the differences with the images that a changed table has now."""
    told = list(different)
    for dataset in config.datasets:
        changed = f"{dataset.images}: changed since the run"
        if changed in told:
            images = compare(dataset, layout.dataset(dataset.name))
            told[told.index(changed)] = f"images: {images}" if images else changed
    return told


def read_record(layout: RunLayout) -> Record:
    """Returns run.json; raises UserError if it is missing or damaged."""
    place = without_secrets(layout.root)
    try:
        record: Record = storage.read_json(layout.run)
        if record["config"]["datasets"] and record["config"]["backbones"]:
            _check_format(layout, record)
            return record
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"There is no run at {place}; check the URL, or start the run.") from None
    except (ValueError, TypeError, KeyError):
        log.debug("run.json cannot be read", exc_info=True)
    raise UserError(f"The run.json at {place} is damaged; restore it from a backup.")


def _read(layout: RunLayout) -> Record | None:
    """Returns run.json, or None if it is missing or damaged."""
    found: Any = storage.read_json_if_exists(layout.run)
    try:
        names = [part["name"] for key in ("datasets", "backbones") for part in found["config"][key]]
        return found if names and "inputs" in found else None
    except (TypeError, KeyError):
        return None


def stored_record(layout: RunLayout) -> Record | None:
    """Returns run.json, or None if it is missing.

    Raises UserError if it is damaged or of another format.
    """
    record = _read(layout)
    if record is not None:
        _check_format(layout, record)
    if record is None and storage.read_if_exists(layout.run) is not None:
        raise UserError(
            f"{layout.run} is damaged, so it is unknown which run this is; restore it, choose "
            f"another place with {NEW_OUTPUT}, or start over with {OVERWRITE}."
        )
    return record


def _check_format(layout: RunLayout, record: Record) -> None:
    """Raises UserError for a run that another version of this package wrote."""
    if record.get("format") != FORMAT:
        raise UserError(
            f"The run at {without_secrets(layout.root)} has format {record.get('format')}, and "
            f"sparc_dist {__version__} reads format {FORMAT}; use the version that wrote it "
            f"({record.get('sparc_dist')}), or start over with {OVERWRITE}."
        )


def _facts() -> Record:
    return {
        "versions": {name: version(name) for name in LIBRARIES},
        "host": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "system": platform.system(),
            "cpus": os.cpu_count(),
        },
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _input_hashes(config: Config) -> dict[str, str | None]:
    """Returns the hashes of the tables and texts that the config names; None for a missing one.

    Images in a folder are not hashed: the run uses those present when it first starts.
    """
    tables = [dataset for dataset in config.datasets if DATASET_KINDS[dataset.kind].table]
    urls = [str(dataset.images) for dataset in tables]
    urls += [url for dataset in config.datasets for url in dataset.texts]
    hashes = {url: storage.sha256(url) for url in sorted(set(urls))}
    if config.labeler is not None:
        hashes[config.labeler] = storage.sha256(config.labeler)
        if hashes[config.labeler] is None:
            place = without_secrets(config.labeler)
            raise UserError(f"There is no labeler {place}; check the path.")
    return hashes


def _present(hashes: Mapping[str, str | None]) -> dict[str, str]:
    return {url: sha256 for url, sha256 in hashes.items() if sha256 is not None}


def _has_scores(layout: RunLayout, record: Record) -> bool:
    """Whether any shard is scored; before that, there is nothing to lose."""
    names = product(record["config"]["datasets"], record["config"]["backbones"])
    units = [(layout.dataset(dataset["name"]), backbone["name"]) for dataset, backbone in names]
    return any(_is_scored(*unit) for unit in units * 2)  # a store may lose sight of a file once


def _is_scored(data: DatasetLayout, backbone: str) -> bool:
    unit, facts = data.unit(backbone), read_dataset_facts(data)
    shards = facts["shards"] if facts else 1
    return (
        not storage.is_missing(unit.metrics) or len(MarkerSummary.of(unit, shards).missing) < shards
    )


def names_of_run(folder: str, names: Sequence[str]) -> set[str]:
    """Returns which of the names in a folder belong to a run that is stored there."""
    layout = RunLayout(folder)
    # If these fill a page, run.json may be on another one.
    record = _read(layout) if "run.json" in names or len(names) >= storage.PAGE else None
    if record is None:
        return set()
    own = [layout.run, layout.lease, layout.labels_csv, layout.report]
    own.append(storage.parent(layout.experiments_index))
    own += [layout.dataset(dataset["name"]).root for dataset in record["config"]["datasets"]]
    return {*names} & {url.rpartition("/")[2] for url in own}


def discard(layout: RunLayout, record: Record) -> None:
    """Deletes the files of a run, by name; replies of an LLM stay, because other runs can use them.

    Markers go first and run.json last: if interrupted, it is still that run, with less done.
    """
    names = [dataset["name"] for dataset in record["config"]["datasets"]]
    backbones = [backbone["name"] for backbone in record["config"]["backbones"]]
    with ThreadPoolExecutor(32) as workers:
        for name in names:
            data = layout.dataset(name)
            units = [data.unit(name) for name in possible_units(backbones)]
            shards = _shards(data)
            markers = [url for unit in units for url in unit.marker_files(shards)]
            for urls in (
                [unit.metrics for unit in units],
                markers,
                [url for unit in units for url in unit.files(shards)],
                [*data.image_files(shards), data.listing, data.prompts],
                [data.marker],
            ):
                list(workers.map(storage.delete, urls))
        *files, marker = layout.report_files(
            names, possible_units(backbones), list(report_files(layout))
        )
        list(workers.map(storage.delete, files))
        storage.delete(marker)  # after the files that only it names
        storage.delete(layout.labels_csv)
        list(workers.map(storage.delete, layout.experiment_files(_experiments(layout))))
    storage.delete(layout.run)


def _shards(data: DatasetLayout) -> int:
    """Returns the number of shards of a data set, of whose files any may be missing or damaged."""
    if facts := storage.read_json_if_exists(data.marker):
        return int(facts["shards"])
    try:
        return len(shard_sizes(data))
    except (FileNotFoundError, storage.Damaged):
        return 0


def report_files(layout: RunLayout) -> dict[str, str]:
    """Returns the files that the marker of a report names, relative to ``report/``, and hashes."""
    files = (storage.read_json_if_exists(layout.report_marker) or {}).get("files", {})
    # Nothing outside is deleted.
    return {name: sha256 for name, sha256 in files.items() if ".." not in name.split("/")}


def _experiments(layout: RunLayout) -> list[str]:
    """Returns the names of the experiments made on a run: its index shows a picture of each."""
    index = (storage.read_if_exists(layout.experiments_index) or b"").decode(errors="replace")
    return re.findall(r"\]\(([a-z0-9-]+)\.png\)", index)
