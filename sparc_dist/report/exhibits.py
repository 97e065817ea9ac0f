"""Builds the exhibits of a run from storage: classes, chosen images, their explanations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from sparc_dist import storage
from sparc_dist.core import ShownState
from sparc_dist.errors import UserError
from sparc_dist.report.exhibit import ROWS, Choice, Place, ShownImage, UnitExhibit, choose
from sparc_dist.report.pictures import Errors, Thumbnails
from sparc_dist.report.shown import FoundImage, ShownClasses, Source, find_images
from sparc_dist.runs import Results, UnitKey
from sparc_dist.runs.ensemble_file import AnyLabeler
from sparc_dist.runs.gallery_file import read_gallery
from sparc_dist.runs.markers import READERS
from sparc_dist.runs.run import FinishedUnit, open_unit
from sparc_dist.runs.slugs import unit_slugs

#: The most errors of a unit that are shown, and how many tables of errors are read at once.
ERRORS, AT_ONCE = 200, 64
#: All images together list about so many classes at most, fewer by PAGE for the page of each class;
#: an image lists at least FEWEST.
MOST_SCORES, PAGE, FEWEST = 300_000, 120, 20
#: All classes together list about so many prompts at most; a class lists up to MOST of them.
MOST_PROMPTS, FEW, MOST = 20_000, 10, 200


@dataclass(frozen=True)
class Limits:
    """What keeps a report small: so many classes of an image, so many prompts of a class.

    seconds: after so long, work that does not end is given up.
    """

    classes: int
    prompts: int
    seconds: float

    @classmethod
    def of(cls, chosen: Iterable[Choice], seconds: float) -> Limits:
        """Returns the limits of a report that shows these images."""
        units = list(chosen)
        images = sum(len(choice.classes()) for choice in units)
        classes = sum(choice.width for choice in units)
        listed = max(FEWEST, (MOST_SCORES - PAGE * classes) // max(images, 1))
        return cls(listed, min(MOST, max(FEW, MOST_PROMPTS // max(classes, 1))), seconds)


def build_exhibits(results: Results, limit: float) -> dict[UnitKey, UnitExhibit]:
    """Returns the exhibits of the finished units, and makes their thumbnails.

    Units with a damaged gallery or labeler have no exhibit. limit: in seconds, for a piece of work.
    """
    found = {key: _opened(results, key) for key in results.metrics}
    opened = {key: parts for key, parts in found.items() if parts is not None}
    chosen = choose({key: shown.gallery for key, (_, shown) in opened.items()})
    limits = Limits.of(chosen.values(), limit)
    slugs = unit_slugs(results.datasets, results.units)
    exhibits = {}
    for key, (unit, shown) in opened.items():
        try:  # here and not before: the labelers of many units would fill the memory
            labeler = unit.labeler()
        except UserError:  # it is damaged or missing
            continue
        builder = Builder(unit, labeler, shown, chosen[key], limits)
        exhibits[key] = builder.exhibit(key, slugs[key], Thumbnails(results.layout, key[0]))
    return exhibits


def _opened(results: Results, key: UnitKey) -> tuple[FinishedUnit, ShownState] | None:
    """Returns a unit with its gallery; None if one of their files is damaged or missing."""
    try:
        unit = open_unit(results.layout.root, *key)
        shown = read_gallery(unit.unit)
    except UserError:
        return None
    return None if shown is None else (unit, shown)


@dataclass(frozen=True)
class Builder:
    """Builds the exhibit of a unit. shown: its gallery, of which ``choice`` is a part."""

    unit: FinishedUnit
    labeler: AnyLabeler
    shown: ShownState
    choice: Choice
    limits: Limits

    def exhibit(self, key: UnitKey, slug: str, thumbnails: Thumbnails) -> UnitExhibit:
        """Returns the exhibit, and makes its thumbnails."""
        unit, labeler, seconds = self.unit, self.labeler, self.limits.seconds
        source = Source(unit, labeler, self.limits.classes)
        found = find_images(source, self.choice.classes(), seconds)
        errors = thumbnails.make({image.shown.key: image.uri for image in found}, seconds)
        keys = {image.place: image.shown.key for image in found}
        facts = ShownClasses.of(labeler, self.shown.counts, unit.metrics, self.limits.prompts)
        classes = [
            replace(
                facts.exhibit(index, self._rows(index, keys, facts.labelled)),
                emptied=self.choice.emptied(index),
            )
            for index in range(len(unit.classes))
        ]
        return UnitExhibit(
            *key,
            slug,
            unit.primary,
            unit.metrics,
            classes,
            {image.shown.key: _pictured(image, thumbnails, errors) for image in found},
            list(_errors(unit)),
        )

    def _rows(self, index: int, keys: Mapping[Place, str], labelled: bool) -> dict[str, list[str]]:
        """Returns the keys of the images in each row of a class; the last two only with labels."""
        names = ROWS if labelled else ROWS[:-2]
        return {name: [keys[place] for place in self.choice.rows[name][index]] for name in names}


def _pictured(image: FoundImage, thumbnails: Thumbnails, errors: Errors) -> ShownImage:
    """Returns an image with its thumbnail, or why there is none."""
    error = errors[image.shown.key]
    if error is not None:
        return replace(image.shown, error=error)
    url = thumbnails.layout.thumbnail(thumbnails.dataset, image.shown.key)
    return replace(image.shown, thumbnail=url.removeprefix(thumbnails.layout.report + "/"))


def _errors(unit: FinishedUnit) -> Iterator[tuple[str, str]]:
    """Yields id and reason of the first images that could not be read."""
    shards, left = range(len(unit.sizes)), min(ERRORS, unit.metrics["errors"]["images"])
    with ThreadPoolExecutor(READERS) as readers:
        for start in shards[::AT_ONCE]:
            if left <= 0:
                return
            urls = map(unit.unit.errors, shards[start : start + AT_ONCE])
            for table in readers.map(storage.read_table, urls):
                for row in table.slice(0, left).to_pylist():
                    yield row["image_id"], row["error"]
                left -= min(left, len(table))
