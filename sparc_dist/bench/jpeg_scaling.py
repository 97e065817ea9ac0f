"""Decoding JPEGs at the scale that a square needs, beside decoding them in full, and djpeg."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from sparc_dist.bench.inputs import GRAIN, photos, write_photo
from sparc_dist.bench.setting import BenchSetting
from sparc_dist.demo.scenes import SPLITS
from sparc_dist.images.decoding import decode, jpeg_scale
from sparc_dist.runs.tables import aligned

#: The input sizes of ViTs, and of ResNets on COCO.
SIZES = (224, 448)
HEAD = (
    *("JPEGs", "to", "scale", "full", "scaled", "scaled / full", "difference"),
    "djpeg -scale",
)


@dataclass(frozen=True)
class Drawn:
    """JPEGs to draw: how many, and how large. grain: SD of their noise, in grey levels."""

    count: int
    width: int
    height: int
    grain: float

    def files(self, folder: str) -> list[str]:
        """Draws the files below a folder, and returns their paths."""
        place = Path(folder) / f"{self.width}"
        place.mkdir()
        seeds, shape = SPLITS["validation"][: self.count], (self.width, self.height)
        return [write_photo(place, seed, shape, self.grain) for seed in seeds]


#: 0.2, 2 and 12 megapixels. Pixels of large photos are more alike: with half the grain, a file of
#: 12 megapixels has some 3 MB, as from a camera.
PHOTOS = (
    Drawn(32, 500, 375, GRAIN),
    Drawn(8, 1632, 1224, GRAIN / 2),
    Drawn(4, 4000, 3000, GRAIN / 2),
)


@dataclass(frozen=True)
class Comparison:
    """Seconds per JPEG of one round each, and the mean difference of pixels, of 255.

    djpeg: empty where it is not installed.
    """

    full: Sequence[float]
    scaled: Sequence[float]
    djpeg: Sequence[float]
    difference: float

    def cells(self) -> list[str]:
        """Returns the last five cells of a row of the table."""
        ratio = median(a / b for a, b in zip(self.full, self.scaled, strict=True))
        djpeg = f"{1 / median(self.djpeg):.1f}" if self.djpeg else "–"
        rates = [f"{1 / median(times):.1f}" for times in (self.full, self.scaled)]
        return [*rates, f"{ratio:.2f}", f"{self.difference:.2f}", djpeg]


def scaling_text(setting: BenchSetting) -> str:
    """Returns a table: photos per second and core at every size of photo and of square."""
    rounds = 1 if setting.quick else 5
    rows: list[Sequence[str]] = [HEAD]
    with TemporaryDirectory() as folder:
        for name, files in _sets(setting, folder):
            for size in SIZES:
                scales = ", ".join(f"1/{scale}" for scale in sorted(_scales(files, size)))
                found = compare(files, size, rounds)
                rows.append([f"  {name}", str(size), scales, *found.cells()])
    title = (
        "JPEGs decoded at the smallest scale with twice the side of a square, compared with in "
        "full: photos per second and core, and the mean difference of pixels (of 255)"
    )
    lines = [title, aligned(rows, "lrlrrrrr")]
    if shutil.which("djpeg") is None:
        lines.append("djpeg is not installed (Debian: libjpeg-turbo-progs), so it is left out.")
    return "\n".join(lines)


def _sets(setting: BenchSetting, folder: str) -> list[tuple[str, list[str]]]:
    """Returns the JPEGs to decode, by name: the user's, or drawn ones of three sizes."""
    if setting.photos is not None:
        own = photos(setting, 4 if setting.quick else 32, folder)
        jpegs = [path for path in own if path.lower().endswith((".jpg", ".jpeg"))]
        return [("yours", jpegs)] if jpegs else []
    drawn = [Drawn(1, d.width, d.height, d.grain) for d in PHOTOS[:2]] if setting.quick else PHOTOS
    return [(f"{d.width} × {d.height}", d.files(folder)) for d in drawn]


def compare(files: Sequence[str], size: int, rounds: int) -> Comparison:
    """Decodes files to squares in full, scaled and with djpeg, alternately."""
    contents = [Path(path).read_bytes() for path in files]
    full, scaled = (
        [decode(content, size, jpeg_scaling=on).astype(int) for content in contents]
        for on in (False, True)  # a warm-up, too
    )
    with_djpeg = shutil.which("djpeg") is not None
    ways: list[Callable[[], object]] = [
        lambda: [decode(content, size, jpeg_scaling=False) for content in contents],
        lambda: [decode(content, size) for content in contents],
        lambda: _djpeg(files, size) if with_djpeg else None,
    ]
    times = [[_seconds(way) / len(files) for way in ways] for _ in range(rounds)]
    columns = [[row[way] for row in times] for way in range(len(ways))]
    difference = mean(float(np.abs(a - b).mean()) for a, b in zip(full, scaled, strict=True))
    return Comparison(columns[0], columns[1], columns[2] if with_djpeg else (), difference)


def _djpeg(files: Sequence[str], size: int) -> None:
    """Decodes files with libjpeg-turbo's own program, at the same scales and without a resize."""
    for path in files:
        (scale,) = _scales([path], size)
        command = ["djpeg", "-scale", f"1/{scale}", "-outfile", "/dev/null", path]
        subprocess.run(command, check=True, capture_output=True)


def _scales(files: Sequence[str], size: int) -> set[int]:
    found = set()
    for path in files:
        with Image.open(path) as image:
            found.add(jpeg_scale(*image.size, size))
    return found


def _seconds(work: Callable[[], object]) -> float:
    """Returns the CPU seconds of this process and its children: others hardly affect them."""

    def spent() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    start = spent()
    work()
    return spent() - start
