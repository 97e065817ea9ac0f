"""Other runs to compare with: what they decide on the images that a report shows.

Images are matched by data set and image_id. Of another run, the ids of all images are read, one row
group at a time, and then only the final scores of shards with such images.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from sparc_dist import storage
from sparc_dist.pipeline.executor import get, share, submit
from sparc_dist.report.exhibit import UnitExhibit, Verdicts, verdicts
from sparc_dist.runs import DatasetLayout, Results, UnitKey, shard_groups
from sparc_dist.runs.labeler_file import FittedLabeler
from sparc_dist.runs.run import FinishedUnit, open_unit
from sparc_dist.runs.shards import image_shards

log = logging.getLogger(__name__)

#: All units of another run together are compared on so many images at most.
MOST_IMAGES = 20_000

#: By shard, the ids of images.
Places = dict[int, list[str]]


@dataclass(frozen=True)
class OtherUnit:
    """A unit of another run. classes: their names. images: by image_id, the verdicts on it.

    note: why no image can be compared, in words that follow the unit's name.
    """

    classes: Sequence[str] = ()
    images: Mapping[str, Verdicts] = field(default_factory=dict)
    note: str | None = None


@dataclass(frozen=True)
class OtherRun:
    """Another run, and its units of data sets that the report has, unfinished ones included."""

    results: Results
    units: Mapping[UnitKey, OtherUnit] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of its URL: where it is stored is nobody's business."""
        return self.results.layout.root.rstrip("/").rpartition("/")[2]

    def notes(self) -> Iterator[str]:
        """Yields what cannot be compared, and why."""
        if not self.units:
            yield f"{self.name} has no data set that this report has."
        for (dataset, backbone), unit in self.units.items():
            if unit.note is not None:
                yield f"{self.name}: {dataset} × {backbone} {unit.note}."


def read_other(other: Results, exhibits: Sequence[UnitExhibit], limit: float) -> OtherRun:
    """Returns what another run decides on the images of the exhibits.

    Whatever is missing there becomes a note: the report does not fail because of another run.
    """
    shown: dict[str, dict[str, str]] = {}
    for exhibit in exhibits:
        ids = {image.image_id: image.key for image in exhibit.images.values()}
        shown.setdefault(exhibit.dataset, {}).update(ids)
    keys = [key for key in product(other.datasets, other.units) if key[0] in shown]
    most = MOST_IMAGES // max(len(keys), 1)
    units = {}
    for dataset in dict.fromkeys(name for name, _ in keys):
        # Keys are hashes: the first of them are a random sample.
        wanted = sorted(shown[dataset], key=shown[dataset].__getitem__)[:most]
        data = other.layout.dataset(dataset)
        try:
            places = get(submit(_places, data, wanted), limit, "Finding images")
        except Exception as error:
            places = _reason(error)
        for key in keys:
            if key[0] == dataset:
                units[key] = _other_unit(other, key, places, limit)
    return OtherRun(other, units)


def _other_unit(other: Results, key: UnitKey, places: Places | str, limit: float) -> OtherUnit:
    if key not in other.metrics:
        return OtherUnit(note="is not finished")
    if isinstance(places, str):
        return OtherUnit(note=places)
    if not places:
        return OtherUnit(note="has none of the images that this report shows")
    try:
        unit = open_unit(other.layout.root, *key)
        labeler, shards = share(unit.labeler()), list(places.items())
        jobs = [
            submit(_of_shards, unit, labeler, shards[group.start : group.stop])
            for group in shard_groups(len(shards))
        ]
        parts = [get(job, limit, "Comparing images") for job in jobs]
    except Exception as error:
        return OtherUnit(note=_reason(error))
    return OtherUnit(unit.classes, {name: found for part in parts for name, found in part.items()})


def _places(data: DatasetLayout, wanted: Sequence[str]) -> Places:
    """Returns where some images are; holds the ids of one shard at a time."""
    known, places = pa.array(wanted, pa.string()), {}
    for shard, table in enumerate(image_shards(data, ["image_id"])):
        ids = table["image_id"]
        if found := ids.filter(pc.is_in(ids, value_set=known)).to_pylist():
            places[shard] = found
    return places


def _of_shards(
    unit: FinishedUnit, labeler: FittedLabeler, shards: Sequence[tuple[int, list[str]]]
) -> dict[str, Verdicts]:
    """Returns the verdicts on some images of some shards; unreadable images have none."""
    found: dict[str, Verdicts] = {}
    for shard, wanted in shards:
        ids, final = unit.reader.final(shard)
        rows = {image_id: row for row, image_id in enumerate(ids)}
        scored = [name for name in wanted if name in rows]
        judged = verdicts(labeler, final[[rows[name] for name in scored]])
        found |= dict(zip(scored, judged, strict=True))
    return found


def _reason(error: Exception) -> str:
    """Returns why a unit cannot be compared; an error's own text may name files of the run."""
    log.debug("another run cannot be read", exc_info=error)
    if isinstance(error, storage.StorageError):
        return "cannot be read: its store does not answer or refuses to"
    return "has missing or damaged files; `sparc-dist verify` names them"
