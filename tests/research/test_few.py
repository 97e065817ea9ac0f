"""The curves over few classes and few images, on the golden matrices and without Ray."""

from __future__ import annotations

import json
from functools import reduce
from itertools import permutations
from operator import add

import numpy as np
import pytest

from sparc_dist.core import Method
from sparc_dist.research import few
from sparc_dist.research.few import (
    ALONE,
    Case,
    Sample,
    class_sets,
    classes_point,
    image_sets,
    images_point,
    pooled,
)
from tests.support.cases import GOLDEN, golden, golden_answer

METHOD = Method()
#: Final scores are float32, as in a run.
TOLERANCE = 1e-3


def golden_case() -> Case:
    scores, mentions, labels, _ = golden()
    return Case(scores, labels, mentions)


def chosen_three() -> list[int]:
    names = json.loads((GOLDEN / "prompts.json").read_text())["classes"]
    return [names.index(name) for name in golden_answer("duo")["three classes"]["classes"]]


def test_all_classes_and_images_are_the_whole_run() -> None:
    case = golden_case()
    points = classes_point(case, 20, METHOD), images_point(case, len(case.scores), METHOD)
    for point in points:
        assert point["SPARC"][0] == pytest.approx(58.2243, abs=TOLERANCE)
        assert point["duo"][0] == pytest.approx(61.1558, abs=TOLERANCE)
        assert point["ZSCLIP"][0] == pytest.approx(42.16, abs=0.01)
    assert points[0][ALONE] == points[0]["SPARC"]
    decisions = golden_answer("decisions")["duo"]["label_free"]
    assert points[0]["duo"][1] == pytest.approx(decisions["micro_f1"], abs=0.1)


def test_three_classes_with_the_others_as_background_equal_the_golden_ap() -> None:
    case, expected = golden_case().classes(chosen_three(), True), golden_answer("duo")
    texts = json.loads((GOLDEN / "prompts.json").read_text())["prompts"]
    assert case.scores.compound.shape[1] == len(expected["three classes"]["prompts"])
    assert case.scores.compound.shape[1] < len(texts)
    found = pooled([case], METHOD)["duo"][0]
    assert found == pytest.approx(expected["three classes"]["mAP"], abs=TOLERANCE)


def test_without_background_only_the_classes_and_their_own_prompts_remain() -> None:
    whole, chosen = golden_case(), chosen_three()
    case, prompts = whole.classes(chosen, False), whole.scores.compound.shape[1]
    assert case.scores.singleton.shape[1] == case.labels.shape[1] == len(case.mentions) == 3
    mentioned = [{i for i, m in enumerate(whole.mentions) if p in m} for p in range(prompts)]
    own = [p for p, classes in enumerate(mentioned) if classes and classes <= set(chosen)]
    np.testing.assert_array_equal(case.scores.compound, whole.scores.compound[:, own])
    for mine, index in zip(case.mentions, chosen, strict=True):
        assert [own[prompt] for prompt in mine] == [p for p in own if index in mentioned[p]]
    beside = pooled([whole.classes(chosen, True)], METHOD)["duo"][0]
    alone = pooled([case], METHOD)["SPARC"][0]
    assert beside is not None
    assert alone is not None
    assert alone < beside


def test_columns_that_are_no_class_stay_background() -> None:
    whole = golden_case()
    case = Case(whole.scores, whole.labels[:, :15], whole.mentions)
    beside, alone = (case.classes([2, 5], background) for background in (True, False))
    np.testing.assert_array_equal(beside.scores.singleton[:, -5:], whole.scores.singleton[:, -5:])
    assert beside.scores.singleton.shape[1] == 20
    assert alone.scores.singleton.shape[1] == 2


def test_an_image_alone_is_ranked_as_in_the_golden_answer() -> None:
    final = golden_case().images(slice(0, 1)).final(METHOD)
    expected = np.array(golden_answer("duo")["first image alone"]["scores"]).reshape(1, -1)
    np.testing.assert_array_equal(np.argsort(final.methods["duo"]), np.argsort(expected))
    np.testing.assert_allclose(final.methods["duo"], expected, atol=1e-5)


def test_sets_of_images_are_fitted_alone_and_pooled() -> None:
    case = golden_case()
    assert [len(image_sets(m, 800)) for m in (1, 5, 20, 100, 500, 800)] == [100, 100, 25, 5, 1, 1]
    alone = images_point(case, 1, METHOD)
    assert alone["duo"][0] is not None
    assert alone["SPARC"][0] is not None
    assert alone["duo"][0] > alone["SPARC"][0] + 20  # which gives every image the same scores
    pair = [case.images(slice(0, 5)), case.images(slice(5, 10))]
    assert pooled(pair, METHOD) == pooled(pair[::-1], METHOD)


def test_subsets_of_classes_differ_and_are_spread_over_all() -> None:
    assert class_sets(28, 28) == [list(range(28))]
    assert len({tuple(chosen) for chosen in class_sets(1, 28)}) == 5
    assert set().union(*class_sets(10, 28)) == set(range(28))
    assert all(chosen == sorted(set(chosen)) for chosen in class_sets(10, 28))
    assert class_sets(1, 1) == [[0]]


def test_one_class_of_one_image_has_a_point() -> None:
    case = golden_case().images(slice(0, 1)).classes([0], False)
    point = classes_point(case, 1, METHOD)
    assert set(point) == {"ZSCLIP", "SPARC", "duo", ALONE}


def test_the_sample_does_not_depend_on_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few, "MOST_IMAGES", 300)
    case = golden_case()
    ids = [f"image-{row}" for row in range(len(case.scores))]
    pieces = [slice(0, 350), slice(350, 350), slice(350, 351), slice(351, 800)]
    parts = [Sample.of(ids[p], case.scores[p], case.labels[p]) for p in pieces]
    whole = Sample.of(ids, case.scores, case.labels)
    assert len(whole.keys) == len(whole.scores) == 300
    for order in permutations(parts):
        found = reduce(add, order)
        assert (found.keys == whole.keys).all()
        assert (found.labels == whole.labels).all()
        for name in ("singleton", "auxiliary", "compound"):
            assert (getattr(found.scores, name) == getattr(whole.scores, name)).all()
