"""The data of the page that compares: methods, backbones and runs as sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparc_dist.core import FUSIONS, deciding
from sparc_dist.report.data import script, short
from sparc_dist.report.exhibit import UnitExhibit
from sparc_dist.report.other_runs import OtherRun, OtherUnit
from sparc_dist.report.verdicts import Verdicts
from sparc_dist.runs import Results, UnitKey

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
