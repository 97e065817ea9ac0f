"""The ensemble of backbones: the mean of standardised scores, as plain NumPy has it."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest

from sparc_dist.core import FinalScores, Moments, ScoredState, Standard, average, totals_of
from tests.support.golden_unit import golden_fusions

CUTS = [0, 130, 131, 500, 800]
EVERY = np.arange(800)
TOTALS = totals_of(["sparc", "duo"])


def noisy(final: FinalScores, seed: int) -> FinalScores:
    """The scores of a second backbone: other noise, gain and offset."""
    rng = np.random.default_rng(seed)
    noise = 0.5 * rng.standard_normal(final.every.shape)
    return final.split(3 * (final.every + final.every.std() * noise) - 7)


def standard_of(final: FinalScores) -> Standard:
    """As the reduce gathers it: shard by shard, merged."""
    parts = [final[a:b] for a, b in pairwise(CUTS)]
    states = [
        ScoredState.of([(part, np.full(len(part), False), np.zeros((len(part), 20), bool))], TOTALS)
        for part in parts
    ]
    return Standard.of(reduce(add, states).every)


@pytest.fixture(scope="module")
def pair() -> tuple[FinalScores, FinalScores]:
    final = golden_fusions()[1]
    return final, noisy(final, 1)


def test_it_is_the_mean_of_standardised_scores(pair: tuple[FinalScores, FinalScores]) -> None:
    found = average(((one, standard_of(one), EVERY) for one in pair), 800)
    for name in ("zsclip", "debiased", "sparc", "duo", "duo_total"):
        columns = [one.by_name[name].astype(np.float64) for one in pair]
        z = [(x - x.mean(axis=0)) / x.std(axis=0, ddof=1) for x in columns]
        np.testing.assert_allclose(found.by_name[name], (z[0] + z[1]) / 2, rtol=0, atol=2e-6)
    assert found.parts["sparc_background"].shape == (800, 0)


def test_an_image_is_averaged_over_the_backbones_that_have_it(
    pair: tuple[FinalScores, FinalScores],
) -> None:
    first, second = pair
    standards = [standard_of(one) for one in pair]
    alone = [average([(one, own, EVERY)], 800) for one, own in zip(pair, standards, strict=True)]
    rows = EVERY[EVERY % 7 != 3]
    parts = [(first, standards[0], EVERY), (second[rows.tolist()], standards[1], rows)]
    found, whole = average(parts, 800), average([parts[0], (second, standards[1], EVERY)], 800)
    assert (found.methods["duo"][rows] == whole.methods["duo"][rows]).all()
    assert (found.methods["duo"][EVERY % 7 == 3] == alone[0].methods["duo"][EVERY % 7 == 3]).all()


def test_a_constant_class_becomes_zero_and_leaves_the_others(
    pair: tuple[FinalScores, FinalScores],
) -> None:
    first, second = pair
    values = second.every
    values[:, 65] = 0.3  # a class of duo
    flat = second.split(values)
    found = average([(first, standard_of(first), EVERY), (flat, standard_of(flat), EVERY)], 800)
    whole = average([(first, standard_of(first), EVERY)], 800)
    np.testing.assert_allclose(
        found.methods["duo"][:, 5], whole.methods["duo"][:, 5] / 2, rtol=1e-6
    )
    assert found.methods["duo"][:, 6].std() > 0.5
    assert standard_of(flat).scale("duo", first.methods, 20)[5] == 0


def test_few_images_enter_as_they_are(pair: tuple[FinalScores, FinalScores]) -> None:
    few = [one[:3] for one in pair]
    standards = [Standard.of(Moments.of(one.every)) for one in few]
    parts = zip(few, standards, strict=True)
    found = average(((one, own, np.arange(3)) for one, own in parts), 3)
    np.testing.assert_allclose(
        found.methods["duo"], (few[0].methods["duo"] + few[1].methods["duo"]) / 2, rtol=1e-6
    )
