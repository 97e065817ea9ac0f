"""NUS-WIDE with its 81 concepts, in the layout of its official files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.kind import DatasetKind
from sparc_dist.datasets.official import existing_images, read_lines
from sparc_dist.errors import UserError

CLASSES = tuple(
    "airport animal beach bear birds boats book bridge buildings cars castle cat cityscape clouds "
    "computer coral cow dancing dog earthquake elk fire fish flags flowers food fox frost garden "
    "glacier grass harbor horses house lake leaf map military moon mountain nighttime ocean person "
    "plane plants police protest railroad rainbow reflection road rocks running sand sign sky snow "
    "soccer sports statue street sun sunset surf swimmers tattoo temple tiger tower town toy train "
    "tree valley vehicle water waterfall wedding whales window zebra".split()
)


class NusWide:
    """Reads ImageList, TrainTestLabels (or Groundtruth/TrainTestLabels) and Flickr."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """Yields the test split."""
        paths = [line.replace("\\", "/") for line in self._lines("ImageList/TestImagelist.txt")]
        labels = self._split("Test")
        if len(paths) != len(labels):
            raise UserError(
                f"{self._root}: {len(paths)} test images are listed, but there are labels for "
                f"{len(labels)}; download both files again."
            )
        rows = list(zip(paths, labels, strict=True))
        return existing_images(storage.join(self._root, "Flickr"), rows, self.notes)

    def labels(self) -> Iterator[list[list[int]]]:
        """Yields the labels of the training split."""
        yield self._split("Train")

    def _split(self, split: str) -> list[list[int]]:
        """Returns the class indices of each image of a split."""
        rows: list[list[int]] = []
        for index, name in enumerate(CLASSES):
            path = f"TrainTestLabels/Labels_{name}_{split}.txt"
            signs = self._lines(path, f"Groundtruth/{path}")
            rows = rows or [[] for _ in signs]
            if len(signs) != len(rows) or set(signs) - {"0", "1"}:
                raise UserError(
                    f"{self._root}/{path} must have {len(rows)} lines of 0 or 1; download it again."
                )
            for row, sign in zip(rows, signs, strict=True):
                if sign == "1":
                    row.append(index)
        return rows

    def _lines(self, *names: str) -> list[str]:
        return read_lines(self._root, *names)


KIND = DatasetKind(
    "NUS-WIDE test: 107,859 images, 81 concepts",
    "images: a folder with ImageList/TestImagelist.txt, TrainTestLabels/Labels_*_{Train,Test}"
    ".txt (also in Groundtruth/) and Flickr/",
    "Groundtruth.zip and ImageList.zip of the NUS-WIDE data set; images from its authors",
    lambda images, classes: NusWide(images),
    CLASSES,
    images=107859,
    paper_name="NUSWIDE",
)
