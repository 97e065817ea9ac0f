"""Properties of the whole method, and its results on degenerate data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparc_dist.core import Method, Scores, Sparc, mentions_of
from sparc_dist.core.debias import debias_images
from sparc_dist.research.paper import reference_sparc
from tests.support.cases import cut, made_up
from tests.support.fitting import debiased_and_final, fit_sparc

SEEDS = st.integers(0, 2**32 - 1)
Mentioned = list[tuple[int, ...]]


def fitted(scores: Scores, mentioned: Mentioned, method: Method | None = None) -> Sparc:
    mentions = mentions_of(mentioned, scores.singleton.shape[1])
    return fit_sparc(lambda: [scores], mentions, method or Method())


def final(scores: Scores, mentioned: Mentioned) -> NDArray[np.float64]:
    """Debiased singleton and SPARC's scores side by side (n, 2 N)."""
    return np.concatenate(debiased_and_final(fitted(scores, mentioned), scores), axis=1)


def same(a: NDArray[np.floating], b: NDArray[np.floating]) -> None:
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


@given(SEEDS)
def test_it_equals_the_reference(seed: int) -> None:
    scores, mentioned = made_up(seed)
    same(final(scores, mentioned)[:, 5:], reference_sparc(scores, mentions_of(mentioned, 5)))


@given(SEEDS, st.integers(1, 9))
def test_shards_change_nothing(seed: int, pieces: int) -> None:
    scores, mentioned = made_up(seed)
    shards = cut(scores, pieces)
    mentions = mentions_of(mentioned, 5)
    fusion = fit_sparc(lambda: shards, mentions, Method())
    backwards = fit_sparc(lambda: shards[::-1], mentions, Method())
    for fitted_on_shards in (fusion, backwards):
        sparc = np.concatenate([fitted_on_shards.final(shard)[1] for shard in shards])
        same(sparc, final(scores, mentioned)[:, 5:])


@given(SEEDS)
def test_permuting_images_permutes_the_answer(seed: int) -> None:
    scores, mentioned = made_up(seed)
    order = np.random.default_rng(seed).permutation(len(scores))
    shuffled = Scores(scores.singleton[order], scores.auxiliary[order], scores.compound[order])
    same(final(shuffled, mentioned), final(scores, mentioned)[order])


@given(SEEDS)
def test_permuting_prompts_changes_nothing(seed: int) -> None:
    scores, mentioned = made_up(seed)
    order = np.random.default_rng(seed).permutation(len(mentioned))
    shuffled = Scores(scores.singleton, scores.auxiliary, scores.compound[:, order])
    same(final(shuffled, [mentioned[i] for i in order]), final(scores, mentioned))


@given(SEEDS)
def test_permuting_classes_permutes_the_answer(seed: int) -> None:
    scores, mentioned = made_up(seed)
    order = np.random.default_rng(seed).permutation(5)
    place = np.argsort(order)
    shuffled = Scores(scores.singleton[:, order], scores.auxiliary[:, order], scores.compound)
    renamed = [tuple(sorted(int(place[i]) for i in ids)) for ids in mentioned]
    whole = np.concatenate([order, 5 + order])
    same(final(shuffled, renamed), final(scores, mentioned)[:, whole])


@given(SEEDS, st.floats(0.01, 100), st.floats(-10, 10))
def test_scaling_or_shifting_an_image_changes_nothing(
    seed: int, scale: float, shift: float
) -> None:
    scores, mentioned = made_up(seed)
    changed = [part.copy() for part in (scores.singleton, scores.auxiliary, scores.compound)]
    for part in changed:
        part[7] = part[7] * scale + shift
    np.testing.assert_allclose(
        final(Scores(*changed), mentioned), final(scores, mentioned), rtol=0, atol=1e-6
    )


@settings(max_examples=50)
@given(
    SEEDS,
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 5),
    st.sampled_from(["full", "centre", "none"]),
    st.sampled_from(["max-variance", "kmax", "mean", "singleton"]),
    st.booleans(),
)
def test_never_nan(
    seed: int, images: int, classes: int, prompts: int, debias: str, strategy: str, flat: bool
) -> None:
    scores, mentioned = made_up(seed, images, classes, prompts)
    if flat:
        scores.compound[:, : prompts // 2] = 0.25
        scores.auxiliary[0] = scores.singleton[0] = 0.5
    method = Method(strategy=strategy, image_debias=debias, k=2)  # type: ignore[arg-type]
    for part in fitted(scores, mentioned, method).final(scores):
        assert part.shape == (images, classes)
        assert np.isfinite(part).all()


def test_a_constant_column_becomes_zero_and_is_noted() -> None:
    scores, mentioned = made_up(0)
    # Constant after the image-level step: the mean of the auxiliary scores plus one SD.
    mean = scores.auxiliary.mean(1)
    scores.compound[:, 3] = mean + scores.auxiliary.std(1, ddof=1)
    fusion = fitted(scores, mentioned)
    assert (fusion.debias(scores)[:, 5 + 3] == 0).all()
    assert any("1 compound prompts score every image the same" in note for note in fusion.notes)


def test_one_class_gives_zeros_and_is_noted() -> None:
    scores, mentioned = made_up(0, classes=1)
    fusion = fitted(scores, mentioned)
    for part in fusion.final(scores):
        assert (part == 0).all()
    assert any("only one class" in note for note in fusion.notes)


def test_one_image_gives_zeros_and_uniform_weights() -> None:
    scores, mentioned = made_up(0, images=1)
    fusion = fitted(scores, mentioned)
    for part in fusion.final(scores):
        assert (part == 0).all()
    for weights in fusion.weights:
        np.testing.assert_allclose(weights, 1 / len(weights))
    assert any("only one image" in note for note in fusion.notes)


def test_few_images_are_noted() -> None:
    scores, mentioned = made_up(0, images=4)
    notes = fitted(scores, mentioned).notes
    assert any("4 images for vectors of up to 7 ranks" in note for note in notes)


def test_identical_images_give_zeros() -> None:
    scores, mentioned = made_up(0, images=1)
    many = Scores(
        *(np.repeat(p, 9, 0) for p in (scores.singleton, scores.auxiliary, scores.compound))
    )
    for part in fitted(many, mentioned).final(many):
        assert (part == 0).all()


def test_a_class_without_prompts_keeps_its_singleton() -> None:
    scores, mentioned = made_up(0)
    mentioned = [tuple(i for i in ids if i != 2) for ids in mentioned]
    debiased, sparc = debiased_and_final(fitted(scores, mentioned), scores)
    same(sparc[:, 2], debiased[:, 2])
    assert np.abs(sparc[:, 0] - debiased[:, 0]).max() > 0.01


def test_image_debias_variants_differ_only_in_the_singletons_step() -> None:
    scores, mentioned = made_up(0)

    def standardised(values: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.asarray((values - values.mean(0)) / values.std(0, ddof=1))

    centred = scores.singleton - scores.singleton.mean(1, keepdims=True)
    for mode, expected in (("centre", centred), ("none", scores.singleton)):
        method = Method(image_debias=mode)  # type: ignore[arg-type]
        debiased = fitted(scores, mentioned, method).debias(scores)
        same(debiased[:, :5], standardised(expected))
        same(debiased[:, 5:], fitted(scores, mentioned).debias(scores)[:, 5:])


def test_with_sqrt_singletons_and_compounds_keep_the_root_of_an_images_sd() -> None:
    scores, mentioned = made_up(0)
    full, root = (debias_images(scores, mode) for mode in ("full", "sqrt"))
    for kind, columns in ((scores.singleton, slice(0, 5)), (scores.auxiliary, slice(5, None))):
        sd = kind.astype(np.float64).std(axis=1, ddof=1, keepdims=True)
        same(root[:, columns], full[:, columns] * np.sqrt(sd))
    fusion = fitted(scores, mentioned, Method(image_debias="sqrt"))
    same(fusion.debias(scores), (root - root.mean(axis=0)) / root.std(axis=0, ddof=1))


def test_a_rival_is_a_share_of_the_images_highest_score() -> None:
    scores, mentioned = made_up(0)
    total = fitted(scores, mentioned).final(scores)[1]
    found = fitted(scores, mentioned, Method(rival=0.3)).final(scores)[1]
    same(found, total - 0.3 * total.max(axis=1, keepdims=True))
    with pytest.raises(ValueError, match="rival is 1"):
        Method(rival=1)


def test_a_new_image_is_scored_as_it_would_be_among_the_old() -> None:
    scores, mentioned = made_up(0)
    fusion = fitted(scores, mentioned)
    same(fusion.final(scores[9:10])[1], fusion.final(scores)[1][9:10])


@pytest.mark.parametrize("merge", [True, False])
def test_merge_is_half_and_half(merge: bool) -> None:
    scores, mentioned = made_up(0)
    first = Method(strategy="kmax", k=1, merge=merge)
    fusion = fitted(scores, mentioned, first)
    debiased = fusion.debias(scores)
    prompts = fusion.mentions[1]
    highest = debiased[:, 5 + prompts].max(axis=1)
    expected = 0.5 * debiased[:, 1] + 0.5 * highest if merge else highest
    same(fusion.final(scores)[1][:, 1], expected)
