"""Decisions: from final scores to a probability and to present or absent, without labels.

pass 1   final scores → their moments                           merge: (N + B)² numbers
pass 2   final scores → counts in bins                          merge: 960 (N + B) integers
then     prevalence → link → threshold, per class

With few images or columns there is nothing to estimate a prevalence from: a prior takes its place,
and pass 2 is not needed. What is known (prevalences, classes per image, answers) improves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.answers import Answers, fit_link
from sparc_dist.core.debias import standardise
from sparc_dist.core.final_scores import ScoreCounts, ScoreMoments
from sparc_dist.core.histogram import standard_normal
from sparc_dist.core.link import (
    SLOPE,
    Weights,
    intercepts,
    mean_probability,
    scores_at,
    thresholds,
)
from sparc_dist.core.moments import Floats
from sparc_dist.core.prevalence import estimate
from sparc_dist.core.special import expit

#: With fewer images, fewer images per column, or fewer columns, prevalences are not estimated.
MIN_IMAGES, MIN_IMAGES_PER_COLUMN, MIN_COLUMNS = 50, 2, 10

#: The prior: an image holds so many of the columns, of which there are at least so many.
PRIOR_PER_IMAGE, PRIOR_COLUMNS = 2.0, 40

#: What estimates can be, the best first.
DOUBTS = ("clear", "common", "unclear")

#: The range of prevalences; the lower end is half an image where images are counted.
LOWEST, HIGHEST = 1e-6, 0.95


@dataclass(frozen=True)
class Knowledge:
    """What is known about a collection beside its scores.

    prevalence: by the index of a class. weight: of these prevalences, 1 if they are known, 1/2 if
    they are guesses. per_image: mean number of classes in an image.
    """

    prevalence: Mapping[int, float] = field(default_factory=dict)
    weight: float = 1.0
    per_image: float | None = None

    def __post_init__(self) -> None:
        if not all(0 <= value <= 1 for value in self.prevalence.values()):
            raise ValueError("a prevalence must be between 0 and 1")
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight is {self.weight}; it must be between 0 and 1")
        if self.per_image is not None and not 0 < self.per_image < float("inf"):
            raise ValueError(f"per_image is {self.per_image}; it must be positive and finite")


@dataclass(frozen=True)
class Decision:
    """The fitted rule of N classes: all that is needed to judge a new image.

    z = (score − mean) / sd, probability = σ(slope · z + intercept), present from z = threshold on.
    before_rival: whether the score is the one before the rival is taken off.

    status of a class: where its prevalence comes from.

    - ``clear``, ``unclear``, ``common``: estimated, see ``core.prevalence``
    - ``prior``: the same for all classes, because there are few images or columns
    - ``given``: known beforehand
    - ``labelled``: corrected by answers about the class
    - ``constant``: its scores do not vary. It is never present, and its intercept, threshold,
      prevalence and probability are NaN.

    mean, sd, intercept, threshold, prevalence, status: (N,)
    """

    mean: Floats
    sd: Floats
    slope: float
    intercept: Floats
    threshold: Floats
    prevalence: Floats
    status: tuple[str, ...]
    before_rival: bool

    def judge(
        self, total: NDArray[np.floating], final: NDArray[np.floating], most: int | None = None
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Returns the probability of each class and whether it is present, both (n, N).

        total, final: scores before and after the rival is taken off, (n, N) or (n, N + B). most: so
        many classes of an image are present, those with the highest scores, whatever the threshold.
        """
        z = self.standardise(total, final)
        present = z >= self.threshold
        if most is not None:
            varying = np.array([status != "constant" for status in self.status])
            own = final[:, : len(varying)]
            present = top(np.where(varying, own, -np.inf), most) & varying
        return expit(self.slope * z + self.intercept), present

    def standardise(self, total: NDArray[np.floating], final: NDArray[np.floating]) -> Floats:
        """Returns the standardised scores z (n, N)."""
        scores = total if self.before_rival else final
        return standardise(scores[:, : len(self.mean)], self.mean, self.sd)

    @property
    def threshold_score(self) -> Floats:
        """The score from which on each class is present (N,)."""
        return self.mean + self.sd * self.threshold

    @property
    def threshold_probability(self) -> Floats:
        """The probability from which on each class is present (N,)."""
        return np.asarray(expit(self.slope * self.threshold + self.intercept))

    def at_probability(self, probability: float) -> Decision:
        """Returns the rule that says present from the same probability on for every class."""
        return replace(self, threshold=scores_at(probability, self.slope, self.intercept))


def can_estimate(state: ScoreMoments) -> bool:
    """Whether there are enough images and columns to estimate prevalences: pass 2 is needed."""
    images = max(MIN_IMAGES, MIN_IMAGES_PER_COLUMN * state.columns)
    return state.count >= images and state.columns >= MIN_COLUMNS


def decide(
    state: ScoreMoments,
    counts: ScoreCounts | None,
    classes: int,
    knowledge: Knowledge | None = None,
    answers: Answers | None = None,
) -> Decision:
    """Returns the rule for the first ``classes`` columns, from the merged states.

    counts: may be None where ``can_estimate`` is false; not used there
    """
    known = knowledge or Knowledge()
    if can_estimate(state):
        if counts is None:
            raise ValueError("there are enough images to estimate prevalences: counts are needed")
        weights, lowest = counts.final[:classes], 0.5 / state.count
        rule = _scaled(_informed(_estimated(state, counts, classes), known), known.per_image)
    else:
        weights, lowest = np.tile(standard_normal(), (classes, 1)), LOWEST
        rule = _informed(_prior(state, classes, known.per_image), known)
    # Clipped last: prevalences that were given or scaled stay in the range, too.
    prevalence = np.clip(rule.prevalence, lowest, HIGHEST)
    rule = replace(rule, prevalence=prevalence, intercept=intercepts(weights, prevalence))
    if answers is not None:
        rule = _corrected(rule, weights, answers)
    threshold = thresholds(weights, rule.slope, rule.intercept, rule.prevalence)
    return replace(rule, threshold=threshold)


def _estimated(state: ScoreMoments, counts: ScoreCounts, classes: int) -> Decision:
    """Returns a rule with estimated prevalences: the mean over totals, with the worst status."""
    constant, standards = state.constant, state.standards
    varying = np.flatnonzero(~constant)
    prevalence = np.full(state.columns, np.nan)
    status = np.full(state.columns, "constant", dtype=object)
    if varying.size:
        pairs = zip(counts.decorrelated, counts.totals, strict=True)
        found = [estimate(mixed[varying], total[varying]) for mixed, total in pairs]
        prevalence[varying] = np.mean([shares for shares, _ in found], axis=0)
        names = zip(*(own for _, own in found), strict=True)
        status[varying] = [max(own, key=DOUBTS.index) for own in names]
    return _unlinked(standards.mean, standards.sd, prevalence, status, classes)


def _prior(state: ScoreMoments, classes: int, per_image: float | None) -> Decision:
    """Returns a rule with the same prevalence for all classes.

    Total scores have an SD of about 1 thanks to shrunk statistics, and are not standardised.

    A column is constant if others vary. If none does, the images are the same, or there is one.
    """
    columns = state.columns
    share = (PRIOR_PER_IMAGE if per_image is None else per_image) / max(columns, PRIOR_COLUMNS)
    constant = state.constant & ~state.constant.all()
    prevalence = np.where(constant, np.nan, share)
    status = np.where(constant, "constant", "prior")
    rule = _unlinked(np.zeros(columns), (~constant).astype(np.float64), prevalence, status, classes)
    return replace(rule, before_rival=True)


def _unlinked(
    mean: Floats, sd: Floats, prevalence: Floats, status: NDArray[Any], classes: int
) -> Decision:
    """Returns a rule for the first columns, without intercepts and thresholds."""
    none = np.full(classes, np.nan)
    names = tuple(map(str, status[:classes]))
    parts = (mean[:classes], sd[:classes], SLOPE, none, none, prevalence[:classes], names)
    return Decision(*parts, before_rival=False)


def _informed(rule: Decision, known: Knowledge) -> Decision:
    """Returns the rule with the prevalences that are given."""
    prevalence, status = rule.prevalence.copy(), list(rule.status)
    for index, given in known.prevalence.items():
        if status[index] != "constant":
            prevalence[index] = given**known.weight * prevalence[index] ** (1 - known.weight)
            status[index] = "given"
    return replace(rule, prevalence=prevalence, status=tuple(status))


def _scaled(rule: Decision, per_image: float | None) -> Decision:
    """Returns the rule with prevalences that add up to ``per_image``; those given remain."""
    if per_image is None:
        return rule
    given = np.array([name == "given" for name in rule.status])
    free = ~given & ~np.isnan(rule.prevalence)
    left = max(per_image - rule.prevalence[given].sum(), 0.0)
    scale = left / max(rule.prevalence[free].sum(), LOWEST)
    return replace(rule, prevalence=np.where(free, scale, 1.0) * rule.prevalence)


def _corrected(rule: Decision, weights: Weights, answers: Answers) -> Decision:
    """Returns the rule with the slope, intercepts and prevalences that answers suggest.

    Every class moves with the slope and the shift, but keeps a prevalence that was given. Only
    classes with answers become ``labelled``.
    """
    usable = ~np.isnan(rule.intercept[answers.column])
    column, present = answers.column[usable], answers.present[usable]
    scores = (answers.total if rule.before_rival else answers.final)[usable]
    z = (scores - rule.mean[column]) / rule.sd[column]
    slope, intercept = fit_link(z, column, present, rule.intercept)
    prevalence = mean_probability(weights, slope, intercept)
    asked = set(column.tolist())
    given = (name == "given" and i not in asked for i, name in enumerate(rule.status))
    kept = np.fromiter(given, dtype=bool)
    prevalence = np.where(kept, rule.prevalence, prevalence)
    intercept = np.where(kept, intercepts(weights, prevalence, slope), intercept)
    status = ("labelled" if i in asked else name for i, name in enumerate(rule.status))
    return replace(
        rule, slope=slope, intercept=intercept, prevalence=prevalence, status=tuple(status)
    )


def top(scores: NDArray[np.floating], k: int) -> NDArray[np.bool_]:
    """Returns whether a class is among the k highest of its image (n, N); the first of equals."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    present = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(present, order, True, axis=1)
    return present
