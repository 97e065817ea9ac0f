"""Algorithm 2 on small cases that can be counted by hand, and on the real labels if present."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparc_dist.prompts import Cooccurrence, all_pairs, from_cooccurrence, nearest_partners
from sparc_dist.prompts.compound import Direction

DATA = Path(__file__).parents[3] / "shared" / "data"


def generated(
    labels: list[list[int]], classes: list[str], direction: Direction = "either"
) -> list[str]:
    seen = Cooccurrence.of(labels, len(classes))
    return [p.text for p in from_cooccurrence(classes, seen, direction=direction)]


def test_pairs_and_triplets_of_a_case_counted_by_hand() -> None:
    labels = [[0, 1, 2]] * 3 + [[0, 1]] * 3 + [[3]] * 10
    assert generated(labels, ["cat", "sofa", "lamp", "car"]) == [
        "cat and sofa",
        "cat and lamp",
        "sofa and lamp",
        # P(sofa | cat, lamp) = P(cat | sofa, lamp) = 1 > P(lamp | cat, sofa) = 1/2.
        "cat, lamp, and sofa",
    ]


def test_forward_conditions_on_the_first_class_of_a_pair_only() -> None:
    labels = [[0]] * 99 + [[0, 1]]
    assert generated(labels, ["cat", "sofa"], "either") == ["cat and sofa"]
    assert generated(labels, ["cat", "sofa"], "forward") == []


def test_thresholds_are_strict_and_counted_in_integers() -> None:
    exactly = [[0]] * 19 + [[0, 1]] + [[1]] * 19
    assert generated(exactly, ["cat", "sofa"]) == []
    assert generated(exactly[1:], ["cat", "sofa"]) == ["cat and sofa"]


def test_a_triplet_at_its_threshold_is_left_out() -> None:
    pairs = [[0, 1]] * 39
    assert generated([*pairs, [0, 1, 2], *[[2]] * 99], ["a", "b", "c"]) == ["a and b"]


@given(st.integers(0, 2**32 - 1))
def test_either_does_not_depend_on_the_order_of_the_classes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = [list(map(int, np.flatnonzero(rng.random(6) < 0.3))) for _ in range(60)]
    order = rng.permutation(6)
    place = np.argsort(order)
    moved = [[int(place[i]) for i in row] for row in labels]
    names = np.array(list("abcdef"))

    def sets(rows: list[list[int]], classes: list[str]) -> set[frozenset[str]]:
        prompts = from_cooccurrence(classes, Cooccurrence.of(rows, 6))
        return {frozenset(classes[i] for i in prompt.class_ids) for prompt in prompts}

    assert sets(labels, list(names)) == sets(moved, list(names[order]))


def test_counts_of_shards_add_up() -> None:
    labels = [[0, 1], [1, 2], [0, 1, 2], []]
    whole = Cooccurrence.of(labels, 3)
    parts = Cooccurrence.of(labels[:1], 3) + Cooccurrence.of(labels[1:], 3)
    np.testing.assert_array_equal(whole.counts, parts.counts)
    assert (whole.single(1), whole.pair(0, 1), whole.pair(2, 1)) == (3, 2, 2)


@pytest.mark.skipif(not (DATA / "labels").exists(), reason="the shared data is not here")
@pytest.mark.parametrize(("direction", "pairs"), [("forward", 433), ("either", 673)])
def test_coco_train_labels(direction: Direction, pairs: int) -> None:
    lines = (DATA / "labels" / "coco2014_train.txt").read_text().splitlines()
    seen = Cooccurrence.of([list(map(int, line.split()[1:])) for line in lines], 80)
    prompts = from_cooccurrence([str(i) for i in range(80)], seen, direction=direction)
    assert sum(prompt.origin == "pair" for prompt in prompts) == pairs


@given(st.integers(2, 40), st.integers(1, 39), st.integers(0, 2**32 - 1))
def test_partners_are_the_most_similar_and_pairs_are_their_union(n: int, k: int, seed: int) -> None:
    k = min(k, n - 1)
    # Few directions of different lengths, so that many classes are equally similar.
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (n, 2)) * rng.uniform(0.1, 9, (n, 1))
    partners = nearest_partners(rows, k)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    for i in range(n):
        cosine = {j: round(float(units[i] @ units[j]), 4) for j in range(n) if j != i}
        assert partners[i].tolist() == sorted(cosine, key=lambda j: (-cosine[j], j))[:k]
    pairs = [prompt.class_ids for prompt in all_pairs([str(i) for i in range(n)], partners)]
    assert set(pairs) == {tuple(sorted((i, int(j)))) for i in range(n) for j in partners[i]}
    assert len(set(pairs)) == len(pairs) <= n * k
    assert all(sum(i in pair for pair in pairs) >= k for i in range(n))


def test_partners_of_more_classes_than_are_compared_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = np.random.default_rng(0).standard_normal((50, 8))
    whole = nearest_partners(rows, 5)
    monkeypatch.setattr("sparc_dist.prompts.compound.ROWS", 7)
    np.testing.assert_array_equal(nearest_partners(rows, 5), whole)
