"""The baselines: plain similarities (ZSCLIP), and the same without the bias of image and prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from sparc_dist.core.debias import (
    Scores,
    debias_images,
    debias_prompts,
    debias_singleton,
    flat_images,
    standardise,
)
from sparc_dist.core.fusion import NO_BASE, Arrays, Facts, Fusion, Given, Passes, Totals
from sparc_dist.core.method import Method
from sparc_dist.core.moments import Floats, Moments
from sparc_dist.core.order_statistics import Mentions
from sparc_dist.core.states import State

#: The name of the baseline that all methods are compared with.
PLAIN = "zsclip"


@dataclass(frozen=True)
class Zsclip(Fusion):
    """ZSCLIP: singleton scores as they are."""

    name = PLAIN
    title = "ZSCLIP"

    def final(self, scores: Scores, base: Mapping[str, Totals] = NO_BASE) -> Totals:
        """Returns the singleton scores (n, N + B)."""
        return scores.singleton, scores.singleton


@dataclass(frozen=True)
class PromptMoments(State):
    """The moments of all prompts after the image-level step, and the number of flat images."""

    moments: Moments
    flat_images: int

    @classmethod
    def of(cls, scores: Scores, method: Method) -> PromptMoments:
        """Returns the state of one shard."""
        return cls(
            Moments.of(debias_images(scores, method.image_debias)),
            flat_images(scores, method.image_debias),
        )


@dataclass(frozen=True)
class Debiased(Fusion):
    """Debiased singleton scores. moments: of all prompts over images, after the image-level step.

    SPARC builds on it, and shares its moments.
    """

    name = "debiased"
    title = "debiased"
    passes: ClassVar[Passes] = (("prompt_statistics", PromptMoments),)
    prefix = "prompts"

    method: Method
    moments: Moments

    @classmethod
    def gather(cls, given: Given) -> Callable[[Scores], State] | None:
        """Returns the function that makes the state of a shard."""
        return lambda scores: PromptMoments.of(scores, given.method)

    @classmethod
    def fit(cls, given: Given) -> Self:
        """Returns the model for the merged state."""
        (prompts,) = given.states
        return cls(given.mentions, _notes(prompts, given.mentions), given.method, prompts.moments)

    def final(self, scores: Scores, base: Mapping[str, Totals] = NO_BASE) -> Totals:
        """Returns the debiased singleton scores (n, N + B)."""
        debiased = self.debias_singletons(scores)
        return debiased, debiased

    def debias(self, scores: Scores) -> Floats:
        """Returns the debiased singleton and compound scores (n, N + B + P)."""
        return debias_prompts(debias_images(scores, self.method.image_debias), self.moments)

    def debias_singletons(self, scores: Scores) -> Floats:
        """Returns the debiased singleton scores alone (n, N + B)."""
        values, count = debias_singleton(scores, self.method.image_debias), len(self.mentions)
        return standardise(values, self.moments.mean[:count], self.moments.sd[:count])

    def debiased(self, scores: Scores) -> tuple[Floats, Floats]:
        """Returns the debiased singleton (n, N + B) and compound scores (n, P)."""
        values, columns = self.debias(scores), len(self.mentions)
        return values[:, :columns], values[:, columns:]

    def arrays(self) -> Arrays:
        """Returns what a labeler stores of it."""
        return {"mean": self.moments.mean, "deviations": self.moments.deviations}

    @classmethod
    def restored(cls, given: Given, arrays: Arrays, facts: Facts) -> Self:
        """Returns the model of what ``arrays`` returned."""
        moments = Moments(facts["images"], arrays["mean"], arrays["deviations"])
        return cls(given.mentions, facts["notes"], given.method, moments)


def _notes(prompts: PromptMoments, mentions: Mentions) -> list[str]:
    """Returns notes for the user about degenerate data."""
    moments, classes = prompts.moments, len(mentions)
    notes = []
    if classes == 1:
        notes.append("There is only one class, so image debias sets all scores to 0.")
    elif prompts.flat_images:
        notes.append(f"{prompts.flat_images} images score every class the same: they become 0.")
    if moments.count == 1:
        notes.append("There is only one image, so prompt debias sets all scores to 0.")
        return notes
    constant = moments.sd == 0
    for kind, part in (("singleton", constant[:classes]), ("compound", constant[classes:])):
        if part.any():
            notes.append(f"{part.sum()} {kind} prompts score every image the same: they become 0.")
    return notes
