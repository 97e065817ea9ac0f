"""The data of the pages as scripts, because a page on a disk may not fetch JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparc_dist.core import FUSIONS, deciding
from sparc_dist.report.exhibit import ClassScore, ShownImage, UnitExhibit, Verdicts
from sparc_dist.report.other_runs import OtherRun, OtherUnit
from sparc_dist.runs import Results, UnitKey

PART = 50  # images
NAMES = 50_000  # of classes, in all parts of a unit together
#: What could end a script early: the end tag and comments of HTML, the line ends of old JavaScript.
RISKY = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def script(name: str, value: Any) -> str:
    """Returns a script that assigns a value to a name of the page."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f'window["{name}"] = {text.translate(RISKY)};\n'


def parts_of(unit: UnitExhibit) -> int:
    """Returns the number of parts of a unit's image data; each part names all classes."""
    most = NAMES // max(len(unit.classes), 1)
    return max(min(-(-len(unit.images) // PART), most), 1)


def part_of(key: str, parts: int) -> int:
    """Returns the part with an image; report.js computes the same."""
    number = 0
    for sign in key:
        number = (number * 31 + ord(sign)) % 1_000_003
    return number % parts


def image_scripts(unit: UnitExhibit) -> Iterator[tuple[str, str]]:
    """Yields the files of a unit's image data."""
    slugs = [(shown.name, f"class-{shown.slug}.html") for shown in unit.classes]
    index = {name: place for place, (name, _) in enumerate(slugs)}
    parts: list[list[Any]] = [[] for _ in range(parts_of(unit))]
    for image in unit.images.values():
        parts[part_of(image.key, len(parts))].append(_image(image, index))
    for number, images in enumerate(parts):
        data = {"method": FUSIONS[unit.primary].title, "classes": slugs, "images": images}
        yield f"images-{number}.js", script(f"images-{number}", data)


def _image(image: ShownImage, index: dict[str, int]) -> dict[str, Any]:
    return {
        "key": image.key,
        "id": image.image_id,
        "src": image.thumbnail and f"../{image.thumbnail}",
        "error": image.error,
        "truth": None if image.truth is None else list(image.truth),
        "classes": [_class(one, index) for one in image.classes],
    }


def _class(one: ClassScore, index: dict[str, int]) -> list[Any]:
    numbers = (one.score, one.probability, one.similarity, one.debiased, one.own, one.rest)
    prompts = [
        [part.text, *map(short, (part.similarity, part.debiased, part.weight, part.added))]
        for part in one.prompts
    ]
    return [index[one.name], one.present, *map(short, numbers), prompts]


def short(value: float | None) -> float | None:
    """Returns a number with five digits: enough to follow a sum, and half the bytes."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


Side = dict[str, Any]


def compare_script(
    results: Results, exhibits: Sequence[UnitExhibit], others: Sequence[OtherRun]
) -> str | None:
    """Returns what the page that compares needs; None if there are no two sides to compare."""
    places = {(unit.dataset, unit.backbone): place for place, unit in enumerate(exhibits)}
    sides = [side for side in _sides(results, places) if side["ap"] or side["unit"] is not None]
    units = [_own_unit(unit) for unit in exhibits]
    pictures = _pictures(exhibits)
    for other in others:
        places = {}
        for key, unit in other.units.items():
            if unit.images:
                places[key] = len(units)
                units.append(_other_unit(unit, pictures[key[0]]))
        sides += [_named(other, side) for side in _sides(other.results, places)]
    if len(sides) < 2:
        return None
    notes = [note for other in others for note in other.notes()]
    return script("compare", {"sides": sides, "units": units, "notes": notes})


def _sides(results: Results, places: Mapping[UnitKey, int]) -> Iterator[Side]:
    """Yields each method of each unit; ``places``: of units with images that can be compared.

    Only methods that decide can be compared by images.
    """
    for (dataset, backbone), metrics in results.metrics.items():
        for method in (name for name in FUSIONS if name in metrics):
            yield {
                "name": f"{dataset} × {backbone}: {FUSIONS[method].title}",
                "dataset": dataset,
                "method": method,
                "decides": method == metrics["primary"],
                "unit": places.get((dataset, backbone)) if method in deciding() else None,
                "ap": [[name, short(ap)] for name, ap in metrics[method]["AP"].items()],
            }


def _named(other: OtherRun, side: Side) -> Side:
    return side | {"name": f"{other.name}: {side['name']}"}


def _own_unit(unit: UnitExhibit) -> dict[str, Any]:
    """Returns the verdicts on the images of a unit that the report shows."""
    return {
        "slug": unit.slug,
        "classes": [shown.name for shown in unit.classes],
        "images": [
            [image.image_id, image.key, image.thumbnail, _listed(image.decided)]
            for image in unit.images.values()
        ],
    }


def _other_unit(unit: OtherUnit, pictures: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns those of a unit of another run, which has no pages here."""
    images = [
        [image_id, None, pictures[image_id], _listed(found)]
        for image_id, found in unit.images.items()
    ]
    return {"slug": None, "classes": list(unit.classes), "images": images}


def _pictures(exhibits: Sequence[UnitExhibit]) -> dict[str, dict[str, str | None]]:
    """Returns for each data set the thumbnails of images by image_id."""
    found: dict[str, dict[str, str | None]] = {}
    for unit in exhibits:
        images = {image.image_id: image.thumbnail for image in unit.images.values()}
        found.setdefault(unit.dataset, {}).update(images)
    return found


def _listed(found: Verdicts) -> dict[str, list[list[Any]]]:
    return {
        method: [
            [index, None if chance is None else round(chance, 3), int(present)]
            for index, chance, present in classes
        ]
        for method, classes in found.items()
    }
