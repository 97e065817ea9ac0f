"""What can be known in a second or two, before anything slow starts: units that cannot work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

from sparc_dist import storage
from sparc_dist.backbones.check import check_model
from sparc_dist.backbones.weights import check_checkpoint
from sparc_dist.config import DATASET_KINDS, BackboneConfig, Config, DatasetConfig
from sparc_dist.datasets import ReusedImages, check_unique, class_names, open_source
from sparc_dist.errors import UserError, explain
from sparc_dist.prompts import background_names
from sparc_dist.runs import (
    EmbeddedRun,
    MarkerSummary,
    Pending,
    RunLayout,
    UnitKey,
    UnitLayout,
)
from sparc_dist.runs.labeler_file import check_single, read_facts
from sparc_dist.runs.results import read_dataset_facts
from sparc_dist.storage import is_web, without_secrets

LOOKED_AT = 20_000  # rows of a manifest whose ids are compared
SAMPLE = 8  # files of a manifest that are looked for


def find_problems(
    config: Config,
    pending: Pending,
    layout: RunLayout | None,
    here: bool,
    embeddings: EmbeddedRun | None = None,
) -> dict[UnitKey, str]:
    """Returns the pending units that cannot be scored, and why; raises UserError if none can.

    layout: the run to resume, if any. here: whether this machine does the work; if a cluster does,
    only the names of models are checked, because its machines may have other files. embeddings:
    the run whose embeddings are used in place of the images, if any.
    """
    if here and config.labeler is not None:
        check_single(config.labeler, read_facts(config.labeler))
    wanted = {backbone.name: backbone for many in pending.values() for backbone in many}
    with ThreadPoolExecutor(SAMPLE) as pool:
        checks = (partial(_check_backbone, backbone, here) for backbone in wanted.values())
        reasons = [pool.submit(copy_context().run, _reason, check) for check in checks]
        backbones = {name: reason.result() for name, reason in zip(wanted, reasons, strict=True)}
    found: dict[UnitKey, str] = {}
    for dataset in config.datasets:
        data = layout.dataset(dataset.name) if layout else None
        facts = read_dataset_facts(data) if data else None
        problem = None
        if here and pending[dataset.name] and facts is None:
            problem = _reason(partial(_check_dataset, dataset, embeddings))
        for backbone in pending[dataset.name]:
            name = backbone.name
            reason = problem or backbones[name]
            if not reason and embeddings:
                of = (config.jpeg_scaling, dataset, backbone)
                reason = _reason(partial(_check_embeddings, embeddings, *of))
            if reason and not (data and facts and _is_scored(data.unit(name), facts)):
                found[dataset.name, name] = reason
    return found


def _is_scored(unit: UnitLayout, facts: dict[str, Any]) -> bool:
    """Whether scores are complete, which then need neither images nor weights."""
    return not MarkerSummary.of(unit, facts["shards"]).missing


def _reason(check: Callable[[], None]) -> str | None:
    """Returns what a check finds wrong."""
    try:
        check()
    except Exception as error:  # of any library that reads
        return explain(error)
    return None


def _check_backbone(backbone: BackboneConfig, here: bool) -> None:
    check_model(backbone)
    if here:
        check_checkpoint(backbone)


def _check_embeddings(
    run: EmbeddedRun, jpeg_scaling: bool, dataset: DatasetConfig, backbone: BackboneConfig
) -> None:
    run.check_decoding(jpeg_scaling)
    data = run.dataset(dataset.name)
    data.check_scored(data.unit(backbone.sized(dataset.resnet_size)))


def _check_dataset(dataset: DatasetConfig, embeddings: EmbeddedRun | None) -> None:
    for url in dataset.texts:
        if not storage.exists(url):
            raise UserError(f"There is no file {without_secrets(url)}; check the path.")
    classes = class_names(dataset)
    background_names(dataset.background, classes, ())
    if embeddings is not None:
        ReusedImages(dataset, embeddings.dataset(dataset.name)).check()
    elif not DATASET_KINDS[dataset.kind].official:
        _check_images(dataset)
    elif not storage.is_folder(str(dataset.images)):  # its annotations take longer to read
        raise UserError(f"There is no folder {dataset.images}; check the path.")


def _check_images(dataset: DatasetConfig) -> None:
    """Looks at the first images: all ids of a small table, else that there are any."""
    is_table = DATASET_KINDS[dataset.kind].table
    ids: list[str] = []
    uris: list[str] = []
    for table in open_source(dataset).images():
        ids += table["image_id"].to_pylist()
        uris += table["uri"].to_pylist()
        if not is_table or len(ids) >= LOOKED_AT:
            break
    if not ids:
        raise UserError(f"{dataset.images} contains no images; check the path.")
    check_unique(ids)
    if is_table:
        _check_sample([uri for uri in uris if not is_web(uri)], str(dataset.images))


def _check_sample(uris: list[str], table: str) -> None:
    """Raises UserError if none of some files of a manifest exists."""
    sample = uris[:: -(-len(uris) // SAMPLE) or 1]
    with ThreadPoolExecutor(SAMPLE) as pool:
        if sample and not any(pool.map(_may_exist, sample)):
            raise UserError(
                f"{table}: none of the {len(sample)} files that were looked for exists, "
                f"{without_secrets(sample[0])} among them; correct the column `uri`, whose paths "
                "are relative to the table's folder."
            )


def _may_exist(uri: str) -> bool:
    """Whether a file exists; a store that does not let us ask fails no whole run."""
    try:
        return storage.exists(uri)
    except (UserError, OSError):
        return True
