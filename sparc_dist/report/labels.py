"""The classes of each image, as a run decided: for people to read, and as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sparc_dist import storage
from sparc_dist.config import LABEL_UNIT
from sparc_dist.errors import printable
from sparc_dist.report.tables import cell
from sparc_dist.runs import RunLayout
from sparc_dist.runs.run import FinishedUnit, ShardLabels

#: The value of ``present`` in the only row of an image that could not be read.
UNREADABLE = "unreadable"
COLUMNS = ("image_id", "class", "probability", "present", "score", "rank")


@dataclass(frozen=True)
class ClassLabel:
    """One class in one image. probability: None for a class whose scores do not vary."""

    name: str
    probability: float | None
    present: bool
    score: float


@dataclass(frozen=True)
class ImageLabels:
    """The classes of one image, the highest score first.

    error: why the image could not be read; it has no classes then. uri: where it is, without keys.
    """

    image_id: str
    classes: list[ClassLabel]
    error: str | None = None
    uri: str = ""

    @property
    def labels(self) -> list[str]:
        """The names of the classes that are present."""
        return [label.name for label in self.classes if label.present]

    @property
    def probabilities(self) -> dict[str, float | None]:
        """The probability of each class; None for a class whose scores do not vary."""
        return {label.name: label.probability for label in self.classes}

    @property
    def scores(self) -> dict[str, float]:
        """The final score of each class."""
        return {label.name: label.score for label in self.classes}

    @property
    def empty(self) -> bool:
        """Whether no class is present."""
        return not self.labels

    def line(self) -> str:
        """Returns what is in the image: the classes present, or else the likeliest absent one."""
        image = printable(self.image_id)
        if self.error is not None:
            return f"{image}: {UNREADABLE} ({self.error})"
        present = [label for label in self.classes if label.present]
        likeliest = max(self.classes, key=lambda label: label.probability or 0.0)
        shown = present or [likeliest]
        names = ", ".join(f"{printable(label.name)} {_probability(label)}" for label in shown)
        return f"{image}: {names if present else f'nothing (likeliest: {names})'}"


def image_labels(unit: FinishedUnit) -> Iterator[ImageLabels]:
    """Yields the labels of each image of a unit; unreadable images come last in their shard."""
    for number, shard in enumerate(unit.labels()):
        for row, (image_id, uri) in enumerate(zip(shard.ids, shard.uris, strict=True)):
            order = np.argsort(-shard.scores[row], kind="stable").tolist()
            classes = [_class_label(shard, row, i, unit.classes[i]) for i in order]
            yield ImageLabels(image_id, classes, uri=uri)
        for error in storage.read_table(unit.unit.errors(number)).to_pylist():
            yield ImageLabels(error["image_id"], [], error["error"], error["uri"])


def _class_label(shard: ShardLabels, row: int, index: int, name: str) -> ClassLabel:
    probability, score = shard.probability[row, index], float(shard.scores[row, index])
    known = None if np.isnan(probability) else float(probability)
    return ClassLabel(name, known, bool(shard.present[row, index]), score)


def is_ours(url: str, missing: bool = False) -> bool:
    """Whether there is a file that ``write_labels`` wrote. missing: the answer if there is none."""
    head = ",".join(COLUMNS).encode()
    found = storage.read_if_exists(storage.byte_range(url, 0, len(head)))
    return missing if found is None else found == head


def update_labels(run: str, unit: FinishedUnit, raw: bool = False) -> None:
    """Writes labels.csv of a run again after new decisions, if `sparc-dist label` made the run."""
    url, parts = RunLayout(run).labels_csv, tuple(unit.unit.root.split("/"))
    if is_ours(url, missing=parts[-2:] == LABEL_UNIT):
        write_labels(image_labels(unit), url, raw=raw)


def labelled_images(url: str) -> set[str]:
    """Returns the ids of the images in a file that ``write_labels`` wrote."""
    with storage.open_file(url) as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        next(rows)
        return {row[0] for row in rows}


def write_labels(
    images: Iterable[ImageLabels],
    url: str,
    keep: int = 0,
    known: Container[str] = (),
    raw: bool = False,
) -> tuple[list[ImageLabels], int]:
    """Writes one CSV line per image and class; returns some images and the total.

    An image that could not be read has one line, without a class. Returned are the first ``keep``
    images whose ids, as written, are not ``known``. raw: what looks like a formula stays as it is.
    """
    written = str if raw else cell
    first: list[ImageLabels] = []
    count = 0
    with storage.atomic_file(url) as path, path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for image in images:
            count += 1
            image_id = written(image.image_id)
            if len(first) < keep and image_id not in known:
                first.append(image)
            if image.error is not None:
                writer.writerow([image_id, "", "", UNREADABLE, "", ""])
            for rank, label in enumerate(image.classes, 1):
                number = "" if label.probability is None else f"{label.probability:.4f}"
                present = "yes" if label.present else "no"
                score = f"{label.score:.4f}"
                writer.writerow([image_id, written(label.name), number, present, score, rank])
    return first, count


def _probability(label: ClassLabel) -> str:
    return "–" if label.probability is None else f"{label.probability:.2f}"
