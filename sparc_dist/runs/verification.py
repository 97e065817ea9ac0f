"""Verification: which files of a run are damaged or missing, and what mends each of them.

Every file is read whole and compared with its seal, and with the hash in its marker where there is
one. ``mark`` takes note of the damage, so that the next start of the run makes good for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sparc_dist import storage
from sparc_dist.config import ENSEMBLE
from sparc_dist.core import Method, deciding, stages_of
from sparc_dist.runs.layout import AFTER_FIT, DatasetLayout, RunLayout, UnitLayout
from sparc_dist.runs.markers import Marker
from sparc_dist.runs.record import report_files
from sparc_dist.runs.removal import drop_shards
from sparc_dist.runs.results import read_metrics
from sparc_dist.runs.shards import image_shards, images_sha256

#: What a file comes from: from outside, from images, from scores, or from results.
Origin = Literal["given", "images", "scores", "results"]
REMEDIES: dict[Origin, str] = {
    "given": "restore it from a backup, or start over with --overwrite",
    "images": "repeat the command of the run: it scores this shard again",
    "scores": "repeat the command of the run: it computes this file again from the scores",
    "results": "write it again with `sparc-dist report RUN`",
}


@dataclass(frozen=True)
class Part:
    """A file of a run.

    sha256: the hash in its seal, as far as a marker says it. needed: whether it must exist. shard:
    of files that come from images.
    """

    url: str
    origin: Origin
    needed: bool = True
    sha256: str | None = None
    shard: int | None = None

    def look(self) -> Fault | bool:
        """Returns what is wrong with it; if nothing is, whether it exists."""
        content = storage.read_if_exists(self.url)
        if content is None:
            return Fault(self, "missing") if self.needed else False
        found = self.seal(content)
        whole = found is not None and self.sha256 in (None, found)
        return whole or Fault(self, "damaged")

    def seal(self, content: bytes) -> str | None:
        """Returns the hash that a content has in its seal, if it is whole."""
        return storage.seal_of(content)


class Page(Part):
    """A page or table of the report, which has no seal."""

    def seal(self, content: bytes) -> str | None:
        """Returns the hash of a content."""
        return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Fault:
    """A file that is damaged or missing."""

    part: Part
    what: Literal["damaged", "missing"]

    def __str__(self) -> str:
        place = storage.without_secrets(self.part.url)
        return f"{place} is {self.what}; {REMEDIES[self.part.origin]}."


@dataclass(frozen=True)
class Checked:
    """The number of files that were looked at, and what is wrong with some."""

    files: int = 0
    faults: tuple[Fault, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Checked:
        """Looks at files; holds one at a time."""
        found = [part.look() for part in parts]
        faults = tuple(fault for fault in found if isinstance(fault, Fault))
        return cls(len(found) - found.count(False), faults)

    def __add__(self, other: Checked) -> Checked:
        return Checked(self.files + other.files, self.faults + other.faults)


def check_run(layout: RunLayout) -> Checked:
    """Looks at run.json and the report."""
    own = Checked.of([Part(layout.run, "given"), Part(layout.report_marker, "results", False)])
    pages = (
        (Page if sha256 else Part)(
            storage.join(layout.report, name), "results", True, sha256 or None
        )
        for name, sha256 in report_files(layout).items()
    )
    return own + Checked.of(pages)


def check_dataset(data: DatasetLayout) -> Checked:
    """Looks at the list of images, and at the prompts."""
    small = Checked.of([Part(data.marker, "given"), Part(data.prompts, "given")])
    facts = storage.read_json_if_exists(data.marker)
    if facts is None:
        return small
    urls = list(data.image_files(facts["shards"]))
    try:
        images = sum(len(rows) for rows in image_shards(data, ["image_id", "uri", "labels"]))
        whole = images == facts["images"]
        whole &= images_sha256(data, facts["shards"]) == facts["images_sha256"]
    except (FileNotFoundError, storage.Damaged):
        whole = False
    fault = Fault(Part(urls[0], "given"), "damaged")
    return small + Checked(len(urls), () if whole else (fault,))


def check_unit(unit: UnitLayout, groups: range) -> Checked:
    """Looks at the files that a unit has one of, and at the states of groups of shards."""
    metrics = read_metrics(unit)
    finished = metrics is not None
    fitted = metrics is not None and "fitted_on" not in metrics
    made = _is_ensemble(unit)
    single = [Part(unit.metrics, "scores", False)]
    single += [Part(url, "scores", finished) for url in (unit.decisions, unit.labeler)]
    single += [Part(unit.gallery, "scores", finished)]
    single += [Part(url, "scores", False) for url in (unit.texts, unit.prompt_embeddings)]
    fusions = [name for name in deciding() if name in (metrics or ())]
    stages = AFTER_FIT if made else (*stages_of(fusions or Method().fusions), *AFTER_FIT)
    states = [unit.state(stage, group) for stage in stages for group in groups]
    return Checked.of([*single, *(Part(url, "scores", fitted) for url in states)])


def check_shards(unit: UnitLayout, shards: Sequence[int], derived: bool = False) -> Checked:
    """Looks at the tables of shards. derived: only at those that a reduce writes."""
    finished = read_metrics(unit) is not None
    parts = (part for shard in shards for part in _shard_parts(unit, shard, finished, derived))
    return Checked.of(parts)


def _shard_parts(unit: UnitLayout, shard: int, finished: bool, derived: bool) -> Iterator[Part]:
    made = _is_ensemble(unit)
    marker = None if made else Marker.read(unit, shard)
    known = {} if marker is None else marker.sha256
    if not derived and not made:
        yield Part(unit.marker(shard), "images", finished, shard=shard)
        for name in ("scores", "errors"):
            if name in known:
                yield Part(getattr(unit, name)(shard), "images", True, known[name], shard)
    elif made:
        yield Part(unit.errors(shard), "scores", finished)
    # A labeler that is applied writes these with the marker, and nothing else can make them.
    labels: list[str | None] = [*known.get("labels", "").split()] or [None, None]
    origin: Origin = "images" if "final" in known else "scores"
    yield Part(unit.final(shard), origin, finished, known.get("final"), shard)
    yield Part(unit.labels(shard), origin, finished, labels[0], shard)
    yield Part(unit.wide_labels(shard), origin, finished, labels[1], shard)


def _is_ensemble(unit: UnitLayout) -> bool:
    return unit.root.endswith(f"/{ENSEMBLE}")


def mark(layout: RunLayout, unit: UnitLayout | None, faults: Sequence[Fault]) -> None:
    """Takes note of damaged files, so that the next start makes them again.

    unit: whose files they are; None for the report
    """
    if unit is None:
        stored = storage.read_json_if_exists(layout.report_marker)
        if stored is not None and faults:
            storage.write_json(layout.report_marker, {"files": stored["files"]})
        return
    from_images = (fault.part for fault in faults if fault.part.origin == "images")
    shards = {part.shard for part in from_images if part.shard is not None}
    drop_shards(unit, sorted(shards), "files are damaged")
