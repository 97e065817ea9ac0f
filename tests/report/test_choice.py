"""The choice of images: bounded for any number of classes and units, and fair to all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sparc_dist.core import Gallery
from sparc_dist.core.gallery import row_size
from sparc_dist.report.exhibit import (
    FEWEST_IMAGES,
    MOST_IMAGES,
    ROWS,
    Choice,
    PromptPart,
    ShownImage,
    choose,
)
from sparc_dist.report.exhibits import Limits
from sparc_dist.report.scripts import image_scripts
from sparc_dist.report.site import site
from tests.support.exhibits import results_of, unit

KEY = ("voc", "B32")


def gallery(classes: int, seed: int = 0) -> Gallery:
    """The gallery of so many images that rows have few in common; only random ones are shared."""
    shape = (len(ROWS), classes, row_size(classes))
    rows = np.random.default_rng(seed).integers(0, 1_000_000, shape, dtype=np.int32)
    rows[ROWS.index("random")] = np.arange(shape[2])
    return Gallery(np.zeros(shape), np.zeros(shape, np.int32), rows)


def count(chosen: Choice) -> int:
    return len(chosen.classes())


def test_a_small_gallery_is_shown_whole() -> None:
    found = gallery(20)
    chosen = choose({KEY: found})[KEY]
    for index in range(20):
        assert all(chosen.rows[name][index] == found.images(name, index) for name in ROWS)
        assert not chosen.emptied(index)


@pytest.mark.parametrize("classes", [81, 340, 600, 2000, 5000])
def test_images_are_bounded_and_classes_are_treated_alike(classes: int) -> None:
    chosen = choose({KEY: gallery(classes)})[KEY]
    assert count(chosen) <= max(MOST_IMAGES - classes, FEWEST_IMAGES)
    likeliest = [len(row) for row in chosen.rows["likeliest"]]
    if classes <= 2000:
        assert min(likeliest) > 0
        assert max(likeliest) - min(likeliest) <= 1
    if classes <= 600:  # one of each row
        assert not any(chosen.emptied(index) for index in range(classes))
    else:
        assert "misses" in chosen.emptied(classes - 1)


def test_units_share_the_images() -> None:
    galleries = {("voc", str(seed)): gallery(81, seed) for seed in range(3)}
    chosen = choose(galleries)
    counts = [count(one) for one in chosen.values()]
    assert sum(counts) == MOST_IMAGES - 3 * 81
    assert max(counts) - min(counts) < 2 * 81
    for key, one in chosen.items():
        for name in ROWS:
            for index, row in enumerate(one.rows[name]):  # the first ones, without gaps
                assert row == galleries[key].images(name, index)[: len(row)]


def test_the_report_of_2000_classes_has_less_than_50_mb() -> None:
    """The pages of 50 classes are made and count forty times; a thumbnail has 5 KB."""
    names = [f"class number {number:04d}" for number in range(2000)]
    chosen = choose({KEY: gallery(2000)})
    choice, limits = chosen[KEY], Limits.of(chosen.values(), 1)
    made = unit("B32", 1)
    some = made.images["i0001"]
    pictures = {
        place: _image(some, f"{place[1]:024x}", names, sorted(classes), limits)
        for place, classes in choice.classes().items()
    }
    example = replace(
        made.classes[0],
        precision_recall=[(i / 199, 1 - i / 250) for i in range(200)],
        edges=np.linspace(-6, 6, 61).tolist(),
        counts=list(range(60)),
        rank_weights=np.linspace(1, 0, 40).tolist(),
        prompts=[f"a photo of class number {i} and another one" for i in range(limits.prompts)],
    )
    classes = [
        replace(
            example,
            name=name,
            slug=f"class-number-{index}",
            rows={row: [pictures[place].key for place in choice.rows[row][index]] for row in ROWS},
            emptied=choice.emptied(index),
        )
        for index, name in enumerate(names)
    ]
    shown = {image.key: image for image in pictures.values()}
    many = replace(made, classes=classes, images=shown)
    first = set(names[:50])
    used = {key for one in classes[:50] for row in one.rows.values() for key in row}
    shorter = {
        key: replace(shown[key], classes=[one for one in shown[key].classes if one.name in first])
        for key in used
    }
    few = replace(many, classes=classes[:50], images=shorter)
    pages = {name: text for name, text in site(results_of(few), [few], {}) if "html" in name}
    assert "None is shown, to keep the report" in pages[f"{made.slug}/class-class-number-1.html"]
    data = sum(len(text) for _, text in image_scripts(many))
    written = 40 * sum(map(len, pages.values())) + data
    assert written + 5_000 * len(shown) < 50_000_000


def _image(
    some: ShownImage, key: str, names: Sequence[str], shown_for: list[int], limits: Limits
) -> ShownImage:
    """An image with as much data as one can have."""
    part = PromptPart("a photo of class number 17 and another one", 0.21234, 1.1234, 0.2, 0.1)
    plain = replace(some.classes[0], prompts=(), own=0.0, rest=0.0, score=1.23456)
    order = [*shown_for, *(i for i in range(limits.classes) if i not in shown_for)]
    found = [replace(plain, name=names[i]) for i in order[: max(limits.classes, len(shown_for))]]
    explained = len(shown_for) + 3
    found[:explained] = [replace(one, prompts=[part] * 8, own=0.1) for one in found[:explained]]
    return replace(some, key=key, thumbnail=f"thumbnails/voc/{key}.jpg", classes=found)
