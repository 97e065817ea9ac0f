"""Contributions: those of all prompts and the rest add up to the final score."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparc_dist.core import Floats, Fusions, Method, Scores, fit_fusions, mentions_of
from tests.support.cases import golden
from tests.support.golden_unit import golden_fusions


def rest_of_sparc(fusion: Any, scores: Scores, column: int) -> Floats:
    """The singleton, as often as it is part of the score."""
    singleton = fusion.debias(scores)[:, column]
    first = fusion.weights[column][0]
    return np.asarray(singleton * ((0.5 + 0.5 * first) if fusion.method.merge else first))


def rest_of_duo(fusion: Any, scores: Scores, column: int) -> Floats:
    """Own score and partners, minus the rival."""
    own, _, partners = fusion.views.of_images(scores)
    total, final = fusion.final(scores)
    weights = fusion.weights[column]
    rival = (total - final)[:, column]
    own, partners = own[:, column], partners[:, column]
    return np.asarray(weights[0] * own + weights[2] * partners - rival)


def check(fusions: Fusions, scores: Scores) -> None:
    mentions = fusions.given.mentions
    columns = range(len(mentions))
    cases = ((fusions["sparc"], rest_of_sparc), (fusions["duo"], rest_of_duo))
    for fusion, rest in cases:
        final = fusion.final(scores)[1]
        for column, added in zip(columns, fusion.contributions(scores, columns), strict=True):
            assert added.shape == (len(scores), len(mentions[column]))
            total = added.sum(axis=1) + rest(fusion, scores, column)
            np.testing.assert_allclose(total, final[:, column], rtol=1e-9, atol=1e-9)


def test_they_add_up_on_the_golden_set() -> None:
    check(golden_fusions()[0], golden()[0][:100])


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 9), st.booleans())
def test_they_add_up_on_anything(seed: int, classes: int, prompts: int, merge: bool) -> None:
    random = np.random.default_rng(seed)
    # Coarse, so that some are equal: ranks of equal scores must not matter.
    scores = Scores(*(random.integers(0, 6, (9, n)) / 10 for n in (classes, classes, prompts)))
    chosen = [random.choice(classes, min(2, classes), False).tolist() for _ in range(prompts)]
    mentions = mentions_of(chosen, classes)
    check(fit_fusions(lambda: iter([scores]), mentions, classes, Method(merge=merge)), scores)


def test_a_prompt_has_the_weight_of_its_rank() -> None:
    scores = Scores(np.eye(2), np.eye(2), np.array([[0.9, 0.1], [0.2, 0.8]]))
    method = Method(strategy="kmax", k=1, merge=False)
    fusions = fit_fusions(lambda: iter([scores]), mentions_of([[0], [0]], 2), 2, method)
    (added, none) = fusions["sparc"].contributions(scores, [0, 1])
    assert np.count_nonzero(added, axis=1).tolist() == [1, 1]
    assert added.argmax(axis=1).tolist() == [0, 1]
    assert none.shape == (2, 0)
