"""A review: questions about one class, the answers so far, and what they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core import expected_f1
from sparc_dist.core.debias import standardise
from sparc_dist.report.view.unit_view import Standing, Tile, UnitView
from sparc_dist.runs.answers import Question, Row, Session, spread

#: A round asks about so many images; further rounds ask about others.
QUESTIONS, ROUNDS = 40, 25
#: An F1 on the answers themselves is shown from so many answers, and so many yes and no, on.
ENOUGH, ENOUGH_EACH = 20, 5
ANSWERS = ("yes", "no", "unsure")


@dataclass(frozen=True)
class Review:
    """A round of questions about a class. places: in its ranking; asked: the images there.

    rows: those that count, by image id, of this round and of all others, the latest last. own: the
    images with an answer of this session.
    """

    name: str
    number: int
    places: NDArray[np.int64]
    asked: Sequence[Tile]
    rows: Mapping[str, Row]
    own: Sequence[str]

    @classmethod
    def of(cls, view: UnitView, index: int, number: int, session: Session) -> Review:
        """Returns a round as it stands: the same images every time, spread over the ranking."""
        view.unit.check_fitted()
        ranking, name = view.ranking(index), view.unit.classes[index]
        places = spread(ranking.score.astype(np.float64), QUESTIONS, np.random.default_rng(number))
        rows = {image_id: row for (image_id, about), row in session.read().items() if about == name}
        mine = {(row.question.image_id, row.time) for row in session.rows.values() if row.answer}
        own = [image_id for image_id, row in rows.items() if (image_id, row.time) in mine]
        return cls(name, number, places, view.tiles(ranking, places.tolist()), rows, own)

    @cached_property
    def answers(self) -> dict[str, str]:
        """yes, no or unsure by image id."""
        return {image_id: row.answer for image_id, row in self.rows.items() if row.answer}

    @property
    def next(self) -> Tile | None:
        """The first image without an answer; None if all have one."""
        return next((tile for tile in self.asked if tile.image_id not in self.answers), None)

    @property
    def done(self) -> int:
        """The number of images of this round that have an answer."""
        return sum(tile.image_id in self.answers for tile in self.asked)

    @property
    def last(self) -> Tile | None:
        """The image of this round that this session answered last."""
        asked = {tile.image_id: tile for tile in self.asked}
        return next((asked[name] for name in reversed(self.own) if name in asked), None)

    def counts(self) -> dict[str, int]:
        """Returns how many answers of each kind there are about the class."""
        given = list(self.answers.values())
        return {word: given.count(word) for word in ANSWERS}

    def question(self, image_id: str) -> Question | None:
        """Returns the question about an image; None if this round does not ask about it."""
        found = next((tile for tile in self.asked if tile.image_id == image_id), None)
        return None if found is None else Question(found.image_id, found.uri, self.name)

    def f1(self, present: NDArray[np.bool_]) -> float | None:
        """Returns the F1 of decisions (n,) on this round's answers; None if there are too few.

        Each image stands for an equal part of the ranking, so no answer needs a weight.
        """
        words = [self.answers.get(tile.image_id, "") for tile in self.asked]
        known = [word in ("yes", "no") for word in words]
        if sum(known) < ENOUGH or min(words.count("yes"), words.count("no")) < ENOUGH_EACH:
            return None
        labels = np.array([word == "yes" for word in words], dtype=np.float64)
        return expected_f1(labels[known], present[self.places[known]])


@dataclass(frozen=True)
class Outcome:
    """What answers changed about a class. Each pair: without any knowledge, and now.

    expected: the F1 that the probabilities of now promise both decisions. answered: F1 on the
    answers.
    """

    standing: tuple[Standing, Standing]
    expected: tuple[float | None, float | None]
    answered: tuple[float | None, float | None]

    @classmethod
    def of(cls, view: UnitView, index: int, review: Review) -> Outcome | None:
        """Compares how a class is decided now with the label-free fit; None if that is the same.

        Everything is read from the run, so it does not matter who decided, and when.
        """
        if "answers" not in storage.read_json(view.unit.unit.decisions).get("rule", {}):
            return None
        ranking, rule = view.ranking(index), view.label_free
        z = standardise(ranking.decided, rule.mean[index], rule.sd[index])
        presents = (z >= rule.threshold[index], ranking.present)
        probability = ranking.probability.astype(np.float64)
        expected = (expected_f1(probability, present) for present in presents)
        answered = (review.f1(present) for present in presents)
        standing = (Standing.of(rule, index), view.standings[index])
        return cls(standing, _pair(expected), _pair(answered))


def _pair(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    before, after = values
    return before, after
