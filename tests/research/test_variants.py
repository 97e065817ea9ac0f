"""Variants share their passes and still have the results that each has alone."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.typing import NDArray

from sparc_dist.core import Mentions, Method, Scores
from sparc_dist.core.method import DuoOptions
from sparc_dist.research.score_view import STORED
from sparc_dist.research.variants import (
    DEBIASED,
    SPARC,
    ZSCLIP,
    Variant,
    Variants,
)
from tests.support.cases import ap, cut, golden
from tests.support.fitting import fit_duo, fit_sparc


def finals(trials: Variants, shards: list[Scores]) -> NDArray[np.float32]:
    """The final scores (M, trials, N) of images in shards."""
    moments = reduce(add, map(trials.moments, shards))
    products = reduce(add, (trials.products(shard, moments) for shard in shards))
    fitted = trials.fit(moments, products)
    return np.concatenate([fitted.final(shard) for shard in shards])


def all_trials(few: Mentions, mentions: Mentions) -> Variants:
    methods = [Method("kmax", k, merged) for k in (1, 2, 40) for merged in (False, True)]
    methods += [Method("mean", 2, merge=False), Method(merge=False), Method(norm="l2")]
    methods += [Method(image_debias="centre"), Method(image_debias="none")]
    methods += [Method(rival=0.2), Method(image_debias="sqrt"), Method("mean", rival=0.3)]
    methods += [Method(image_debias="sqrt", rival=0.2)]
    found = [Variant(method) for method in methods]
    found += [ZSCLIP, DEBIASED, SPARC, Variant(prompts="few"), Variant(Method("mean"), "few")]
    return Variants((*found, Variant(debias=False)), {STORED: mentions, "few": few})


def test_each_variant_equals_its_own_fit() -> None:
    scores, mentions, _, _ = golden()
    few = [columns[: len(columns) // 2] for columns in mentions]
    trials = all_trials(few, mentions)
    together = finals(trials, cut(scores, 5))
    for number, trial in enumerate(trials.variants):
        if trial.debias:
            fusion = fit_sparc(lambda: iter([scores]), trials.mentions[trial.prompts], trial.method)
            np.testing.assert_allclose(together[:, number], fusion.final(scores)[1], atol=2e-6)


def test_each_variant_of_duo_equals_its_own_fit() -> None:
    scores, mentions, _, _ = golden()
    options = [DuoOptions(), DuoOptions(0), DuoOptions(rival=0), DuoOptions(partners=False)]
    options += [DuoOptions(scaling="full"), DuoOptions(scaling="none", rival=0.1)]
    together = finals(Variants((SPARC,), {STORED: mentions}, tuple(options)), cut(scores, 5))
    for number, option in enumerate(options, start=1):
        alone = fit_duo(lambda: iter([scores]), mentions, option).final(scores)[1]
        np.testing.assert_allclose(together[:, number], alone, atol=2e-6)


def test_the_three_columns_of_the_report_equal_the_reference() -> None:
    scores, mentions, labels, expected = golden()
    trials = Variants((ZSCLIP, DEBIASED, SPARC), {STORED: mentions})
    together = finals(trials, cut(scores, 3))
    for number, name in enumerate(("zsclip", "debiased", "sparc")):
        found = ap(together[:, number], labels)
        assert np.mean([value or 0 for value in found]) == pytest.approx(
            expected[name]["mAP"], abs=1e-6
        )


def test_without_debias_raw_scores_are_fused() -> None:
    """Compares with a direct implementation."""
    scores, mentions, _, _ = golden()
    together = finals(Variants((Variant(debias=False),), {STORED: mentions}), cut(scores, 4))[:, 0]
    for index, columns in enumerate(mentions):
        ranked = -np.sort(-scores.compound[:, columns].astype(np.float64), axis=1)
        vectors = np.column_stack([scores.singleton[:, index], ranked])
        weights = np.linalg.eigh(np.cov(vectors, rowvar=False))[1][:, -1]
        weights *= np.sign(weights.sum()) / np.abs(weights).sum()
        expected = 0.5 * scores.singleton[:, index] + 0.5 * vectors @ weights
        np.testing.assert_allclose(together[:, index], expected, atol=1e-6)


def test_prompts_that_no_variant_uses_change_nothing() -> None:
    scores, mentions, _, _ = golden()
    rng = np.random.default_rng(0)
    more = np.concatenate([scores.compound, rng.normal(size=(len(scores), 7))], axis=1)
    wider = Scores(scores.singleton, scores.auxiliary, more)
    trials = Variants((SPARC, Variant(debias=False)), {STORED: mentions})
    np.testing.assert_array_equal(finals(trials, [wider]), finals(trials, [scores]))
