"""Pictures of the report: thumbnails, and a sheet of examples with their likeliest classes."""

from __future__ import annotations

import io
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Semaphore

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sparc_dist import storage
from sparc_dist.config import MAX_IMAGE_BYTES
from sparc_dist.errors import UserError
from sparc_dist.images.decoding import BadImage, decode, thumbnail
from sparc_dist.images.reading import READERS, read_image
from sparc_dist.pipeline.executor import get, submit
from sparc_dist.runs import DatasetLayout, RunLayout, UnitLayout
from sparc_dist.runs.shards import read_images

#: The longer side of a thumbnail in pixels, and how many are made by one piece of work.
SIDE, GROUP = 160, 200

#: A piece of work decodes so many images at once: one may take a gigabyte, as in the map phase.
DECODERS = 2

#: The error of a thumbnail that is still to be made.
MISSING = "not made yet"

#: The error of each image by its key; None where there is a thumbnail.
Errors = dict[str, str | None]


@dataclass(frozen=True)
class Thumbnails:
    """The thumbnails of a data set, which its units share: an image is read once for all."""

    layout: RunLayout
    dataset: str

    def make(self, uris: Mapping[str, str], limit: float) -> Errors:
        """Makes those that are missing; returns what is known of all. uris: by key."""
        before = self.made()
        keys = [key for key in uris if before.get(key, MISSING) is not None]
        # Listed before they are made, so that none is left behind when this is interrupted.
        url = self.layout.thumbnails(self.dataset)
        storage.write_json(url, before | dict.fromkeys(keys, MISSING))
        groups = [keys[i : i + GROUP] for i in range(0, len(keys), GROUP)]
        jobs = [submit(_make_group, self, [(key, uris[key]) for key in part]) for part in groups]
        errors: Errors = {key: before.get(key) for key in uris}
        for job in jobs:
            errors |= get(job, limit, "Making thumbnails")
        storage.write_json(url, before | errors)
        return errors

    def keep(self, keys: Container[str]) -> None:
        """Deletes the thumbnails of other images."""
        made = self.made()
        with ThreadPoolExecutor(READERS) as workers:
            list(workers.map(self._delete, [key for key in made if key not in keys]))
        left = {key: error for key, error in made.items() if key in keys}
        if left != made:
            storage.write_json(self.layout.thumbnails(self.dataset), left)

    def made(self) -> Errors:
        """Returns what was made earlier."""
        return dict(storage.read_json_if_exists(self.layout.thumbnails(self.dataset)) or {})

    def _delete(self, key: str) -> None:
        storage.delete(self.layout.thumbnail(self.dataset, key))

    def write(self, key: str, small: bytes) -> None:
        """Writes the thumbnail of an image."""
        storage.write_bytes(self.layout.thumbnail(self.dataset, key), storage.seal_jpeg(small))


def _make_group(thumbnails: Thumbnails, images: Sequence[tuple[str, str]]) -> Errors:
    """Makes some thumbnails; once a store does not answer, the others are not tried."""
    away: list[str] = []
    decoders = Semaphore(DECODERS)

    def make(image: tuple[str, str]) -> tuple[str, str | None]:
        key, uri = image
        try:
            small = away[0] if away else _small(uri, decoders)
        except UserError as error:  # a report is made without a store of images that is away
            away.append(str(error))
            return key, str(error)
        if isinstance(small, str):
            return key, small
        thumbnails.write(key, small)
        return key, None

    # Threads: a store is slow to answer, and Pillow decodes without Python's lock.
    with ThreadPoolExecutor(READERS) as workers:
        return dict(workers.map(make, images))


def _small(uri: str, decoders: Semaphore) -> bytes | str:
    """Returns an image as a small JPEG, or why there is none."""
    content = read_image(uri)
    if isinstance(content, BadImage):
        return str(content)
    try:
        with decoders:
            return thumbnail(content, SIDE)
    except BadImage as error:
        return str(error)


COLUMNS, ROWS, CELL, LINE, TOP = 6, 2, 150, 17, 3
PRESENT, ABSENT, UNKNOWN = "#1a7f37", "#b35900", "#222222"


def example_sheet(
    dataset: DatasetLayout, unit: UnitLayout, classes: list[str], method: str
) -> bytes | None:
    """Returns a PNG of the first images of a unit; None if none of them can be read.

    Classes have a plus if they are among the image's labels, a minus if not.
    """
    final = storage.read_table(unit.final(0), ["image_id", method]).slice(0, COLUMNS * ROWS)
    images = read_images(dataset, 0, ["image_id", "uri", "labels"])
    by_id = {row["image_id"]: row for row in images.to_pylist()}
    sheet = Image.new("RGB", (COLUMNS * CELL, ROWS * (CELL + TOP * LINE + 8)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    shown = 0
    for row in final.to_pylist():
        try:
            pixels = decode(
                storage.read_bytes(by_id[row["image_id"]]["uri"], MAX_IMAGE_BYTES), CELL - 8
            )
        except (BadImage, UserError, OSError, ValueError):
            continue
        x = shown % COLUMNS * CELL + 4
        y = shown // COLUMNS * (CELL + TOP * LINE + 8) + 4
        sheet.paste(Image.fromarray(pixels), (x, y))
        labels = by_id[row["image_id"]]["labels"]
        for rank, index in enumerate(np.argsort(row[method])[::-1][:TOP]):
            mark, colour = _mark(int(index), labels)
            text = f"{mark}{classes[index]}  {row[method][index]:.1f}"
            draw.text((x, y + CELL - 8 + rank * LINE), text, fill=colour, font=font)
        shown += 1
    if not shown:
        return None
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _mark(index: int, labels: list[int] | None) -> tuple[str, str]:
    if labels is None:
        return "", UNKNOWN
    return ("+ ", PRESENT) if index in labels else ("- ", ABSENT)
