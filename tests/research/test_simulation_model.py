"""Simulated labels have the given probabilities, and scores follow the noise model."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtri

from sparc_dist.core import Method, Scores, mentions_of
from sparc_dist.prompts import Cooccurrence, from_cooccurrence
from sparc_dist.research.simulation_model import (
    LABELS,
    RARE_COINCIDENCE,
    TRAINING,
    LabelModel,
    Noise,
    ScoreModel,
    both_below,
    built_in_cooccurrence,
    latent_correlations,
    stream,
)
from tests.support.cases import ap
from tests.support.fitting import debiased_and_final, fit_sparc
from tests.support.strategies import bounded

#: No noise: no SD, no flips.
SILENT = {
    field.name: 0.0
    for field in fields(Noise)
    if field.name not in ("offset", "base", "lift", "bonus")
}
PROMPTS = ((0, 1), (1, 2), (0, 1, 2), (2,))
PRESENT = np.array([[True, True, False], [False, False, False], [False, True, True]])


def scores_of(labels: NDArray[np.bool_], **changes: float) -> Scores:
    return ScoreModel(Noise(**{**SILENT, **changes}), 5, 3, PROMPTS).scores(0, labels)


@pytest.mark.parametrize("angle", [-1.5, -0.7, 0.0, 0.4, 1.5])
def test_two_normal_variables_below_zero(angle: float) -> None:
    """Sheppard's formula 1/4 + arcsin ρ / 2π, and at ρ = ±1 the limits of a joint probability."""
    zero = np.zeros(1)
    np.testing.assert_allclose(both_below(zero, zero, zero + angle), 0.25 + angle / (2 * np.pi))
    p, q = np.array([0.02, 0.3, 0.9]), np.array([0.4, 0.35, 0.7])
    ends = [both_below(ndtri(p), ndtri(q), np.full(3, end)) for end in (np.pi / 2, -np.pi / 2)]
    np.testing.assert_allclose(ends[0], np.minimum(p, q), atol=1e-4)
    np.testing.assert_allclose(ends[1], np.maximum(p + q - 1, 0), atol=1e-4)


@given(st.floats(0.005, 0.95), st.floats(0.005, 0.95), st.floats(0.0, 1.0))
@bounded(25)
def test_pairs_have_the_given_probabilities(p: float, q: float, position: float) -> None:
    least, most = max(p + q - 1, RARE_COINCIDENCE * p * q), min(p, q)
    both = least + position * (most - least)
    joint = np.array([[p, both], [both, q]])
    drawn = LabelModel.from_joint(joint).draw(20_000, stream(1, LABELS, 0))
    found = [*drawn.mean(axis=0), drawn.all(axis=1).mean()]
    for share, wanted in zip(found, (p, q, both), strict=True):
        assert abs(share - wanted) < 5 * np.sqrt(wanted * (1 - wanted) / 20_000) + 1e-3


def test_a_class_that_is_never_or_always_present_is_drawn_so() -> None:
    joint = np.diag([0.0, 1.0, 0.3, 0.4, 0.3])
    joint[1, 2:] = joint[2:, 1] = [0.3, 0.4, 0.3]
    joint[2, 4] = joint[4, 2] = 0.3  # always together, and never with the fourth
    correlations = latent_correlations(joint)
    assert np.isfinite(correlations).all()
    assert (correlations == correlations.T).all()
    drawn = LabelModel.from_joint(joint).draw(20_000, stream(2, LABELS, 0))
    assert drawn[:, :2].mean(axis=0).tolist() == [0.0, 1.0]
    assert abs((drawn[:, 2] & drawn[:, 4]).mean() - 0.3) < 0.02
    assert (drawn[:, 2] & drawn[:, 3]).mean() < 2 * RARE_COINCIDENCE * 0.3 * 0.4


def test_frequencies_are_kept_if_the_pairs_contradict_each_other() -> None:
    """Five equally correlated normal variables cannot have a correlation below −1/4."""
    joint = np.diag([0.2] * 5)
    assert latent_correlations(joint).min() < -0.5
    drawn = LabelModel.from_joint(joint).draw(20_000, stream(3, LABELS, 0)).astype(float)
    together = (drawn.T @ drawn / len(drawn))[np.triu_indices(5, 1)]
    threshold = np.full(10, ndtri(0.2))
    np.testing.assert_allclose(drawn.mean(axis=0), 0.2, atol=0.015)
    opposed = both_below(threshold, threshold, np.full(10, np.arcsin(-0.25)))
    np.testing.assert_allclose(together, opposed, atol=0.006)


@pytest.mark.parametrize("classes", [1, 2, 12, 80, 300])
def test_the_built_in_cooccurrence_is_a_valid_one(classes: int) -> None:
    joint = built_in_cooccurrence(classes)
    frequency = np.diag(joint)
    assert (joint == joint.T).all()
    assert (joint > 0).all()
    assert (joint <= np.minimum.outer(frequency, frequency) + 1e-12).all()
    assert frequency[0] == pytest.approx(0.5)
    if classes >= 12:
        assert frequency[-1] == pytest.approx(0.002)
        assert frequency.sum() == pytest.approx(min(2.9, classes / 10))
        # Some pairs are far more likely than under independence, others less likely.
        lift = (joint / np.outer(frequency, frequency))[np.triu_indices(classes, 1)]
        assert (lift < 1).mean() > 0.2
        assert lift.max() > 1.5


def test_without_noise_scores_follow_the_formula() -> None:
    found = scores_of(PRESENT, offset=0.1, base=0.05, lift=0.06, bonus=0.7)
    single = np.where(PRESENT, 0.11, 0.05)
    f = [  # "0 and 1", "1 and 2", "0, 1, and 2", "2" alone
        [0.11 + 0.7 * 0.11, 0.11 + 0.7 * 0.05, 0.11 + 0.7 * 0.08, 0.05],
        [0.05 + 0.7 * 0.05, 0.05 + 0.7 * 0.05, 0.05 + 0.7 * 0.05, 0.05],
        [0.11 + 0.7 * 0.05, 0.11 + 0.7 * 0.11, 0.11 + 0.7 * 0.08, 0.11],
    ]
    np.testing.assert_allclose(found.singleton, 0.1 + single, atol=1e-6)
    np.testing.assert_allclose(found.auxiliary, 0.1 + single, atol=1e-6)
    np.testing.assert_allclose(found.compound, 0.1 + np.array(f), atol=1e-6)


def test_flips_hide_present_classes_and_show_absent_ones() -> None:
    nothing, everything = scores_of(np.zeros_like(PRESENT)), scores_of(np.ones_like(PRESENT))
    assert (scores_of(PRESENT, miss=1).compound == nothing.compound).all()
    assert (scores_of(PRESENT, ghost=1).compound == everything.compound).all()
    some = np.random.default_rng(0).random((20_000, 3)) < 0.5
    flipped = scores_of(some, miss=0.3, ghost=0.1)
    seen = flipped.singleton > 0.2
    assert (~seen[some]).mean() == pytest.approx(0.3, abs=0.02)
    assert seen[~some].mean() == pytest.approx(0.1, abs=0.02)
    assert (seen == (flipped.auxiliary > 0.2)).all()  # all prompts see the same


def test_biases_belong_to_the_image_the_prompt_or_neither() -> None:
    labels = np.tile(PRESENT, (2000, 1))
    silent = scores_of(labels)

    def change(**changes: float) -> NDArray[np.float64]:
        """Returns the change of the compound scores (n, P)."""
        changed: NDArray[np.float64] = scores_of(labels, **changes).compound.astype(np.float64)
        return changed - silent.compound.astype(np.float64)

    of_image, of_prompt = change(offset_sd=0.01), change(prompt_sd=0.01)
    assert np.ptp(of_image, axis=1).max() < 1e-6 < of_image.std()
    assert np.ptp(of_prompt, axis=0).max() < 1e-6 < of_prompt.std()
    assert of_image.std() == pytest.approx(0.01, rel=0.1)
    noise = change(compound=0.03)
    assert noise.std() == pytest.approx(0.03, rel=0.1)
    assert np.abs(np.corrcoef(noise.T) - np.eye(len(PROMPTS))).max() < 0.1
    gain = change(gain_sd=0.2) / (silent.compound - Noise().offset)
    assert np.ptp(gain, axis=1).max() < 1e-5
    assert gain.std() == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize("what", ["base_sd", "lift_sd", "bonus_sd", "prompt_sd"])
def test_every_class_and_prompt_has_its_own_parameters(what: str) -> None:
    noise = Noise(**{**SILENT, what: 0.01})
    all_present = np.ones((2, 3), dtype=bool)
    found, other = (ScoreModel(noise, seed, 3, PROMPTS).scores(0, all_present) for seed in (5, 6))
    for scores in (found.singleton, found.auxiliary, found.compound):
        assert (scores[0] == scores[1]).all()  # the same for all images
    varied = found.compound if what == "bonus_sd" else found.singleton
    assert len(np.unique(varied[0, :3])) == 3
    assert (found.compound[:, :3] != other.compound[:, :3]).all()
    assert (found.singleton == found.auxiliary).all() == (what != "prompt_sd")


def test_a_shard_does_not_depend_on_who_draws_it() -> None:
    model = ScoreModel(Noise(), 7, 3, PROMPTS)
    forwards = [model.scores(shard, PRESENT) for shard in (0, 1)]
    other = ScoreModel(Noise(), 7, 3, PROMPTS[:2])
    again = ScoreModel(Noise(), 7, 3, PROMPTS).scores(1, PRESENT)
    assert (again.compound == forwards[1].compound).all()
    assert (again.compound != forwards[0].compound).all()
    # Other prompts do not change the scores of the classes; another seed changes all scores.
    assert (other.scores(1, PRESENT).auxiliary == again.auxiliary).all()
    reseeded = ScoreModel(Noise(), 8, 3, PROMPTS).scores(1, PRESENT)
    assert (reseeded.singleton != again.singleton).all()


def test_more_prompts_share_flips_and_image_bias() -> None:
    """Flips and image bias belong to an image; noise, bias and bonus belong to a prompt."""
    quiet = {"compound": 0.0, "prompt_sd": 0.0, "bonus_sd": 0.0}
    model = ScoreModel(Noise(**quiet, miss=0.5, ghost=0.5), 7, 3, PROMPTS)
    labels = np.tile(PRESENT, (50, 1))
    texts = [(f"text {number}", ids) for number, ids in enumerate(PROMPTS)]
    np.testing.assert_array_equal(model.more(2, labels, texts), model.scores(2, labels).compound)
    noisy = ScoreModel(Noise(), 7, 3, PROMPTS)
    found = noisy.more(2, labels, texts)
    assert (found != noisy.scores(2, labels).compound).all()
    # The other prompts do not matter.
    np.testing.assert_array_equal(noisy.more(2, labels, texts[:0:-1]), found[:, :0:-1])
    assert noisy.more(2, labels, []).shape == (150, 0)
    spread = noisy.more(2, np.tile(PRESENT, (3000, 1)), [("a", (0,)), ("b", (0,))])
    assert np.diff(spread, axis=1).std() == pytest.approx(2**0.5 * Noise().compound, rel=0.05)


def test_one_class_without_a_prompt_has_scores_too() -> None:
    found = ScoreModel(Noise(), 0, 1, []).scores(0, PRESENT[:, :1])
    assert (found.singleton.shape, found.compound.shape) == ((3, 1), (3, 0))


@pytest.mark.parametrize(
    "wrong", [{"miss": 1.1}, {"ghost": -0.1}, {"lift_sd": -1}, {"offset": np.nan}]
)
def test_impossible_rates_are_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Noise(**wrong)


def test_the_order_of_the_methods_is_the_papers() -> None:
    classes, images = 40, 4000
    labels = LabelModel.from_joint(built_in_cooccurrence(classes))
    present = labels.draw(images, stream(0, LABELS, 0))
    training = labels.draw(20_000, stream(0, TRAINING, 0))
    seen = Cooccurrence.of([np.flatnonzero(row).tolist() for row in training], classes)
    prompts = from_cooccurrence([str(index) for index in range(classes)], seen)
    mentioned = [prompt.class_ids for prompt in prompts]
    scores = ScoreModel(Noise(), 0, classes, mentioned).scores(0, present)
    mentions = mentions_of(mentioned, classes)

    def mean_ap(values: NDArray[np.floating]) -> float:
        return float(np.mean([value for value in ap(values, present) if value is not None]))

    def fused(method: Method) -> tuple[float, float]:
        sparc = fit_sparc(lambda: [scores], mentions, method)
        debiased, final = debiased_and_final(sparc, scores)
        return mean_ap(debiased), mean_ap(final)

    debiased, sparc = fused(Method())
    assert mean_ap(scores.singleton) + 3 < debiased
    assert debiased + 1 < sparc
    first, second, third = (fused(Method("kmax", k, merge=False))[1] for k in (1, 2, 3))
    assert first + 3 < second
    assert second + 3 < third
    assert fused(Method("kmax", 1))[1] > first + 3
