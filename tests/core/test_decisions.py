"""Decisions: degenerate data, and what is known about a collection."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparc_dist.core.answers import UNKNOWN, Answers
from sparc_dist.core.decisions import Decision, Knowledge, can_estimate, decide
from sparc_dist.core.final_scores import ScoreCounts, ScoreMoments
from tests.support.final_scores import close, random_scores, scored, states
from tests.support.strategies import bounded

SEEDS = st.integers(0, 2**32 - 1)


@bounded(60)
@given(
    SEEDS,
    st.sampled_from([1, 2, 5, 50, 60, 120]),
    st.sampled_from([1, 2, 9, 10, 30]),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)
def test_every_collection_gets_an_answer(
    seed: int, images: int, columns: int, constant: int, few: bool, asked: bool
) -> None:
    total, final = random_scores(seed, images, columns, min(constant, columns))
    classes = 1 if few else columns
    state, counts = states(total, final)
    replies = np.random.default_rng(seed).integers(-1, 2, (images, classes))
    answers = Answers.of(total, final, replies) if asked else None
    known = Knowledge({0: 0.2}, 0.5, 1.5) if few else None
    rule = decide(state, counts if can_estimate(state) else None, classes, known, answers)
    probability, present = rule.judge(total, final)
    blind = np.array([status == "constant" for status in rule.status])
    assert probability.shape == present.shape == (images, classes)
    assert np.isfinite(probability[:, ~blind]).all()
    assert np.isnan(probability[:, blind]).all()
    assert not present[:, blind].any()
    assert (probability[present] > 0.1 - 1e-9).all()


@bounded(5)
@given(SEEDS)
def test_permuting_classes_and_images_permutes_the_answer(seed: int) -> None:
    total, final = random_scores(seed, 80, 12)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(80), rng.permutation(12)
    rule = decide(*states(total, final), 12)
    shuffled = decide(*states(total[rows][:, columns], final[rows][:, columns]), 12)
    assert shuffled.status == tuple(rule.status[i] for i in columns)
    close(shuffled.prevalence, rule.prevalence[columns], 1e-9)
    close(shuffled.threshold, rule.threshold[columns], 1e-9)


def test_a_prevalence_that_was_given_stays_when_others_are_answered() -> None:
    total, final = random_scores(3, 200, 12)
    table = np.full((200, 12), UNKNOWN)
    table[:50, 5] = 1
    answers = Answers.of(total, final, table)
    rule = decide(*states(total, final), 12, Knowledge({2: 0.1}), answers)
    assert rule.status[2] == "given"
    assert rule.status[5] == "labelled"
    assert rule.prevalence[2] == pytest.approx(0.1)
    probability, _ = rule.judge(total, final)
    assert probability[:, 2].mean() == pytest.approx(0.1, abs=0.01)


def test_states_survive_as_arrays() -> None:
    state, counts = states(*random_scores(0, 80, 12, constant=1))
    answers = Answers.of(
        *random_scores(0, 80, 12), np.random.default_rng(0).integers(-1, 2, (80, 10))
    )
    rule = decide(state, counts, 10, answers=answers)
    restored = decide(
        ScoreMoments.from_arrays(state.arrays()),
        ScoreCounts.from_arrays(counts.arrays()),
        10,
        answers=answers,
    )
    for field in fields(Decision):
        np.testing.assert_array_equal(getattr(restored, field.name), getattr(rule, field.name))


def test_a_constant_class_is_never_present_and_does_not_disturb_the_others() -> None:
    total, final = random_scores(0, 100, 13, constant=1)
    with_it = decide(*states(total, final), 13)
    without = decide(*states(total[:, 1:], final[:, 1:]), 12)
    assert with_it.status[0] == "constant"
    assert np.isnan(with_it.prevalence[0])
    close(with_it.prevalence[1:], without.prevalence, 1e-9)
    close(with_it.threshold[1:], without.threshold, 1e-9)
    given = decide(*states(total, final), 13, Knowledge({0: 0.4}))
    assert given.status[0] == "constant"


def test_if_all_classes_are_constant_nothing_is_present() -> None:
    total = np.full((100, 12), 0.3)
    rule = decide(*states(total, total), 12)
    assert set(rule.status) == {"constant"}
    assert not rule.judge(total, total)[1].any()


@pytest.mark.parametrize(("columns", "threshold"), [(28, 1.55), (80, 1.90)])
def test_few_images_are_judged_by_the_prior(columns: int, threshold: float) -> None:
    total, final = random_scores(0, 5, columns)
    rule = decide(states(total, final)[0], None, 3)
    assert rule.status == ("prior",) * 3
    close(rule.threshold, [threshold] * 3, 1e-9)
    close(rule.prevalence, [2 / max(columns, 40)] * 3, 1e-12)
    np.testing.assert_array_equal(rule.judge(total, final)[1], total[:, :3] >= rule.threshold)


def test_the_prior_needs_no_counts_and_an_estimate_does() -> None:
    assert not can_estimate(states(*random_scores(0, 49, 10))[0])
    assert can_estimate(states(*random_scores(0, 50, 10))[0])
    assert not can_estimate(states(*random_scores(0, 59, 30))[0])
    assert not can_estimate(states(*random_scores(0, 500, 9))[0])
    with pytest.raises(ValueError, match="counts are needed"):
        decide(states(*random_scores(0, 50, 10))[0], None, 10)


def test_copies_of_one_image_are_judged_like_one() -> None:
    total, final = random_scores(0, 1, 12)
    alone = decide(states(total, final)[0], None, 12)
    copies = decide(states(np.repeat(total, 5, 0), np.repeat(final, 5, 0))[0], None, 12)
    np.testing.assert_array_equal(copies.judge(total, final)[0], alone.judge(total, final)[0])
    assert copies.status == alone.status


def test_the_prior_honours_what_is_known() -> None:
    total, final = random_scores(0, 20, 12)
    state, labels = states(total, final)[0], np.full((20, 12), UNKNOWN)
    labels[:, 3] = 1
    rule = decide(
        state, None, 12, Knowledge({1: 0.4}, per_image=4.0), Answers.of(total, final, labels)
    )
    assert rule.status[:4] == ("prior", "given", "prior", "labelled")
    plain = decide(state, None, 12, Knowledge({1: 0.4}, per_image=4.0))
    close(plain.prevalence[:3], [0.1, 0.4, 0.1], 1e-12)
    assert rule.prevalence[3] > rule.prevalence[2] > plain.prevalence[2]


def test_a_guess_is_averaged_with_the_estimate() -> None:
    known = states(*scored("duo"))
    estimate = decide(*known, 20).prevalence[4]
    rule = decide(*known, 20, Knowledge({4: 0.3}, weight=0.5))
    assert rule.prevalence[4] == pytest.approx(np.sqrt(0.3 * estimate))
    assert rule.status[4] == "given"


def test_classes_per_image_leave_given_prevalences_alone() -> None:
    known = states(*scored("duo"))
    rule = decide(*known, 20, Knowledge({4: 0.3}, per_image=3.0))
    assert rule.prevalence[4] == pytest.approx(0.3)
    assert rule.prevalence.sum() == pytest.approx(3.0)
    assert rule.status[3] == "clear"
    less = decide(*known, 20, Knowledge({4: 0.3}, per_image=0.1))
    close(np.delete(less.prevalence, 4), np.full(19, 0.5 / 800), 1e-12)


def test_background_columns_help_and_are_not_reported() -> None:
    total, final = scored("duo")
    state, counts = states(total, final)
    three, all_of_them = decide(state, counts, 3), decide(state, counts, 20)
    np.testing.assert_array_equal(three.prevalence, all_of_them.prevalence[:3])
    probability, present = three.judge(total, final)
    assert probability.shape == present.shape == (800, 3)
    np.testing.assert_array_equal(three.judge(total[:, :3], final[:, :3])[1], present)


def test_prevalences_stay_in_range() -> None:
    given = Knowledge({0: 0.0, 1: 1.0})
    rule = decide(*states(*scored("duo")), 20, given)
    close(rule.prevalence[:2], [0.5 / 800, 0.95], 1e-12)
    prior = decide(states(*random_scores(0, 1, 12))[0], None, 12, given)
    close(prior.prevalence[:2], [1e-6, 0.95], 1e-12)


def test_one_probability_may_be_the_threshold_of_all_classes() -> None:
    rule = decide(*states(*scored("duo")), 20).at_probability(0.5)
    probability, present = rule.judge(*scored("duo"))
    np.testing.assert_array_equal(present, probability >= 0.5)
    close(rule.threshold_probability, np.full(20, 0.5), 1e-12)


def test_a_new_image_is_judged_as_it_would_be_among_the_old() -> None:
    total, final = scored("duo")
    rule = decide(*states(*scored("duo")), 20)
    alone, among = rule.judge(total[9:10], final[9:10]), rule.judge(total, final)
    np.testing.assert_array_equal(alone[0], among[0][9:10])


@pytest.mark.parametrize("known", [{"prevalence": {0: 1.5}}, {"weight": 2.0}, {"per_image": 0.0}])
def test_impossible_knowledge_raises(known: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Knowledge(**known)


def test_partial_answers_move_their_class_most() -> None:
    total, final = scored("duo")
    asked = np.full((800, 20), UNKNOWN)
    asked[:40, 3] = 1
    known = states(total, final)
    plain, rule = decide(*known, 20), decide(*known, 20, answers=Answers.of(total, final, asked))
    assert rule.status[3] == "labelled"
    assert rule.status[:3] == plain.status[:3]
    moved = rule.prevalence - plain.prevalence
    assert moved.argmax() == 3


def test_no_answers_change_nothing() -> None:
    total, final = scored("duo")
    known = states(total, final)
    nothing = Answers.of(total, final, np.full((800, 20), UNKNOWN))
    assert not len(nothing)
    plain, rule = decide(*known, 20), decide(*known, 20, answers=nothing)
    assert rule.slope == plain.slope
    assert rule.status == plain.status
    np.testing.assert_array_equal(rule.threshold, plain.threshold)
