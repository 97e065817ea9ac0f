"""few: mAP and micro-F1 over the number of classes and of images, from stored scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparc_dist.core import (
    FUSIONS,
    PLAIN,
    CountedState,
    FinalScores,
    Mentions,
    Method,
    Positives,
    Reached,
    ScoredState,
    Scores,
    States,
    agreement_of,
    can_estimate,
    decide,
    fit_fusions,
    judged_by,
    mean_average_precision,
    totals_of,
)
from sparc_dist.core.average_precision import average_precision
from sparc_dist.core.decision_metrics import Agreement
from sparc_dist.core.decisions import top
from sparc_dist.pipeline.executor import get, share, submit
from sparc_dist.pipeline.passes import ShardGroup, total
from sparc_dist.pipeline.unit import Unit
from sparc_dist.research.result import Result, lines, mean, new_figure
from sparc_dist.research.session import ExperimentSession
from sparc_dist.runs import UnitKey, UnitShards
from sparc_dist.runs.tables import Cell, Table

#: The numbers of classes and of images, as far as there are so many; the last point is all.
CLASSES = (1, 2, 3, 5, 10, 20)
IMAGES = (1, 5, 20, 100, 500)
#: Images of a unit that are looked at, and subsets of classes for each number of them.
MOST_IMAGES, SUBSETS = 2000, 5
#: Sets of m images are taken until there are so many images or sets.
POOLED_IMAGES, MOST_SETS = 500, 100
#: ZSCLIP does not decide; this many classes of each image count as its decision.
TOP = 2
SEED = 0

#: What is varied, the titles of the methods, and the columns of the table.
KINDS = ("classes", "images")
ALONE = "SPARC, no background"
SHOWN = {name: FUSIONS[name].title for name in (PLAIN, "sparc", "duo")}
COLUMNS = ("data set", "what", "number", "method", "mAP (%)", "micro-F1 (%)")

#: By the title of a method: mAP and micro-F1 in percent.
Point = Mapping[str, tuple[float | None, float | None]]
#: The points of a unit, by what is varied and the number of it.
Curves = Mapping[tuple[str, int], Point]
Rows = slice | NDArray[np.intp]


@dataclass(frozen=True)
class Case:
    """Scores to be fitted alone. labels: (n, N); columns after the first N are background."""

    scores: Scores
    labels: NDArray[np.bool_]
    mentions: Mentions

    def images(self, rows: Rows) -> Case:
        """Returns the case with some of the images."""
        return Case(_rows(self.scores, rows), self.labels[rows], self.mentions)

    def classes(self, chosen: Sequence[int], background: bool) -> Case:
        """Returns the case with some of the classes; the other columns follow as background.

        Compound prompts that mention a chosen class are used. Without background there are no other
        columns, and no prompts that mention them.
        """
        width = self.scores.compound.shape[1]
        mentioned = np.array([np.isin(np.arange(width), prompts) for prompts in self.mentions])
        others = [i for i in range(len(self.mentions)) if i not in set(chosen)]
        used = mentioned[list(chosen)].any(axis=0)
        if not background:
            used &= ~mentioned[others].any(axis=0)
        columns = [*chosen, *(others if background else ())]
        scores = Scores(
            self.scores.singleton[:, columns],
            self.scores.auxiliary[:, columns],
            self.scores.compound[:, used],
        )
        mentions = [np.flatnonzero(mentioned[i, used]).astype(np.int64) for i in columns]
        return Case(scores, self.labels[:, list(chosen)], mentions)

    def final(self, method: Method) -> FinalScores:
        """Returns the final scores of all methods."""
        classes = self.labels.shape[1]
        fusions = fit_fusions(lambda: [self.scores], self.mentions, classes, method)
        return fusions.final(self.scores)


@dataclass(frozen=True)
class Sample:
    """At most ``MOST_IMAGES`` labelled images, in random order; samples of shards add up.

    keys: a hash of each image's id. The lowest are used, in order, so shards do not matter.
    """

    keys: NDArray[np.str_]
    scores: Scores
    labels: NDArray[np.bool_]

    @classmethod
    def of(cls, ids: Iterable[str], scores: Scores, labels: NDArray[np.bool_]) -> Sample:
        """Returns the sample of one shard, of whose images all have labels (n, N)."""
        keys = [sha256(f"{SEED}:{image_id}".encode()).hexdigest() for image_id in ids]
        return cls(np.array(keys, dtype="U64"), scores, labels)._lowest()

    def __add__(self, other: Sample) -> Sample:
        both = (self.scores, other.scores)
        scores = Scores(
            np.concatenate([part.singleton for part in both]),
            np.concatenate([part.auxiliary for part in both]),
            np.concatenate([part.compound for part in both]),
        )
        keys = np.concatenate([self.keys, other.keys])
        return Sample(keys, scores, np.concatenate([self.labels, other.labels]))._lowest()

    def _lowest(self) -> Sample:
        rows = np.argsort(self.keys, kind="stable")[:MOST_IMAGES]
        return Sample(self.keys[rows], _rows(self.scores, rows), self.labels[rows])


def few(session: ExperimentSession) -> Result:
    """Returns the curves of the first unit of each data set, or of the unit the user named."""
    units: dict[str, Unit] = {}
    for unit in session.selected_units():
        units.setdefault(unit.key[0], unit)
    found, failures = session.for_each(units.values(), _curves)
    rows: list[list[Cell]] = [
        [key[0], what, number, title, *values]
        for key, curves in found.items()
        for (what, number), point in curves.items()
        for title, values in point.items()
    ]
    table = Table(COLUMNS, rows)
    return Result("Few classes and few images", table, _figure(found), _remarks(found) + failures)


def class_sets(number: int, classes: int) -> list[list[int]]:
    """Returns subsets of ``number`` classes in ascending order, spread evenly over all classes."""
    order = np.random.default_rng(SEED).permutation(classes)
    repeats = 1 if number == classes else min(SUBSETS, classes)
    starts = [classes * repeat // repeats for repeat in range(repeats)]
    return [sorted(np.roll(order, -start)[:number].tolist()) for start in starts]


def image_sets(number: int, images: int) -> list[slice]:
    """Returns sets of ``number`` images that follow each other."""
    sets = max(1, min(MOST_SETS, POOLED_IMAGES // number, images // number))
    return [slice(i * number, (i + 1) * number) for i in range(sets)]


def classes_point(case: Case, number: int, method: Method) -> Point:
    """Returns the means over subsets of the classes, with the others as background and without."""
    points: list[Point] = []
    for chosen in class_sets(number, case.labels.shape[1]):
        beside, alone = (case.classes(chosen, background) for background in (True, False))
        paper = pooled([alone], method)[SHOWN["sparc"]]
        points.append({**pooled([beside], method), ALONE: paper})
    return {
        title: (mean([p[title][0] for p in points]), mean([p[title][1] for p in points]))
        for title in points[0]
    }


def images_point(case: Case, number: int, method: Method) -> Point:
    """Returns the point of sets of so many images, each fitted alone, with all classes."""
    sets = image_sets(number, len(case.scores))
    return pooled([case.images(rows) for rows in sets], method)


def pooled(cases: Sequence[Case], method: Method) -> Point:
    """Fits each case alone; returns mAP and micro-F1 over the images of all of them."""
    finals = [case.final(method) for case in cases]
    judged = total(_agreement(*pair) for pair in zip(finals, cases, strict=True))
    labels = np.concatenate([case.labels for case in cases])
    point = {}
    for name, title in SHOWN.items():
        scores = np.concatenate([final.methods[name] for final in finals])
        positives = Positives.of(scores, labels)
        aps = average_precision(positives, Reached.of(scores, positives))
        point[title] = (mean_average_precision(aps), judged[name].metrics()["micro_f1"])
    return point


def _agreement(final: FinalScores, case: Case) -> States[Agreement]:
    """Returns the agreement of each method with labels."""
    classes, totals = case.labels.shape[1], totals_of(final.fusions)
    every = [(final, np.ones(len(final), dtype=bool), case.labels)]
    scored = ScoredState.of(every, totals)
    counts: Mapping[str, Any] = {}
    if any(map(can_estimate, scored.moments.values())):
        counts = CountedState.of(every, scored, totals).counts
    rules = {n: decide(m, counts.get(n), classes) for n, m in scored.moments.items()}
    unknown = np.full(final.similarity.shape, np.nan)
    simple = Agreement.of(unknown, top(final.similarity, TOP), case.labels)
    decided = agreement_of(judged_by(rules, final), case.labels)
    return States({PLAIN: simple, **decided})


def _curves(unit: Unit) -> Curves:
    """Returns the curves of a unit: one pass for the sample, then one task per point."""
    passes, classes = unit.passes(), len(unit.data.bank.classes)
    merged = passes.merged("few_sample", unit.stages, partial(_sample, unit.shards))
    case = submit(_case, merged, share(unit.data.bank.mentions))
    images = get(submit(_size, case), passes.limit, "Sampling images")
    method = Method(duo=unit.config.method.duo)
    jobs = {
        (what, number): submit(work, case, number, method)
        for what, work, numbers, size in (
            (KINDS[0], classes_point, CLASSES, classes),
            (KINDS[1], images_point, IMAGES, images),
        )
        for number in (*(n for n in numbers if n < size), size)
    }
    return {key: get(job, passes.limit, f"Fitting {key[1]} {key[0]}") for key, job in jobs.items()}


def _sample(shards: UnitShards, group: ShardGroup) -> Sample:
    def shard_sample(shard: int) -> Sample:
        column, scores = shards.scores(shard)
        ids = column.to_pylist()
        labelled, labels = shards.labels(shard, ids)
        rows = np.flatnonzero(labelled)
        return Sample.of([ids[row] for row in rows], _rows(scores, rows), labels[rows])

    found: Sample = total(map(shard_sample, group.shards))
    return found


def _case(sample: Sample, mentions: Mentions) -> Case:
    return Case(sample.scores, sample.labels, mentions)


def _size(case: Case) -> int:
    return len(case.scores)


def _rows(scores: Scores, rows: Rows) -> Scores:
    return Scores(scores.singleton[rows], scores.auxiliary[rows], scores.compound[rows])


def _remarks(found: Mapping[UnitKey, Curves]) -> list[str]:
    images = max(number for curves in found.values() for what, number in curves if what == KINDS[1])
    return [
        f"{', '.join(' × '.join(key) for key in found)}: a random sample of at most "
        f"{MOST_IMAGES:,} labelled images (here up to {images:,}); the last number is all.",
        f"Classes: the mean over {SUBSETS} random subsets. The other classes of the run, and its "
        f"background classes, are the background; `{ALONE}` is the paper's method on the subset "
        "alone, with its image-level step. Of the stored compound prompts, those that mention a "
        "class of the subset are used.",
        f"Images: sets of so many images, each fitted alone with all classes and pooled, until "
        f"there are {POOLED_IMAGES} images or {MOST_SETS} sets; compare methods, not numbers.",
        f"Micro-F1: of the label-free decisions; for ZSCLIP, of the top {TOP} classes per image, "
        "which says present too often where most images hold none of few classes: compare mAP "
        "there.",
    ]


def _figure(found: Mapping[UnitKey, Curves]) -> Figure:
    """Plots mAP and micro-F1, one row each, over classes and images, one column each."""
    figure = new_figure(8.5, 0.5 + 4.5 * len(found))
    panels = figure.subplots(2 * len(found), 2, squeeze=False)
    for number, (key, curves) in enumerate(found.items()):
        for measure, label in enumerate(COLUMNS[-2:]):
            for axes, what in zip(panels[2 * number + measure], KINDS, strict=True):
                _panel(axes, curves, what, measure)
                axes.set_ylabel(f"{key[0]}: {label}")
    return figure


def _panel(axes: Any, curves: Curves, what: str, measure: int) -> None:
    points = {number: point for (kind, number), point in curves.items() if kind == what}
    series: dict[str, tuple[list[float], list[float | None]]] = {}
    for title in (*SHOWN.values(), ALONE):  # the same marker in all panels
        known = [(float(number), p[title][measure]) for number, p in points.items() if title in p]
        series[title] = ([x for x, _ in known], [y for _, y in known])
    lines(axes, series)
    if what != KINDS[-1]:
        axes.get_legend().remove()
    axes.set_xscale("log")
    axes.set_xticks(list(points), [str(number) for number in points], fontsize=8)
    axes.minorticks_off()
    axes.set_xlabel(f"number of {what}")
