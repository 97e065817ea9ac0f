"""histograms and examples: how well scores separate images with a class from images without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import MAX_IMAGE_BYTES
from sparc_dist.core import Floats, Scores, Sparc, merge
from sparc_dist.errors import UserError, quoted
from sparc_dist.images.decoding import BadImage, decode
from sparc_dist.pipeline.executor import get, submit
from sparc_dist.pipeline.passes import ShardGroup, total
from sparc_dist.pipeline.unit import Unit
from sparc_dist.research.result import SHADES, Result, new_figure
from sparc_dist.research.session import ExperimentSession
from sparc_dist.runs import DatasetLayout, UnitLayout, UnitShards
from sparc_dist.runs.labeler_file import read_labeler
from sparc_dist.runs.shards import read_images
from sparc_dist.runs.tables import Cell, Table

#: The paper's class; without it, the class that gains most is shown.
DEFAULT_CLASS = "cat"
SIDE = 300  # of an example image, in pixels
#: The columns of a contrast's values.
COLUMNS = ("singleton", "1st max", "2nd max", "singleton + 2nd max", "SPARC")
FIRST, SECOND = 1, 2


@dataclass(frozen=True)
class Histograms:
    """Images per bin. edges: (bins + 1,). counts: (5, 2, bins), by column, absent and present."""

    edges: Floats
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Example:
    """An image and its scores for a class. values: (5,). top: prompts of the first two maxima."""

    shard: int
    image_id: str
    values: NDArray[np.float32]
    top: tuple[int, int]


@dataclass(frozen=True)
class Contrast:
    """The debiased scores of one class on n images.

    ids: shard and id of each image. present: (n,), whether it has the class. values: (n, 5), one
    column per entry of COLUMNS. top: (n, 2), the compound prompts of the first and second max.
    """

    ids: tuple[tuple[int, str], ...]
    present: NDArray[np.bool_]
    values: NDArray[np.float32]
    top: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        ids: Sequence[tuple[int, str]],
        scores: Scores,
        present: NDArray[np.bool_],
        index: int,
        fusion: Sparc,
    ) -> Contrast:
        """Returns the contrast of class ``index``, which at least two compound prompts mention."""
        debiased, columns = fusion.debias(scores), fusion.mentions[index]
        singleton = debiased[:, index]
        compound = debiased[:, len(fusion.mentions) + columns]
        order = np.argsort(-compound, axis=1, kind="stable")
        ranked = np.take_along_axis(compound, order, axis=1)
        fused = np.column_stack([singleton, ranked]) @ fusion.weights[index]
        second = ranked[:, 1]
        final = merge(singleton, fused) if fusion.method.merge else fused
        values = np.stack([singleton, ranked[:, 0], second, merge(singleton, second), final], 1)
        return cls(tuple(ids), present, values.astype(np.float32), columns[order[:, :2]])

    def __add__(self, other: Contrast) -> Contrast:
        return Contrast(
            self.ids + other.ids,
            np.concatenate([self.present, other.present]),
            np.concatenate([self.values, other.values]),
            np.concatenate([self.top, other.top]),
        )

    def select(self, rows: NDArray[np.bool_]) -> Contrast:
        """Returns the images where ``rows`` (n,) is true."""
        ids = tuple(name for name, selected in zip(self.ids, rows, strict=True) if selected)
        return Contrast(ids, self.present[rows], self.values[rows], self.top[rows])

    def histograms(self, bins: int = 60) -> Histograms:
        """Returns the histograms of all columns, with the same edges."""
        edges = np.histogram_bin_edges(self.values, bins)
        counts = [
            [np.histogram(column[self.present == side], edges)[0] for side in (False, True)]
            for column in self.values.T
        ]
        return Histograms(edges.astype(np.float64), np.array(counts, dtype=np.int64))

    def misordered(self) -> tuple[Example, Example] | None:
        """Returns a pair (present, absent) that the first max misorders, but not the second max.

        Of all such pairs, the one whose smaller margin is largest; None if there is none.
        """
        first, second = self.values[:, FIRST], self.values[:, SECOND]
        present = _pareto_front(np.flatnonzero(self.present), first, -second)
        absent = _pareto_front(np.flatnonzero(~self.present), -first, second)
        if not len(present) or not len(absent):
            return None
        wrong_by = first[absent] - first[present, None]
        right_by = second[present, None] - second[absent]
        margin = np.minimum(wrong_by, right_by)
        row, column = np.unravel_index(int(margin.argmax()), margin.shape)
        if margin[row, column] <= 0:
            return None
        return self._example(int(present[row])), self._example(int(absent[column]))

    def _example(self, row: int) -> Example:
        first, second = self.top[row].tolist()
        return Example(*self.ids[row], self.values[row], (first, second))


def _pareto_front(
    rows: NDArray[np.intp], x: NDArray[np.float32], y: NDArray[np.float32]
) -> NDArray[np.intp]:
    """Returns the ``rows`` that no other row matches or undercuts in both x and y."""
    rows = rows[np.lexsort((y[rows], x[rows]))]
    lowest = np.minimum.accumulate(y[rows])
    front: NDArray[np.intp] = rows[np.append(True, y[rows][1:] < lowest[:-1])[: len(rows)]]
    return front


def _contrast(
    session: ExperimentSession, unit: Unit, index: int
) -> tuple[Histograms, tuple[Example, Example] | None]:
    """Returns the histograms of class ``index`` and the pair that the first max misorders."""

    def work() -> Any:
        passes = unit.passes()
        merged = passes.merged("contrast", unit.stages, partial(_of_group, unit.shards, index))
        return get(submit(_summarise, merged), passes.limit, "The contrast of a class")

    found: tuple[Histograms, tuple[Example, Example] | None]
    found = session.once(("contrast", unit.key, index), work)
    return found


def sparc_fusion(unit: UnitLayout) -> Sparc:
    """Returns SPARC's fusion of a unit."""
    fusion = read_labeler(unit.labeler).fusions.models.get("sparc")
    if not isinstance(fusion, Sparc):
        raise UserError(
            f"{unit.root} has no SPARC scores, because `fusions` of its config does not list "
            "sparc; use a run that has them."
        )
    return fusion


def _of_group(shards: UnitShards, index: int, group: ShardGroup) -> Contrast:
    fusion = sparc_fusion(shards.unit)

    def of_shard(shard: int) -> Contrast:
        column, scores = shards.scores(shard)
        image_ids = column.to_pylist()
        labelled, labels = shards.labels(shard, image_ids)
        ids = [(shard, image_id) for image_id in image_ids]
        return Contrast.of(ids, scores, labels[:, index], index, fusion).select(labelled)

    found: Contrast = total(map(of_shard, group.shards))
    return found


def _summarise(merged: Contrast) -> Any:
    return merged.histograms(), merged.misordered()


def histograms(session: ExperimentSession) -> Result:
    """Returns the histograms of the scores of images with and without a class."""
    unit, index = _selected(session)
    found, _ = _contrast(session, unit, index)
    name = unit.data.bank.classes[index]
    rows: list[list[Cell]] = [
        [column, float(low), float(high), int(absent), int(present)]
        for column, (absents, presents) in zip(COLUMNS, found.counts, strict=True)
        for low, high, absent, present in zip(
            found.edges, found.edges[1:], absents, presents, strict=False
        )
    ]
    table = Table(("score", "from (SD)", "to (SD)", "absent", "present"), rows, digits=2)
    overlaps: list[list[Cell]] = [
        [column, int(sides[1].sum()), int(sides[0].sum()), _overlap(sides)]
        for column, sides in zip(COLUMNS, found.counts, strict=True)
    ]
    summary = Table(("score", "present", "absent", "overlap"), overlaps, digits=3)
    remarks = [
        f"Class {quoted(name)} of {' × '.join(unit.key)}; scores are debiased, in SD over images.",
        "Overlap: the area shared by the two histograms when each has area 1.",
    ]
    title = f"Scores of images with and without {quoted(name)}"
    return Result(title, table, _histograms_figure(found), remarks, summary)


def examples(session: ExperimentSession) -> Result:
    """Returns the pair of images that the first max misorders and the second max does not."""
    unit, index = _selected(session)
    _, pair = _contrast(session, unit, index)
    name, remarks = unit.data.bank.classes[index], [f"Unit {' × '.join(unit.key)}."]
    if pair is None:
        remarks.append("The second max corrects no pair that the first max misorders.")
    texts = [prompt.text for prompt in unit.data.bank.compound]
    rows: list[list[Cell]] = [
        [
            example.image_id,
            side,
            float(example.values[0]),
            float(example.values[1]),
            texts[example.top[0]],
            float(example.values[2]),
            texts[example.top[1]],
            float(example.values[4]),
        ]
        for side, example in zip(("present", "absent"), pair or (), strict=False)
    ]
    columns = (
        *("image", name, "singleton", "1st max", "1st max's prompt"),
        *("2nd max", "2nd max's prompt", "SPARC"),
    )
    figure = _examples_figure(unit, pair, texts)
    return Result(f"A pair of images for {quoted(name)}", Table(columns, rows, 2), figure, remarks)


def _selected(session: ExperimentSession) -> tuple[Unit, int]:
    """Returns the unit and the index of the class to show."""
    unit = session.selected_units()[0]
    bank, label = unit.data.bank, session.options.label
    mentions = bank.mentions[: len(bank.classes)]
    usable = [i for i, columns in enumerate(mentions) if len(columns) > 1]
    if label is not None and label not in bank.classes:
        raise UserError(
            f"The data set {unit.key[0]} has no class {quoted(label)}; name one of its classes."
        )
    if not usable or (label is not None and bank.classes.index(label) not in usable):
        raise UserError(
            f"{'Every class' if label is None else quoted(label)} of {unit.key[0]} is mentioned by "
            "fewer than two compound prompts, so it has no second max; choose another."
        )
    if label is not None or DEFAULT_CLASS in [bank.classes[i] for i in usable]:
        return unit, bank.classes.index(label or DEFAULT_CLASS)
    metrics = session.run.results.metrics[unit.key]
    before, after = (metrics[method]["AP"] for method in ("debiased", "sparc"))
    candidates = [i for i in usable if after[bank.classes[i]] is not None] or usable
    return unit, max(
        candidates, key=lambda i: (after[bank.classes[i]] or 0) - (before[bank.classes[i]] or 0)
    )


def _overlap(sides: NDArray[np.int64]) -> float:
    shares = sides / np.maximum(sides.sum(axis=1, keepdims=True), 1)
    return float(shares.min(axis=0).sum())


def _histograms_figure(found: Histograms) -> Figure:
    figure = new_figure(6.5, 1.5 * len(COLUMNS) + 0.5)
    panels = figure.subplots(len(COLUMNS), sharex=True)
    for axes, column, sides in zip(panels, COLUMNS, found.counts, strict=True):
        widths = np.diff(found.edges)
        styles: tuple[tuple[str, Any], ...] = (
            ("absent", {"color": SHADES[2]}),
            ("present", {"fill": False, "hatch": "////"}),
        )
        for counts, (label, style) in zip(sides, styles, strict=True):
            density = counts / (max(counts.sum(), 1) * widths)
            axes.bar(found.edges[:-1], density, widths, align="edge", label=label, **style)
        axes.set_ylabel("share (1/SD)")
        axes.set_title(column, fontsize=9, loc="left")
    panels[0].legend(fontsize=8)
    panels[-1].set_xlabel("debiased score (SD over images)")
    return figure


def _examples_figure(unit: Unit, pair: tuple[Example, Example] | None, texts: list[str]) -> Figure:
    """Plots both images with their scores; only the scores if an image cannot be read."""
    figure = new_figure(7.0, 4.5)
    panels = figure.subplots(2, 2, height_ratios=(2.2, 1))
    panels[1][0].sharex(panels[1][1])
    for column, (side, example) in enumerate(
        zip(("present", "absent"), pair or (None, None), strict=True)
    ):
        picture, bars = panels[0][column], panels[1][column]
        picture.axis("off")
        bars.axis("on" if example else "off")
        if example is None:
            continue
        pixels = _pixels(unit.data.layout, example)
        if pixels is not None:
            picture.imshow(pixels)
        picture.set_title(f"{side}: {example.image_id}", fontsize=8)
        first, second = (texts[prompt] for prompt in example.top)
        names = ["singleton", f"1st max\n{first}", f"2nd max\n{second}"]
        bars.barh(names, example.values[:3], color=SHADES[1], edgecolor="black")
        bars.invert_yaxis()
        bars.tick_params(labelsize=7)
        bars.set_xlabel("debiased score (SD)", fontsize=8)
    return figure


def _pixels(dataset: DatasetLayout, example: Example) -> NDArray[np.uint8] | None:
    """Returns the image of an example; None if it cannot be read."""
    rows = read_images(dataset, example.shard, ["image_id", "uri"]).to_pylist()
    (uri,) = (row["uri"] for row in rows if row["image_id"] == example.image_id)
    try:
        return decode(storage.read_bytes(uri, MAX_IMAGE_BYTES), SIDE)
    except (BadImage, UserError, OSError, ValueError):
        return None
