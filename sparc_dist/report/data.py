"""The data of the pages as scripts, because a page on a disk may not fetch JSON.

A script assigns one value. Image data come in parts of some images each: a page loads only the part
with the image that it shows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from sparc_dist.core import FUSIONS
from sparc_dist.report.exhibit import ClassScore, ShownImage, UnitExhibit

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
