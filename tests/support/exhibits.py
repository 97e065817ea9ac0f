"""Results and exhibits made by hand: ordinary ones, and ones whose names attack the pages."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from sparc_dist.report.exhibit import (
    ROWS,
    ClassExhibit,
    ClassScore,
    PromptPart,
    ShownImage,
    UnitExhibit,
)
from sparc_dist.report.other_runs import OtherRun, OtherUnit
from sparc_dist.report.site import site
from sparc_dist.runs import Results, RunLayout

CLASSES = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow "
    "diningtable dog horse motorbike person plant sheep sofa train monitor"
).split()
IMAGES = 60
#: Sets window.attacked if any page runs it.
HOSTILE = [
    "<script>window.attacked=1</script>",
    '"><img src=x onerror=window.attacked=1>',
    "</script><script>window.attacked=1</script>",
    "javascript:window.attacked=1",
    "'; window.attacked=1; //",
    "{{ 7 * 7 }}{% raise %}",
    "__proto__",
    "x" * 4096,
    "שלום \u202etxet thgir-ot-tfel\u2028 world",
    "https://elsewhere.example/a.png",
]


def unit(backbone: str, seed: int, classes: Sequence[str] = CLASSES) -> UnitExhibit:
    """A unit with labels; the first image has no picture."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(IMAGES, len(classes))) + 1.5 * _truth(len(classes))
    images = [_image(place, scores[place], classes) for place in range(IMAGES)]
    methods = ("zsclip", "debiased", "sparc", "duo")
    aps = {method: rng.uniform(20, 90, len(classes)) for method in methods}
    shown = [
        _class(place, name, scores[:, place], {key: float(ap[place]) for key, ap in aps.items()})
        for place, name in enumerate(classes)
    ]
    errors = [(f"{name}.jpg", "not an image in a known format") for name in classes[:4]]
    return UnitExhibit(
        "voc",
        backbone,
        f"voc-{backbone}",
        "sparc",
        _metrics(classes, aps, len(errors)),
        shown,
        {image.key: image for image in images},
        errors,
    )


def results_of(*units: UnitExhibit) -> Results:
    """The results of a run with these units."""
    metrics = {(one.dataset, one.backbone): dict(one.metrics) for one in units}
    return Results(RunLayout("/nowhere"), ["voc"], [one.backbone for one in units], metrics)


def write_site(folder: Path, *units: UnitExhibit, others: Sequence[OtherRun] = ()) -> Path:
    """Writes the report of these units with drawn thumbnails; returns its folder."""
    for name, text in site(results_of(*units), units, {}, others):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())
    for number, image in enumerate(image for one in units for image in one.images.values()):
        if image.thumbnail:
            place = folder / image.thumbnail
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(_thumbnail(number))
    return folder


def ordinary(folder: Path) -> Path:
    """The report of a run with two backbones."""
    return write_site(folder, _pictured(unit("B32", 1)), _pictured(unit("RN50", 2)))


def against(folder: Path) -> Path:
    """The report of a run with one backbone, compared with another run.

    That has no aeroplane and a zebra; it finds one class more in images 3 and 4, less likely in
    the first, and has neither image 5 nor a second backbone that is finished.
    """
    made = _pictured(unit("B32", 1))
    classes = [*CLASSES[1:], "zebra"]
    images = {}
    for place, image in enumerate(made.images.values()):
        found = {index - 1: (chance, here) for index, chance, here in image.decided["sparc"]}
        found.pop(-1, None)  # the aeroplane
        if place in (3, 4):
            more = next(index for index in range(len(CLASSES) - 1) if index not in found)
            found[more] = (0.6 + 0.1 * (place - 3), True)
        verdict = [(index, *judged) for index, judged in found.items()]
        images[image.image_id] = {"sparc": [*verdict, (len(CLASSES) - 1, 0.9, True)]}
    del images[list(images)[5]]
    units = {("voc", "B32"): OtherUnit(classes, images), ("voc", "L14"): OtherUnit(note="is …")}
    results = results_of(unit("B32", 3))
    other = Results(RunLayout("/runs/before"), ["voc"], ["B32", "L14"], results.metrics)
    return write_site(folder, made, others=[OtherRun(other, units)])


def hostile(folder: Path) -> Path:
    """The report of a run whose class names, image ids, prompts and reasons are attacks."""
    made = unit("B32", 1, HOSTILE)
    errors = [(text, text) for text in HOSTILE]
    metrics = {
        **made.metrics,
        "errors": {"images": 10, "share": 0.14, "reasons": dict.fromkeys(HOSTILE, 1)},
        "notes": HOSTILE,
    }
    return write_site(folder, _pictured(replace(made, errors=errors, metrics=metrics)))


def _pictured(made: UnitExhibit) -> UnitExhibit:
    images = {
        key: image
        if place == 0
        else replace(image, error=None, thumbnail=f"thumbnails/{made.slug}/{key}.jpg")
        for place, (key, image) in enumerate(made.images.items())
    }
    return replace(made, images=images)


def _truth(columns: int) -> Any:
    return np.random.default_rng(0).random((IMAGES, columns)) < 0.15


def _image(place: int, scores: Any, classes: Sequence[str]) -> ShownImage:
    order = np.argsort(scores)[::-1]
    present = _truth(len(classes))[place]
    found = [_score(classes, int(column), float(scores[column])) for column in order]
    image_id = classes[place] if place < len(classes) else f"photos/{place:03d}.jpg"
    truth = [name for name, there in zip(classes, present, strict=True) if there]
    # Duo finds the same as SPARC, and in the second image one class more.
    places = {one.name: classes.index(one.name) for one in found}
    sparc = [(places[one.name], one.probability, True) for one in found if one.present]
    more = [(places[one.name], 0.75, True) for one in found if not one.present][:1]
    decided = {"sparc": sparc, "duo": [*sparc, *(more if place == 1 else [])]}
    return ShownImage(f"i{place:04d}", image_id, None, "the file is gone", truth, found, decided)


def _score(classes: Sequence[str], column: int, score: float) -> ClassScore:
    """Every class is explained: a share each for its own prompt, two others and the rest."""
    parts = [
        PromptPart(f"{classes[column]} and {other}", 0.21, 1.1, 0.2, score / 4)
        for other in classes[:2]
    ]
    probability = None if column == 1 else float(1 / (1 + np.exp(1.5 - score)))
    return ClassScore(
        classes[column], score, probability, score > 1.5, 0.25, score, score / 4, parts, score / 4
    )


def _class(place: int, name: str, scores: Any, ap: dict[str, float]) -> ClassExhibit:
    counts, edges = np.histogram(scores, bins=24)
    order = [f"i{image:04d}" for image in np.argsort(scores)[::-1]]
    above = int((scores > 1.5).sum())
    rows = dict(
        zip(
            ROWS,
            (order, order[:above][-8:], order[above : above + 8], order[-8:], order[:3], []),
            strict=True,
        )
    )
    return ClassExhibit(
        name,
        f"c{place}",
        "clear" if place % 3 else "unclear",
        0.15,
        None if place == 1 else 1.5,
        None if place == 1 else 0.5,
        edges.tolist(),
        counts.tolist(),
        rows,
        [0.5, 0.3, 0.2, 0.1, 0.05],
        [f"{name} and {other}" for other in CLASSES],
        ap,
        [(0.0, 1.0), (0.4, 0.9), (0.7, 0.6), (1.0, 0.2)],
        66.7,
        71.4,
        62.5,
    )


def _metrics(classes: Sequence[str], aps: dict[str, Any], errors: int) -> dict[str, Any]:
    decided = ("micro_f1", "oracle_micro_f1", "macro_f1", "oracle_macro_f1", "sample_f1")
    decisions = dict.fromkeys((*decided, "precision", "recall", "ece"), 64.25)
    methods = {
        key: {
            "mAP": float(ap.mean()),
            "AP": dict(zip(classes, map(float, ap), strict=True)),
            "decisions": decisions,
        }
        for key, ap in aps.items()
    }
    reasons = {"not an image in a known format": errors}
    return {
        **methods,
        "primary": "sparc",
        "doubts": {},
        "images": IMAGES,
        "errors": {"images": errors, "share": errors / (IMAGES + errors), "reasons": reasons},
        "labelled": IMAGES + errors,
        "notes": [],
        "stages": {"scoring": {"images": IMAGES, "seconds": 2.0, "images_per_second": 30.0}},
        "recovery": {"storage_retries": 7},
    }


def _thumbnail(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    picture = Image.new("RGB", (96, 72), tuple(rng.integers(120, 255, 3).tolist()))
    colour = tuple(rng.integers(0, 120, 3).tolist())
    x, y = (int(value) for value in rng.integers(0, 40, 2))
    ImageDraw.Draw(picture).ellipse((x, y, x + 40, y + 30), fill=colour)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG")
    return buffer.getvalue()
