"""Duo: the golden numbers, in one piece and through shards, its properties and degenerate data."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparc_dist.core.debias import Scores, debias_images
from sparc_dist.core.duo import Duo, DuoMoments, ViewProducts
from sparc_dist.core.method import DuoOptions
from sparc_dist.core.order_statistics import Mentions, mentions_of
from sparc_dist.core.views import Scaling, image_step
from sparc_dist.prompts import ClassMatcher
from tests.support.cases import GOLDEN, ap, cut, golden, golden_answer, made_up
from tests.support.fitting import fit_duo
from tests.support.strategies import bounded

SEEDS = st.integers(0, 2**32 - 1)
COLUMNS, PROMPTS = 11, 70
Mentioned = list[tuple[int, ...]]


def example(seed: int, images: int = 40) -> tuple[Scores, Mentioned]:
    """Random scores of so many columns that the image step is not skipped."""
    return made_up(seed, images, COLUMNS, PROMPTS)


def fitted(scores: Scores, mentioned: Mentioned, options: DuoOptions | None = None) -> Duo:
    mentions = mentions_of(mentioned, scores.singleton.shape[1])
    return fit_duo(lambda: [scores], mentions, options or DuoOptions())


def final(scores: Scores, mentioned: Mentioned) -> NDArray[np.float64]:
    """The scores before and after the rival is taken off, side by side (n, 2 (N + B))."""
    return np.concatenate(fitted(scores, mentioned).final(scores), axis=1)


def changed(scores: Scores, scale: float, shift: float, rows: slice) -> Scores:
    """The scores with those of some images scaled and shifted."""
    parts = [part.copy() for part in (scores.singleton, scores.auxiliary, scores.compound)]
    for part in parts:
        part[rows] = part[rows] * scale + shift
    return Scores(*parts)


def same(a: NDArray[np.floating], b: NDArray[np.floating], tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def three_classes() -> tuple[Scores, Mentions, NDArray[np.bool_]]:
    """Three classes of the golden set with its other classes as background."""
    scores, _, labels, _ = golden()
    bank, case = json.loads((GOLDEN / "prompts.json").read_text()), golden_answer("duo")
    names = case["three classes"]["classes"] + case["three classes"]["background"]
    texts = case["three classes"]["prompts"]
    columns = [bank["classes"].index(name) for name in names]
    prompts = [bank["prompts"].index(text) for text in texts]
    matcher = ClassMatcher(names)
    mentions = mentions_of([matcher.classes_in(text) for text in texts], len(names))
    singleton, auxiliary = scores.singleton[:, columns], scores.auxiliary[:, columns]
    return Scores(singleton, auxiliary, scores.compound[:, prompts]), mentions, labels[:, columns]


def check_golden(
    entry: str, case: tuple[Scores, Mentions, NDArray[np.bool_]], options: DuoOptions, pieces: int
) -> None:
    (scores, mentions, labels), expected = case, golden_answer("duo")[entry]
    shards = cut(scores, pieces)
    duo = fit_duo(lambda: shards, mentions, options)
    found = np.concatenate([duo.final(shard)[1] for shard in shards])
    classes = len(expected["AP"])
    aps = ap(found[:, :classes], labels[:, :classes])
    same(np.array(aps, dtype=float), np.array(list(expected["AP"].values())), 1e-6)
    assert np.mean(np.array(aps, dtype=float)) == pytest.approx(expected["mAP"], abs=1e-6)
    whole = fit_duo(lambda: [scores], mentions, options)
    same(found, whole.final(scores)[1])


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("entry", "options"),
    [
        ("duo", DuoOptions()),
        ("duo, kappa 0", DuoOptions(shrinkage=0)),
        ("duo, no rival", DuoOptions(rival=0)),
    ],
)
def test_every_class_equals_the_golden_ap(entry: str, options: DuoOptions, pieces: int) -> None:
    check_golden(entry, golden()[:3], options, pieces)


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_three_classes_with_background_equal_the_golden_ap(pieces: int) -> None:
    check_golden("three classes", three_classes(), DuoOptions(), pieces)


@pytest.mark.parametrize(
    ("entry", "images", "pieces"),
    [
        ("first image alone", 1, 1),
        ("first five images alone", 5, 1),
        ("first five images alone", 5, 2),
        ("first five images alone", 5, 3),
    ],
)
def test_few_images_alone_have_the_golden_scores(entry: str, images: int, pieces: int) -> None:
    scores, mentions, _, _ = golden()
    shards = cut(scores[:images], pieces)
    duo = fit_duo(lambda: shards, mentions, DuoOptions())
    found = duo.final(scores[:images])[1]
    same(found, np.array(golden_answer("duo")[entry]["scores"]).reshape(images, -1))


def test_every_golden_entry_is_tested() -> None:
    tested = {"duo", "duo, kappa 0", "duo, no rival", "three classes", "first image alone"}
    assert set(golden_answer("duo")) == tested | {"first five images alone", "what"}


@bounded(15)
@given(SEEDS, st.integers(1, 9))
def test_shards_change_nothing(seed: int, pieces: int) -> None:
    scores, mentioned = example(seed)
    shards = cut(scores, pieces)
    mentions = mentions_of(mentioned, COLUMNS)
    for order in (shards, shards[::-1]):
        duo = fit_duo(lambda order=order: order, mentions, DuoOptions())  # type: ignore[misc]
        found = np.concatenate([np.concatenate(duo.final(shard), axis=1) for shard in shards])
        same(found, final(scores, mentioned))


@bounded(15)
@given(SEEDS)
def test_permuting_images_permutes_the_answer(seed: int) -> None:
    scores, mentioned = example(seed)
    order = np.random.default_rng(seed).permutation(len(scores))
    shuffled = Scores(scores.singleton[order], scores.auxiliary[order], scores.compound[order])
    same(final(shuffled, mentioned), final(scores, mentioned)[order])


@bounded(15)
@given(SEEDS)
def test_permuting_prompts_changes_nothing(seed: int) -> None:
    scores, mentioned = example(seed)
    order = np.random.default_rng(seed).permutation(len(mentioned))
    shuffled = replace(scores, compound=scores.compound[:, order])
    same(final(shuffled, [mentioned[i] for i in order]), final(scores, mentioned))


@bounded(15)
@given(SEEDS)
def test_permuting_columns_permutes_the_answer(seed: int) -> None:
    scores, mentioned = example(seed)
    order = np.random.default_rng(seed).permutation(COLUMNS)
    place = np.argsort(order)
    shuffled = Scores(scores.singleton[:, order], scores.auxiliary[:, order], scores.compound)
    renamed = [tuple(sorted(int(place[i]) for i in ids)) for ids in mentioned]
    whole = np.concatenate([order, COLUMNS + order])
    same(final(shuffled, renamed), final(scores, mentioned)[:, whole])


@bounded(15)
@given(SEEDS, st.floats(-10, 10))
def test_shifting_an_image_changes_nothing(seed: int, shift: float) -> None:
    scores, mentioned = example(seed)
    moved = changed(scores, 1.0, shift, slice(7, 8))
    same(final(moved, mentioned), final(scores, mentioned), 1e-6)


@bounded(15)
@given(SEEDS, st.floats(0.01, 100), st.floats(-10, 10), st.sampled_from([5, COLUMNS]))
def test_scaling_and_shifting_all_images_alike_changes_nothing(
    seed: int, scale: float, shift: float, columns: int
) -> None:
    scores, mentioned = made_up(seed, classes=columns)
    moved = changed(scores, scale, shift * scale, slice(None))
    same(final(moved, mentioned), final(scores, mentioned), 1e-6)


def test_the_image_step_keeps_the_root_of_an_images_scale() -> None:
    scores, _ = example(0)
    parts = zip(image_step(changed(scores, 4.0, 1.0, slice(None))), image_step(scores), strict=True)
    for scaled, plain in parts:
        same(scaled, 2.0 * plain)


@pytest.mark.parametrize(("scaling", "kept"), [("full", 1.0), ("sqrt", 2.0), ("none", 4.0)])
def test_scaling_says_how_much_of_an_images_scale_is_kept(scaling: Scaling, kept: float) -> None:
    scores, _ = example(0)
    wider = changed(scores, 4.0, 1.0, slice(None))
    parts = zip(image_step(wider, scaling), image_step(scores, scaling), strict=True)
    for scaled, plain in parts:
        same(scaled, kept * plain)
        same(plain.mean(axis=1) * (plain.shape[1] == COLUMNS), np.zeros(len(scores)))


def test_full_scaling_is_that_of_sparc() -> None:
    scores, _ = example(0)
    same(np.concatenate(image_step(scores, "full"), axis=1), debias_images(scores))


@bounded(80)
@given(
    SEEDS,
    st.integers(1, 5),
    st.sampled_from([1, 2, 9, 10, 11]),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.5, 100.0]),
    st.sampled_from(["", "image", "columns", "everything"]),
)
def test_never_nan(
    seed: int, images: int, columns: int, prompts: int, shrinkage: float, flat: str
) -> None:
    scores, mentioned = made_up(seed, images, columns, prompts)
    if flat == "image":
        scores.auxiliary[0] = scores.singleton[0] = 0.5
    elif flat == "columns":
        scores.compound[:, : prompts // 2] = scores.singleton[:, : columns // 2] = 0.25
    elif flat == "everything":
        parts = (scores.singleton, scores.auxiliary, scores.compound)
        scores = Scores(*(np.full_like(part, 0.25) for part in parts))
    with np.errstate(all="raise", under="ignore"):
        duo = fitted(scores, mentioned, DuoOptions(shrinkage))
        for part in duo.final(scores):
            assert part.shape == (images, columns)
            assert np.isfinite(part).all()
            assert np.abs(part).max() < 100


def test_a_column_without_prompts_keeps_its_own_score() -> None:
    scores, mentioned = example(0)
    duo = fitted(scores, [tuple(i for i in ids if i != 2) for ids in mentioned])
    own = duo.views.of_images(scores)[0]
    assert (duo.weights[2, 1:] == 0).all()
    assert np.corrcoef(duo.final(scores)[0][:, 2], own[:, 2])[0, 1] == pytest.approx(1.0)


@pytest.mark.parametrize("images", [1, 40])
def test_without_prompts_scores_keep_their_size(images: int) -> None:
    scores, mentioned = made_up(0, images, COLUMNS, prompts=0)
    total = fitted(scores, mentioned).final(scores)[0]
    assert 0.5 < np.sqrt((total**2).mean()) < 1.5


def test_partners_that_leak_into_compounds_are_taken_off() -> None:
    mentioned = example(0)[1]
    signal = np.random.default_rng(1).normal(size=(400, COLUMNS))
    compound = np.stack([signal[:, list(ids)].sum(axis=1) for ids in mentioned], axis=1)
    duo = fitted(Scores(signal, signal, compound), mentioned)
    assert (duo.weights[:, :2] > 0).all()
    assert (duo.weights[:, 2] < 0).all()
    without = fitted(Scores(signal, signal, compound), mentioned, DuoOptions(partners=False))
    assert (without.weights[:, 2] == 0).all()
    assert (without.weights[:, :2] > 0).all()


def test_the_rival_is_the_highest_score_of_all_columns() -> None:
    scores, mentioned = example(0)
    total, found = fitted(scores, mentioned, DuoOptions(rival=0.3)).final(scores)
    same(found, total - 0.3 * total.max(axis=1, keepdims=True))
    same(*fitted(scores, mentioned, DuoOptions(rival=0)).final(scores))


def test_a_new_image_is_scored_as_it_would_be_among_the_old() -> None:
    scores, mentioned = example(0)
    duo = fitted(scores, mentioned)
    same(duo.final(scores[9:10])[1], duo.final(scores)[1][9:10])


def test_states_survive_as_arrays() -> None:
    scores, mentioned = example(0)
    mentions = mentions_of(mentioned, COLUMNS)
    prompts = DuoMoments.from_arrays(DuoMoments.of(scores).arrays())
    views = prompts.views(mentions, DuoOptions())
    products = ViewProducts.from_arrays(ViewProducts.of(scores, views).arrays())
    duo = Duo.of(prompts, products, views, DuoOptions())
    for restored, direct in zip(
        duo.final(scores), fitted(scores, mentioned).final(scores), strict=True
    ):
        np.testing.assert_array_equal(restored, direct)


def test_states_are_as_small_as_promised() -> None:
    scores, mentioned = example(0)
    prompts = DuoMoments.of(scores)
    views = prompts.views(mentions_of(mentioned, COLUMNS), DuoOptions())
    assert sum(part.size for part in prompts.arrays() if part.dtype == float) == 2 * (
        COLUMNS + PROMPTS
    )
    assert ViewProducts.of(scores, views).products.size == 9 * COLUMNS


def test_degenerate_data_is_noted() -> None:
    few, mentioned = made_up(0, classes=3)
    assert any("3 columns" in note for note in fitted(few, mentioned).notes)
    scores, mentioned = example(0)
    assert not fitted(scores, mentioned).notes
    flat = np.where(np.arange(len(scores))[:, None] == 3, 0.5, scores.singleton)
    scores = replace(scores, singleton=flat)
    assert "1 images score every column the same: they become 0." in fitted(scores, mentioned).notes
    constant = replace(few, compound=np.full_like(few.compound, 0.2))
    notes = fitted(constant, made_up(0, classes=3)[1]).notes
    assert "12 compound prompts score every image the same: they become 0." in notes


@pytest.mark.parametrize(
    "options", [{"shrinkage": -1}, {"rival": 1.0}, {"rival": -0.1}, {"scaling": "half"}]
)
def test_options_out_of_range_raise(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"it must be|choose one of full, sqrt, none"):
        DuoOptions(**options)
