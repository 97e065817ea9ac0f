from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

from sparc_dist.core.average_precision import Positives, Reached
from sparc_dist.core.decision_metrics import Agreement, expected_f1, oracle
from tests.support.strategies import bounded

SEEDS = st.integers(0, 2**32 - 1)


@bounded(20)
@given(SEEDS, st.integers(1, 5))
def test_metrics_equal_scikit_learns_through_any_shards(seed: int, pieces: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.random((40, 6)) < 0.4
    labels[0], labels[1] = True, False
    probability = rng.random((40, 6))
    present = probability > 0.6
    present[1] = False
    split = zip(*(np.array_split(x, pieces) for x in (probability, present, labels)), strict=True)
    states = [Agreement.of(*shard) for shard in split]
    merged = reduce(add, states)
    found = merged.metrics()
    assert found == Agreement.of(probability, present, labels).metrics()
    assert found == Agreement.from_arrays(merged.arrays()).metrics()
    for name, average in (("micro_f1", "micro"), ("macro_f1", "macro"), ("sample_f1", "samples")):
        expected = 100 * f1_score(labels, present, average=average, zero_division=1.0)
        assert found[name] == pytest.approx(expected)
    assert found["precision"] == pytest.approx(
        100 * precision_score(labels.ravel(), present.ravel())
    )
    assert found["recall"] == pytest.approx(100 * recall_score(labels.ravel(), present.ravel()))


def test_the_calibration_error_is_the_mean_gap_over_equal_bins() -> None:
    rng = np.random.default_rng(0)
    probability, labels = rng.random((200, 3)), rng.random((200, 3)) < 0.3
    bins = np.minimum((probability * 15).astype(int), 14)
    gaps = [
        (bins == b).sum() * abs(probability[bins == b].mean() - labels[bins == b].mean())
        for b in range(15)
    ]
    found = Agreement.of(probability, labels, labels).metrics()["ece"]
    assert found == pytest.approx(sum(gaps) / 600, abs=1e-9)
    whole = np.concatenate([probability, np.full((200, 1), np.nan)], axis=1)
    more = np.concatenate([labels, labels[:, :1]], axis=1)
    assert Agreement.of(whole, more, more).metrics()["ece"] == found
    assert Agreement.of(np.ones((1, 1)), np.ones((1, 1), bool), np.ones((1, 1), bool)).metrics()[
        "ece"
    ] == pytest.approx(0.0)


def test_what_is_undefined_is_none() -> None:
    none = np.zeros((2, 3), dtype=bool)
    found = Agreement.of(np.zeros((2, 3)), none, none).metrics()
    assert found == {
        "micro_f1": None,
        "macro_f1": None,
        "sample_f1": 100.0,
        "precision": None,
        "recall": None,
        "ece": 0.0,
    }
    empty = Agreement.of(np.zeros((0, 3)), none[:0], none[:0]).metrics()
    assert set(empty.values()) == {None}


@bounded(20)
@given(SEEDS, st.booleans())
def test_the_oracle_tries_every_threshold(seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, (30, 4)) * 1.0 if ties else rng.normal(size=(30, 4))
    labels = rng.random((30, 4)) < 0.3
    labels[:, 3], labels[0, :3] = False, True
    present = np.zeros_like(labels)
    best = []
    for column in range(3):
        score, label = scores[:, column], labels[:, column]
        tried = [
            (2 * (label & (score >= t)).sum() / (label.sum() + (score >= t).sum()), t)
            for t in np.unique(score)
        ]
        # Fractions that are equal may differ in their last bit.
        best.append(max(f1 for f1, _ in tried))
        present[:, column] = score >= max(t for f1, t in tried if f1 > best[-1] - 1e-12)
    positives = Positives.of(scores, labels)
    found = oracle(positives, Reached.of(scores, positives))
    assert found["oracle_macro_f1"] == pytest.approx(100 * np.mean(best))
    assert found["oracle_micro_f1"] == pytest.approx(
        100 * f1_score(labels, present, average="micro")
    )


@bounded(20)
@given(SEEDS)
def test_the_expected_f1_is_the_f1_of_labels_drawn_from_the_probabilities(seed: int) -> None:
    rng = np.random.default_rng(seed)
    probability = rng.random(2000)
    present = probability > 0.4
    drawn = [f1_score(rng.random(2000) < probability, present) for _ in range(50)]
    assert expected_f1(probability, present) == pytest.approx(100 * np.mean(drawn), abs=0.6)
    labels = rng.random(2000) < probability
    found = expected_f1(labels.astype(float), present)
    assert found == pytest.approx(100 * f1_score(labels, present))


def test_nothing_is_expected_of_a_class_without_probabilities() -> None:
    none = np.zeros(3, dtype=bool)
    assert expected_f1(np.full(3, np.nan), none) is None
    assert expected_f1(np.zeros(3), none) is None
