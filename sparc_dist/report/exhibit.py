"""What the pages show: units, classes and images, which images, and what each method says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from sparc_dist.core import FinalScores, Gallery, judged_by
from sparc_dist.runs import UnitKey
from sparc_dist.runs.ensemble_file import AnyLabeler

#: Classes that are absent and less likely than this are not listed.
LIKELY = 0.05

#: For each method: index, probability and presence of the classes that are present or likely.
#: The probability of a class whose scores do not vary is None.
Verdicts = Mapping[str, Sequence[tuple[int, float | None, bool]]]


def verdicts(labeler: AnyLabeler, final: FinalScores) -> list[Verdicts]:
    """Returns the verdicts on each image."""
    most, images = labeler.rule.get("top"), range(len(final))
    found: list[dict[str, Sequence[tuple[int, float | None, bool]]]] = [{} for _ in images]
    for method, (probability, present) in judged_by(labeler.decisions, final, most).items():
        for image in images:
            listed = np.flatnonzero(present[image] | (probability[image] >= LIKELY))
            chance, there = (part[image, listed].tolist() for part in (probability, present))
            found[image][method] = [
                (index, None if np.isnan(p) else p, here)
                for index, p, here in zip(listed.tolist(), chance, there, strict=True)
            ]
    return list(found)


#: The rows of images of a class, in the order of its page.
ROWS = ("likeliest", "above", "below", "random", "false_positives", "misses")


@dataclass(frozen=True)
class PromptPart:
    """What a compound prompt adds to the score of a class in an image.

    similarity: the cosine of image and text. debiased: the same after both debias steps. weight:
    that of its rank (SPARC) or its share (duo). added: to the final score, weight × debiased.
    """

    text: str
    similarity: float
    debiased: float
    weight: float
    added: float


@dataclass(frozen=True)
class ClassScore:
    """A class in an image: how its score came about.

    score: the one that is compared with the threshold, of duo with few images that before the rival
    is taken off. similarity: of the singleton prompt. debiased: the same after both debias steps.
    own: what the singleton adds to the final score. prompts: the compound prompts that add most,
    the largest first. rest: what all others add, and what duo takes off for partners and rivals;
    own, the prompts' parts and rest sum to the score. prompts is empty for classes that are not
    explained.
    """

    name: str
    score: float
    probability: float | None
    present: bool
    similarity: float
    debiased: float
    own: float = 0.0
    prompts: Sequence[PromptPart] = ()
    rest: float = 0.0


@dataclass(frozen=True)
class ShownImage:
    """An image that pages show. key: a name that is safe in files and URLs, unique in the unit.

    thumbnail: its file, relative to report/; None if it cannot be made, and ``error`` says why.
    truth: the names of its labels; None if unknown. classes: the highest score first; all of them
    unless there are very many. decided: what each method says that decides.
    """

    key: str
    image_id: str
    thumbnail: str | None
    error: str | None
    truth: Sequence[str] | None
    classes: Sequence[ClassScore]
    decided: Verdicts = field(default_factory=dict)


@dataclass(frozen=True)
class ClassExhibit:
    """What the page of a class shows.

    slug: a name that is safe in files and URLs, unique in the unit. counts: of final scores
    between ``edges``, of which there is one more. rows: for each of ROWS the keys of images;
    the last two only with labels. precision_recall: points (recall, precision), both between 0 and
    1; ap, f1, precision and recall are in percent. rank_weights: of the singleton and of the 1st,
    2nd, … highest compound score (SPARC), or of the three views (duo). prompts: the texts that
    mention the class, without the last ``more_prompts``. emptied: the rows whose images are left
    out because there are too many classes.
    """

    name: str
    slug: str
    status: str
    prevalence: float | None
    threshold_score: float | None
    threshold_probability: float | None
    edges: Sequence[float]
    counts: Sequence[int]
    rows: Mapping[str, Sequence[str]]
    rank_weights: Sequence[float]
    prompts: Sequence[str]
    ap: Mapping[str, float | None] = field(default_factory=dict)
    precision_recall: Sequence[tuple[float, float]] = ()
    f1: float | None = None
    precision: float | None = None
    recall: float | None = None
    more_prompts: int = 0
    emptied: frozenset[str] = frozenset()


@dataclass(frozen=True)
class UnitExhibit:
    """What the pages of a unit show.

    slug: a name that is safe in files and URLs, unique in the run. primary: the method that
    decides. errors: id and reason of images that could not be read, at most some hundred of them.
    """

    dataset: str
    backbone: str
    slug: str
    primary: str
    metrics: Mapping[str, Any]
    classes: Sequence[ClassExhibit]
    images: Mapping[str, ShownImage]
    errors: Sequence[tuple[str, str]]


#: The images of all units of a report together, without one for each class; an image that two units
#: show counts twice.
MOST_IMAGES, FEWEST_IMAGES = 4000, 1000

#: The shard and the row of an image.
Place = tuple[int, int]


@dataclass(frozen=True)
class Choice:
    """The images that the pages of a unit show.

    known: for each of ROWS and each class the images of the gallery. rows: the first ones of them.
    """

    known: Mapping[str, Sequence[Sequence[Place]]]
    rows: Mapping[str, Sequence[list[Place]]]

    @classmethod
    def of(cls, gallery: Gallery) -> Choice:
        """Returns the choice of no image."""
        classes = range(gallery.keys.shape[1])
        known = {name: [gallery.images(name, index) for index in classes] for name in ROWS}
        return cls(known, {name: [[] for _ in classes] for name in ROWS})

    @property
    def width(self) -> int:
        """The number of classes."""
        return len(self.rows[ROWS[0]])

    def classes(self) -> dict[Place, set[int]]:
        """Returns for each chosen image the classes that it is shown for."""
        found: dict[Place, set[int]] = {}
        for rows in self.rows.values():
            for index, row in enumerate(rows):
                for place in row:
                    found.setdefault(place, set()).add(index)
        return found

    def emptied(self, index: int) -> frozenset[str]:
        """Returns the rows of a class that have images, of which none is chosen."""
        names = (name for name in ROWS if self.known[name][index] and not self.rows[name][index])
        return frozenset(names)


def choose(galleries: Mapping[UnitKey, Gallery]) -> dict[UnitKey, Choice]:
    """Returns which images each unit shows: all of its gallery, unless there are too many.

    The first image of each row is chosen for all classes of all units, then the second ones, until
    there are too many. From then on, a row goes on only with images that are shown anyway.
    """
    chosen = {key: Choice.of(gallery) for key, gallery in galleries.items()}
    # The page of a class is about as large as an image with its scores.
    classes = sum(choice.width for choice in chosen.values())
    most = max(MOST_IMAGES - classes, FEWEST_IMAGES)
    seen: set[tuple[UnitKey, Place]] = set()
    ranks = max((gallery.keys.shape[-1] for gallery in galleries.values()), default=0)
    for rank, name, (key, choice) in product(range(ranks), ROWS, chosen.items()):
        for images, row in zip(choice.known[name], choice.rows[name], strict=True):
            if len(row) == rank < len(images):
                image = (key, images[rank])
                if image in seen or len(seen) < most:
                    seen.add(image)
                    row.append(images[rank])
    return chosen
