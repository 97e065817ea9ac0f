"""histograms and examples: what the first and the second max do for one class."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import MAX_IMAGE_BYTES
from sparc_dist.errors import UserError, quoted
from sparc_dist.experiments.contrast import COLUMNS, Example, Histograms
from sparc_dist.experiments.figures import SHADES, new_figure
from sparc_dist.experiments.result import Result
from sparc_dist.experiments.session import ExperimentSession
from sparc_dist.images.decoding import BadImage, decode
from sparc_dist.pipeline.unit import Unit
from sparc_dist.runs import DatasetLayout
from sparc_dist.runs.image_list import read_images
from sparc_dist.runs.tables import Cell, Table

#: The paper's class; without it, the class that gains most is shown.
DEFAULT_CLASS = "cat"
SIDE = 300  # of an example image, in pixels


def histograms(session: ExperimentSession) -> Result:
    """Returns the histograms of the scores of images with and without a class."""
    unit, index = _selected(session)
    found, _ = session.contrast(unit, index)
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
    _, pair = session.contrast(unit, index)
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
