"""The files that say how far a data set and a unit have come: dataset.json and metrics.json."""

from __future__ import annotations

from typing import Any

from sparc_dist import storage
from sparc_dist.errors import OVERWRITE, UserError
from sparc_dist.runs.layout import DatasetLayout, UnitLayout

#: The key of metrics.json that says why a unit that was finished is not so any more.
UNFINISHED = "unfinished"
#: The reason while decisions are fitted again: everything else of the unit is as it should be.
DECIDING = "deciding"
#: The reasons while images change: new ones are labelled, or all are fitted again.
LABELLING = "its labeler labels new images"
FITTING = "its images change"


def read_dataset_facts(data: DatasetLayout) -> dict[str, Any] | None:
    """Returns dataset.json; None if there is none. Raises UserError if it is damaged.

    A data set without it is listed again, and other images would be found.
    """
    found = storage.read_json_if_exists(data.marker)
    if found is None and not storage.is_missing(data.marker):
        raise UserError(
            f"{storage.without_secrets(data.marker)} is damaged; restore it from a backup, or "
            f"start over with {OVERWRITE}."
        )
    return found


def read_metrics(unit: UnitLayout, deciding: bool = False) -> dict[str, Any] | None:
    """Returns the metrics of a finished unit; None for any other.

    deciding: also those of a unit whose decisions were being fitted again
    """
    found = storage.read_json_if_exists(unit.metrics)
    reason = found.pop(UNFINISHED, None) if found else None
    return found if reason is None or (deciding and reason == DECIDING) else None


def reason_unfinished(unit: UnitLayout) -> str | None:
    """Returns why a unit that was finished is not so any more; None if it was not, or still is."""
    return (storage.read_json_if_exists(unit.metrics) or {}).get(UNFINISHED)


def reopen(unit: UnitLayout, why: str) -> None:
    """Marks a unit as unfinished before its files change: the next start does what is missing.

    Nothing is deleted: a run needs no right to do so.
    """
    found = storage.read_json_if_exists(unit.metrics)
    if found is not None:
        storage.write_json(unit.metrics, {**found, UNFINISHED: why})
