"""fit and transform on plain arrays: the golden numbers, and what is refused."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from sparc_dist import fit
from sparc_dist.core import Method, Scores
from sparc_dist.core.arrays import SLICE
from sparc_dist.prompts import ClassMatcher
from tests.support.cases import GOLDEN, ap, golden, golden_answer, made_up
from tests.support.golden_unit import golden_fusions


def arrays(scores: Scores) -> tuple[Any, Any, Any]:
    return scores.singleton, scores.auxiliary, scores.compound


def mentioned(classes: list[str], texts: list[str]) -> list[tuple[int, ...]]:
    matcher = ClassMatcher(classes)
    return [matcher.classes_in(text) for text in texts]


@pytest.mark.parametrize("method", ["zsclip", "debiased", "sparc", "duo"])
def test_the_final_scores_are_the_golden_ones(method: str) -> None:
    scores, _, labels, expected = golden()
    bank = json.loads((GOLDEN / "prompts.json").read_text())
    fusion = fit(arrays(scores), mentioned(bank["classes"], bank["prompts"]))
    found = fusion.transform(scores, method)
    answer = (expected | golden_answer("duo"))[method]
    np.testing.assert_allclose(
        np.array(ap(found, labels), float), list(answer["AP"].values()), rtol=0, atol=1e-6
    )
    assert found.tobytes() == golden_fusions()[1].methods[method].tobytes()


def test_background_columns_are_scored_and_left_out() -> None:
    scores, _, labels, _ = golden()
    bank = json.loads((GOLDEN / "prompts.json").read_text())
    case = golden_answer("duo")["three classes"]
    names = case["classes"] + case["background"]
    columns = [bank["classes"].index(name) for name in names]
    prompts = [bank["prompts"].index(text) for text in case["prompts"]]
    parts = {
        "singleton": scores.singleton[:, columns],
        "auxiliary": scores.auxiliary[:, columns],
        "compound": scores.compound[:, prompts],
    }
    fusion = fit(parts, mentioned(names, case["prompts"]), background=len(case["background"]))
    found = fusion.transform(parts)
    assert found.shape == (len(scores), 3)
    aps = np.array(ap(found, labels[:, columns[:3]]), float)
    np.testing.assert_allclose(aps, list(case["AP"].values()), rtol=0, atol=1e-6)


def test_many_images_are_fitted_in_slices_and_new_ones_are_scored() -> None:
    scores, prompts = made_up(0, images=SLICE + 7)
    fusion = fit(scores, prompts, method=Method(strategy="mean"))
    assert fusion.images == SLICE + 7
    whole = fusion.transform(scores)
    assert whole.shape == (SLICE + 7, 5)
    np.testing.assert_allclose(fusion.transform(scores[-3:]), whole[-3:], rtol=1e-5)


def test_nested_lists_will_do() -> None:
    scores = ([[1, 2], [3, 5]], [[1, 2], [2, 1]], [[1], [0]])
    assert fit(scores, [[0, 1]]).transform(scores, "sparc").shape == (2, 2)


GOOD = (np.ones((4, 3)), np.ones((4, 3)), np.ones((4, 3)))
PAIRS = list(combinations(range(3), 2))


@pytest.mark.parametrize(
    ("scores", "prompts", "message"),
    [
        (GOOD[:2], PAIRS, "scores must be three matrices"),
        ({"singleton": GOOD[0]}, PAIRS, "scores have no auxiliary and no compound"),
        ((*GOOD[:2], [1, 2, 3]), PAIRS, "`compound` must be a matrix of numbers"),
        ((*GOOD[:2], [[1], [2, 3]]), PAIRS, "`compound` must be a matrix of numbers"),
        ((*GOOD[:2], np.ones((5, 3))), PAIRS, r"are singleton \(4, 3\), .* compound \(5, 3\)"),
        ((GOOD[0], GOOD[1][:, :2], GOOD[2]), PAIRS, r"auxiliary \(4, 2\)"),
        (tuple(part[:0] for part in GOOD), PAIRS, r"singleton has the shape \(0, 3\)"),
        ((GOOD[0] * np.nan, *GOOD[1:]), PAIRS, "`singleton` is nan at row 0, column 0"),
        ((*GOOD[:2], GOOD[2] * 1e39), PAIRS, r"`compound` is 1e\+39 at row 0"),
        (GOOD, PAIRS[:2], "there are 2 prompts for 3 columns of `compound`"),
        (GOOD, [*PAIRS[:2], (1, 3)], r"prompts\[2\] is \(1, 3\); indices must be below 3"),
        (GOOD, [*PAIRS[:2], (-1, 0)], r"prompts\[2\] is \(-1, 0\)"),
        (GOOD, [*PAIRS[:2], ()], r"prompts\[2\] is \(\); list the indices"),
        (GOOD, ["cat and dog", *PAIRS[:2]], r"prompts\[0\] is 'cat and dog'; list the indices"),
    ],
)
def test_what_does_not_fit_together_is_a_value_error(
    scores: Any, prompts: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit(scores, prompts)


def test_transform_wants_the_columns_of_the_fit() -> None:
    scores, prompts = made_up(1)
    fusion = fit(scores, prompts)
    other = Scores(scores.singleton, scores.auxiliary, scores.compound[:, :-1])
    with pytest.raises(ValueError, match="have 5 and 11 columns; the fit had 5 and 12"):
        fusion.transform(other)
    with pytest.raises(ValueError, match="method is 'dou'; choose one of zsclip, "):
        fusion.transform(scores, "dou")


@pytest.mark.parametrize("background", [-1, 5])
def test_some_columns_must_be_classes(background: int) -> None:
    with pytest.raises(ValueError, match=f"background is {background}; it must be from 0 to 4"):
        fit(*made_up(2), background=background)
