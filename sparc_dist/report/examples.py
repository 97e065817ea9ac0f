"""The example sheet: a picture of some images with their most likely classes."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sparc_dist import storage
from sparc_dist.config import MAX_IMAGE_BYTES
from sparc_dist.errors import UserError
from sparc_dist.images.decoding import BadImage, decode
from sparc_dist.runs import DatasetLayout, UnitLayout
from sparc_dist.runs.shards import read_images

COLUMNS, ROWS, SIDE, LINE, TOP = 6, 2, 150, 17, 3
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
    sheet = Image.new("RGB", (COLUMNS * SIDE, ROWS * (SIDE + TOP * LINE + 8)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    shown = 0
    for row in final.to_pylist():
        try:
            pixels = decode(
                storage.read_bytes(by_id[row["image_id"]]["uri"], MAX_IMAGE_BYTES), SIDE - 8
            )
        except (BadImage, UserError, OSError, ValueError):
            continue
        x = shown % COLUMNS * SIDE + 4
        y = shown // COLUMNS * (SIDE + TOP * LINE + 8) + 4
        sheet.paste(Image.fromarray(pixels), (x, y))
        labels = by_id[row["image_id"]]["labels"]
        for rank, index in enumerate(np.argsort(row[method])[::-1][:TOP]):
            mark, colour = _mark(int(index), labels)
            text = f"{mark}{classes[index]}  {row[method][index]:.1f}"
            draw.text((x, y + SIDE - 8 + rank * LINE), text, fill=colour, font=font)
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
