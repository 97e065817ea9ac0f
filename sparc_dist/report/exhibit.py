"""The exhibit of a unit: everything that its pages show, chosen and computed beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparc_dist.report.verdicts import Verdicts

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
