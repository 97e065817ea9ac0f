"""Decisions on the golden set: every number, in one piece and through shards."""

from functools import cache, reduce
from operator import add

import numpy as np
import pytest

from sparc_dist.core.answers import Answers
from sparc_dist.core.average_precision import Positives, Reached
from sparc_dist.core.decision_metrics import Agreement, oracle
from sparc_dist.core.decisions import Decision, Knowledge, decide, top
from tests.support.cases import golden, golden_answer
from tests.support.final_scores import close, scored, states

SECTIONS = [
    ("sparc", "label_free"),
    ("sparc", "classes_per_image"),
    ("sparc", "one_prevalence_given"),
    ("sparc", "prevalences_given"),
    ("sparc", "labelled_50"),
    ("duo", "label_free"),
    ("duo", "images_0_to_49_labelled"),
]


@cache
def first_labels(method: str, pieces: int) -> Answers:
    """The labels of the first 50 images as answers, in so many shards."""
    labels = golden()[2][:50]
    total, final = (part[:50] for part in scored(method))
    parts = (np.array_split(part, pieces) for part in (total, final, labels))
    return reduce(add, (Answers.of(*shard) for shard in zip(*parts, strict=True)))


@cache
def decided(method: str, section: str, pieces: int = 1) -> Decision:
    """The rule for a section of the golden answer."""
    given = golden_answer("decisions")[method][section].get("given", [])
    knowledge = {
        "classes_per_image": Knowledge(per_image=3.0),
        "one_prevalence_given": Knowledge({15: 0.4}),
        "prevalences_given": Knowledge(dict(enumerate(given))),
    }.get(section)
    answers = first_labels(method, pieces) if "labelled" in section else None
    return decide(*states(*scored(method), pieces), 20, knowledge, answers)


@pytest.mark.parametrize(("method", "section"), SECTIONS)
def test_rules_equal_the_golden_ones(method: str, section: str) -> None:
    expected = golden_answer("decisions")[method][section]
    rule = decided(method, section)
    probability, _ = rule.judge(*scored(method))
    five = expected.get(
        "probabilities_first_5_images", expected.get("probability_of_first_5_images")
    )
    close(rule.slope, expected["slope"], 1e-5)
    close(rule.prevalence, expected["prevalence"], 1e-4)
    close(rule.intercept, expected["intercept"], 1e-3)
    close(rule.threshold, expected.get("threshold_standardised", expected.get("threshold")), 1e-9)
    close(probability[:5], five, 5e-4)
    assert list(rule.status) == expected["status"]
    if method == "sparc":
        close(rule.threshold_score, expected["threshold_score"], 1e-5)
        close(rule.threshold_probability, expected["threshold_probability"], 5e-4)


@pytest.mark.parametrize(("method", "section"), SECTIONS)
def test_decisions_equal_the_golden_ones(method: str, section: str) -> None:
    expected, labels = golden_answer("decisions")[method][section], golden()[2]
    probability, present = decided(method, section).judge(*scored(method))
    metrics = Agreement.of(probability, present, labels).metrics()
    percent = {name.lower(): value for name, value in expected.get("percent", expected).items()}
    for name in ("micro_f1", "macro_f1", "sample_f1", "precision", "recall"):
        if name in percent:
            assert metrics[name] == pytest.approx(percent[name], abs=0.1)
    assert present.sum() == expected["decisions"]
    if method == "sparc":
        names = np.array(golden_answer("decisions")["classes"])
        assert [names[row].tolist() for row in present[:5]] == expected["decided_first_5_images"]
        assert present.sum(axis=0).tolist() == expected["decisions_per_class"]
        assert metrics["ece"] == pytest.approx(expected["ECE"], abs=5e-4)
        close(((probability - labels) ** 2).mean(), expected["Brier"], 5e-4)
        loss = -np.log(np.where(labels, probability, 1 - probability)).mean()
        close(loss, expected["log_loss"], 5e-4)


@pytest.mark.parametrize("method", ["sparc", "duo"])
def test_means_sds_and_the_oracle_equal_the_golden_ones(method: str) -> None:
    expected, labels = golden_answer("decisions")[method], golden()[2]
    rule, final = decided(method, "label_free"), scored(method)[1]
    close(rule.mean, expected["mean"], 1e-6)
    close(rule.sd, expected["sd"], 1e-6)
    positives = Positives.of(final, labels)
    found = oracle(positives, Reached.of(final, positives))
    for name, value in expected["oracle"].items():
        assert found[f"oracle_{name}"] == pytest.approx(value, abs=0.1)


def test_the_top_two_equal_the_golden_ones() -> None:
    expected, final = golden_answer("decisions")["sparc"]["top_2"]["percent"], scored("sparc")[1]
    present = top(final, 2)
    assert (present.sum(axis=1) == 2).all()
    metrics = Agreement.of(np.full(final.shape, np.nan), present, golden()[2]).metrics()
    for name, value in expected.items():
        assert metrics[name.lower()] == pytest.approx(value, abs=0.1)
    assert metrics["ece"] is None


def test_every_golden_section_is_tested() -> None:
    others = {"sparc": {"mean", "sd", "oracle", "top_2"}, "duo": {"mean", "sd", "oracle"}}
    for method, rest in others.items():
        tested = {section for name, section in SECTIONS if name == method}
        assert set(golden_answer("decisions")[method]) == tested | rest


@pytest.mark.parametrize("pieces", [2, 3, 7])
@pytest.mark.parametrize(("method", "section"), SECTIONS)
def test_shards_change_nothing(method: str, section: str, pieces: int) -> None:
    whole, merged = decided(method, section), decided(method, section, pieces)
    np.testing.assert_array_equal(merged.threshold, whole.threshold)
    assert merged.status == whole.status
    if "labelled" not in section:
        np.testing.assert_array_equal(merged.prevalence, whole.prevalence)
        np.testing.assert_array_equal(merged.intercept, whole.intercept)
    close(merged.prevalence, whole.prevalence, 1e-12)
    probability, present = merged.judge(*scored(method))
    close(probability, whole.judge(*scored(method))[0], 1e-12)
    np.testing.assert_array_equal(present, whole.judge(*scored(method))[1])
