"""run.json: the record of which run is stored at an output, so that two are never mixed."""

from __future__ import annotations

import logging
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from itertools import product
from typing import Any

from sparc_dist import __version__, storage
from sparc_dist.config import Config, DatasetConfig
from sparc_dist.core import DuoOptions, Method, method_options
from sparc_dist.errors import UserError
from sparc_dist.runs.changes import config_changes, input_changes
from sparc_dist.runs.layout import DatasetLayout, RunLayout
from sparc_dist.runs.marker_summary import MarkerSummary
from sparc_dist.runs.results import possible_units
from sparc_dist.storage import without_secrets

log = logging.getLogger(__name__)

LIBRARIES = ("ray", "torch", "open_clip_torch", "numpy", "pyarrow", "pillow")

#: The version of the run format (docs/run-format.md); a run that names none has version 1.
FORMAT = 1

Record = dict[str, Any]
#: Returns what became of a data set's images since the run, in words.
Compare = Callable[[DatasetConfig, DatasetLayout], str | None]


#: Keys that version 0.1 lacks, and the values with which its runs are resumed as they were.
ADDED: dict[str, tuple[Any, ...]] = {
    "background": ("auto", "none"),
    "ensemble": ("simple", "openai"),
    "features": ("global",),
    "jpeg_scaling": (True, False),  # it is off: see resumed
    "labeler": (None,),
    "local_scale": (100, 100.0),
    "pairs_per_class": ("auto", "all"),
    "primary": ("auto", "sparc"),
    "store": ("both",),
    "stored_precision": ("fp32",),
}


#: Keys whose default has changed: the former one, with which such runs are resumed, and today's.
FORMER = {"precision": ("fp32", "auto")}


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
    if overwrite:
        storage.check_access(layout.root)
        discard(layout, _read(layout) or identity)
    record = None if overwrite else _read_undamaged(layout)
    if record is not None and grows:
        tables = {str(dataset.images) for dataset in config.datasets}
        now = {url: sha for url, sha in identity["inputs"].items() if url in tables}
        record["inputs"] |= {url: sha for url, sha in now.items() if url in record["inputs"]}
    if record is not None:
        if not _different(record, identity):
            return record
        if _has_scores(layout, record):
            known = {**identity, "config": _known(_completed(record), identity["config"])}
            different = _different(record, known)
            if not different:
                return record
            told = different if compare is None else _compared(different, layout, config, compare)
            raise UserError(
                f"{layout.root} holds a run with another config ({'; '.join(told[:5])}); go "
                "back to that config, keep both with --to NEW, or replace it with --overwrite."
            )
    elif not overwrite and _has_scores(layout, identity):
        raise UserError(
            f"{layout.root} holds results without the run.json that describes them; restore it, "
            "choose another place with --to NEW, or start over with --overwrite."
        )
    storage.check_access(layout.root)
    if _is_prepared(layout, record or identity):
        discard(layout, record or identity)  # of a run without scores: there is nothing to lose
    record = {"format": FORMAT, "sparc_dist": __version__, **identity, **_facts()}
    storage.write_json(layout.run, record)
    return record


def _different(record: Record, identity: Record) -> list[str]:
    return [
        *config_changes(_completed(record), identity["config"]),
        *input_changes(record["inputs"], identity["inputs"]),
    ]


def _completed(record: Record) -> dict[str, Any]:
    """Returns a run's config with those parts of its method that its version had no names for."""
    config = record["config"]
    method = method_options(config.get("method") or {})
    duo = {**asdict(DuoOptions()), **method.get("duo", {})}
    added = {"rival": Method().rival, "fusions": list(Method().fusions)}
    return {**config, "method": {**added, **method, "duo": duo}}


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


def _known(old: Any, new: Any) -> Any:
    """Returns a config without the keys that an older version lacks, where they change nothing."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {
            key: old[key]
            if (old.get(key), value) == FORMER.get(key)
            else _known(old.get(key), value)
            for key, value in new.items()
            if key in old or value not in ADDED.get(key, ())
        }
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [_known(*pair) for pair in zip(old, new, strict=True)]
    return new


def resumed(config: Config, record: Record) -> Config:
    """Returns a config as its run began.

    Versions without jpeg_scaling decoded JPEGs in full, and their precision was float32.
    """
    begun = {section["name"]: section.get("precision") for section in record["config"]["backbones"]}
    backbones = tuple(
        backbone.model_copy(update={"precision": begun.get(backbone.name) or backbone.precision})
        for backbone in config.backbones
    )
    scaled = is_scaled(record["config"])
    return config.model_copy(update={"jpeg_scaling": scaled, "backbones": backbones})


def is_scaled(stored: Mapping[str, Any]) -> bool:
    """Whether a run with this stored config decodes large JPEGs at a smaller scale."""
    return bool(stored.get("jpeg_scaling", False))


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
    found = storage.read_json_if_exists(layout.run)
    try:
        names = [part["name"] for key in ("datasets", "backbones") for part in found["config"][key]]
        return found if names and "inputs" in found else None
    except (TypeError, KeyError):
        return None


def _read_undamaged(layout: RunLayout) -> Record | None:
    """Returns run.json, or None if it is missing; raises UserError if it is damaged."""
    record = _read(layout)
    if record is not None:
        _check_format(layout, record)
    if record is None and storage.read_if_exists(layout.run) is not None:
        raise UserError(
            f"{layout.run} is damaged, so it is unknown which run this is; restore it, choose "
            "another place with --to NEW, or start over with --overwrite."
        )
    return record


def _check_format(layout: RunLayout, record: Record) -> None:
    """Raises UserError for a run that a newer version of this package wrote."""
    if record.get("format", FORMAT) > FORMAT:
        raise UserError(
            f"The run at {without_secrets(layout.root)} has format {record['format']}, and this "
            f"version of sparc_dist ({__version__}) reads up to {FORMAT}; install a newer one."
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
    urls = [str(dataset.images) for dataset in config.datasets if dataset.kind == "manifest"]
    for dataset in config.datasets:
        prompts = dataset.prompts
        named = (dataset.classes, dataset.background_file, prompts.labels, prompts.sets)
        urls += [url for url in (*named, prompts.descriptive) if isinstance(url, str)]
    if config.labeler is not None:
        urls.append(config.labeler)
    return {url: storage.sha256(url) for url in sorted(set(urls))}


def _is_prepared(layout: RunLayout, record: Record) -> bool:
    """Whether images and prompts of a data set are written."""
    names = [dataset["name"] for dataset in record["config"]["datasets"]]
    return any(storage.read_if_exists(layout.dataset(name).marker) is not None for name in names)


def _has_scores(layout: RunLayout, record: Record) -> bool:
    """Whether any shard is scored; before that, there is nothing to lose."""
    for dataset, backbone in product(record["config"]["datasets"], record["config"]["backbones"]):
        data = layout.dataset(dataset["name"])
        unit = data.unit(backbone["name"])
        if storage.read_if_exists(unit.metrics) is not None:
            return True
        facts = storage.read_json_if_exists(data.marker)
        if facts and len(MarkerSummary.of(unit, facts["shards"]).missing) < facts["shards"]:
            return True
    return False


def names_of_run(folder: str, names: Sequence[str]) -> set[str]:
    """Returns which of the names in a folder belong to a run that is stored there."""
    layout = RunLayout(folder)
    # If these fill a page, run.json may be on another one.
    record = _read(layout) if "run.json" in names or len(names) >= storage.PAGE else None
    if record is None:
        return set()
    own = [layout.run, layout.labels_csv, layout.report, storage.parent(layout.experiments_index)]
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
            facts = storage.read_json_if_exists(data.marker) or {"shards": 0}
            units = [data.unit(name) for name in possible_units(backbones)]
            shards = facts["shards"]
            markers = [url for unit in units for url in unit.marker_files(shards)]
            for urls in (
                [unit.metrics for unit in units],
                markers,
                [url for unit in units for url in unit.files(shards)],
                [*data.image_files(shards), data.listing, data.prompts],
                [data.marker],
            ):
                list(workers.map(storage.delete, urls))
        *files, marker = layout.report_files(names, possible_units(backbones), report_names(layout))
        list(workers.map(storage.delete, files))
        storage.delete(marker)  # after the files that only it names
        storage.delete(layout.labels_csv)
        list(workers.map(storage.delete, layout.experiment_files(_experiments(layout))))
    storage.delete(layout.run)


def report_names(layout: RunLayout) -> list[str]:
    """Returns the files that the marker of a report names, relative to ``report/``."""
    found = storage.read_json_if_exists(layout.report_marker)
    names = found.get("files", []) if isinstance(found, dict) else []
    return [name for name in names if ".." not in name.split("/")]  # nothing outside is deleted


def _experiments(layout: RunLayout) -> list[str]:
    """Returns the names of the experiments made on a run: its index shows a picture of each."""
    index = (storage.read_if_exists(layout.experiments_index) or b"").decode(errors="replace")
    return re.findall(r"\]\(([a-z0-9-]+)\.png\)", index)
