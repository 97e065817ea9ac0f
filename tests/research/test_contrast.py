"""The contrast of a class: independent of the shards, and the misordered pair it finds."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparc_dist.core import Method
from sparc_dist.research.contrast import COLUMNS, Contrast
from tests.support.cases import golden
from tests.support.fitting import fit_sparc
from tests.support.strategies import bounded


def contrast_of(values: list[list[float]], present: list[bool]) -> Contrast:
    """Returns a contrast with the given first and second maxima."""
    columns = np.zeros((len(values), len(COLUMNS)), dtype=np.float32)
    columns[:, 1:3] = values
    ids = tuple((0, str(row)) for row in range(len(values)))
    top = np.arange(2 * len(values)).reshape(-1, 2)
    return Contrast(ids, np.array(present), columns, top)


def test_columns_match_the_reduce_phase() -> None:
    scores, mentions, labels, _ = golden()
    fusion = fit_sparc(lambda: iter([scores]), mentions, Method())
    names = [(0, str(row)) for row in range(len(scores))]
    parts = [slice(0, 300), slice(300, 301), slice(301, 800)]
    found = reduce(add, (Contrast.of(names[p], scores[p], labels[p, 3], 3, fusion) for p in parts))
    debiased = fusion.debias(scores)
    ranked = np.sort(debiased[:, 20 + mentions[3]], axis=1)[:, ::-1]
    assert found.ids == tuple(names)
    np.testing.assert_allclose(found.values[:, 0], debiased[:, 3], rtol=1e-6)
    np.testing.assert_allclose(found.values[:, 1:3], ranked[:, :2], rtol=1e-6)
    np.testing.assert_allclose(
        found.values[:, 4], fusion.final(scores)[1][:, 3], rtol=1e-5, atol=1e-6
    )
    of_top = np.take_along_axis(debiased, 20 + found.top, axis=1)
    np.testing.assert_allclose(of_top, ranked[:, :2])


def test_every_image_is_in_each_histogram_once() -> None:
    scores, mentions, labels, _ = golden()
    fusion = fit_sparc(lambda: iter([scores]), mentions, Method())
    ids = [(0, str(row)) for row in range(len(scores))]
    found = Contrast.of(ids, scores, labels[:, 0], 0, fusion).histograms(12)
    assert found.counts.shape == (5, 2, 12)
    assert (found.counts.sum(axis=2) == [(~labels[:, 0]).sum(), labels[:, 0].sum()]).all()


def test_the_clearest_pair_is_found() -> None:
    values = [[1.0, 0.9], [3.0, 0.1], [2.0, 0.2], [0.5, 0.45], [1.5, 1.4]]
    found = contrast_of(values, [True, False, False, True, False]).misordered()
    assert found is not None
    present, absent = found
    # Images 0 and 1: the first max is wrong by 2.0, the second right by 0.8. With image 3 the
    # second would be right by only 0.35.
    assert (present.image_id, absent.image_id) == ("0", "1")
    assert (present.top, absent.top) == ((0, 1), (2, 3))


@bounded(50)
@given(st.integers(0, 10**6))
def test_it_is_the_clearest_of_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.sort(rng.integers(0, 12, (30, 2)), axis=1)[:, ::-1].astype(float)
    present = rng.random(30) < 0.4
    pairs = [
        (min(values[n, 0] - values[p, 0], values[p, 1] - values[n, 1]), p, n)
        for p in np.flatnonzero(present).tolist()
        for n in np.flatnonzero(~present).tolist()
    ]
    best = max((margin for margin, _, _ in pairs), default=0.0)
    found = contrast_of(values.tolist(), present.tolist()).misordered()
    if found is None:
        assert best <= 0
    else:
        p, n = (int(example.image_id) for example in found)
        assert (best, p, n) in pairs


@pytest.mark.parametrize(
    ("values", "present"),
    [
        ([[2.0, 1.0], [1.0, 0.5]], [True, False]),  # in order already
        ([[1.0, 0.5], [2.0, 1.0]], [True, False]),  # not corrected
        ([[1.0, 0.5], [2.0, 1.0]], [False, False]),  # nothing to order
    ],
)
def test_without_such_a_pair_the_result_is_none(
    values: list[list[float]], present: list[bool]
) -> None:
    assert contrast_of(values, present).misordered() is None
