"""The gallery: however images are divided into shards, it has those that a full sort finds."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparc_dist.core import ClassCounts, Gallery, ShownState
from sparc_dist.core.gallery import FEWEST, MOST, MOST_IMAGES, ROWS, row_size
from sparc_dist.report import exhibit

Case = tuple[list[str], np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def drawn(seed: int, images: int, classes: int) -> Case:
    random = np.random.default_rng(seed)
    # Coarse, so that some are equal.
    z = random.integers(-6, 7, (images, classes)) / 4.0
    labels = random.random((images, classes)) < 0.3
    labelled = random.random(images) < 0.7
    ids = [f"photo {number}" for number in range(images)]
    return ids, z, z >= 0.5, labelled, labels & labelled[:, None]


def in_shards(case: Case, ends: list[int]) -> list[ShownState]:
    ids, z, present, labelled, labels = case
    cuts = [slice(a, b) for a, b in zip([0, *ends], [*ends, len(ids)], strict=True)]
    return [
        ShownState.of(i, ids[c], z[c], present[c], (labelled[c], labels[c]))
        for i, c in enumerate(cuts)
    ]


def global_rows(gallery: Gallery, starts: list[int], index: int) -> dict[str, list[int]]:
    """The numbers of the images in each row, among all images."""
    return {name: [starts[s] + row for s, row in gallery.images(name, index)] for name in ROWS}


def brute_force(case: Case, index: int, size: int) -> dict[str, list[int]]:
    _, z, present, labelled, labels = case
    score, here = z[:, index], present[:, index]
    false = here & labelled & ~labels[:, index]
    missed = ~here & labelled & labels[:, index]
    images = range(len(score))

    def first(chosen: np.ndarray, sign: int) -> list[int]:
        return sorted((i for i in images if chosen[i]), key=lambda i: (sign * score[i], i))[:size]

    return {
        "likeliest": first(np.ones(len(score), bool), -1),
        "above": first(here, 1),
        "below": first(~here, -1),
        "false_positives": first(false, -1),
        "misses": first(missed, 1),
    }


@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.integers(1, 5),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_it_does_not_depend_on_shards_and_equals_a_full_sort(
    seed: int, images: int, classes: int, cuts: list[int]
) -> None:
    case = drawn(seed, images, classes)
    ends = sorted(min(cut, images) for cut in cuts)
    starts = [0, *ends]
    parts = in_shards(case, ends)
    forward, backward = reduce(add, parts), reduce(add, parts[::-1])
    whole = in_shards(case, [])[0]
    for a, b in zip(forward.arrays(), backward.arrays(), strict=True):
        np.testing.assert_array_equal(a, b)
    restored = ShownState.from_arrays(forward.arrays())
    for index in range(classes):
        found = global_rows(restored.gallery, starts, index)
        assert found == global_rows(whole.gallery, [0], index)
        expected = brute_force(case, index, row_size(classes))
        assert {name: found[name] for name in expected} == expected
        assert not case[2][found["random"], index].any()
        absent = int((~case[2][:, index]).sum())
        assert len(set(found["random"])) == min(absent, row_size(classes))
    np.testing.assert_array_equal(forward.counts.scores, whole.counts.scores)


def test_the_random_row_is_a_sample() -> None:
    """Neighbouring images are not preferred, and other images are taken for other ids."""
    count = 4000
    z = np.zeros((count, 1))
    known = np.zeros(count, bool), np.zeros((count, 1), bool)
    of = [
        Gallery.of(0, [f"{kind}{i}" for i in range(count)], z, z > 0, *known)
        for kind in ("a/", "b/")
    ]
    rows = [{row for _, row in gallery.images("random", 0)} for gallery in of]
    assert all(len(row) == MOST and max(row) - min(row) > count / 2 for row in rows)
    assert len(rows[0] & rows[1]) < MOST / 2


@pytest.mark.parametrize("classes", [1, 20, 28, 81, 300, 5000])
def test_rows_are_bounded(classes: int) -> None:
    size = row_size(classes)
    assert FEWEST <= size <= MOST
    assert size == FEWEST or size * classes * len(ROWS) <= MOST_IMAGES


def test_the_contract_of_pages_has_the_same_rows() -> None:
    assert exhibit.ROWS == ROWS


def test_counts_give_distribution_curve_and_quality() -> None:
    z = np.array([[2.05], [1.05], [0.55], [-1.0], [-2.0], [9.0]])
    labels = np.array([[True], [False], [True], [False], [True], [False]])
    labelled = np.array([True] * 5 + [False])
    counts = ClassCounts.of(z, z >= 1.0, labelled, labels)
    edges, distribution = counts.distribution(0, 60)
    assert distribution.sum() == 6
    assert len(edges) == len(distribution) + 1 <= 61
    assert edges[0] <= -2.0 < edges[1]
    points = counts.precision_recall(0)
    np.testing.assert_allclose(points, [(1 / 3, 1.0), (2 / 3, 2 / 3), (1.0, 3 / 5)])
    assert counts.quality(0) == pytest.approx((40.0, 50.0, 100 / 3))


def test_counts_of_nothing_are_empty() -> None:
    nothing = np.zeros((0, 2))
    counts = ClassCounts.of(nothing, nothing > 0, np.zeros(0, bool), nothing > 0)
    assert [len(part) for part in counts.distribution(1, 60)] == [0, 0]
    assert counts.precision_recall(0) == []
    assert counts.quality(0) == (None, None, None)
