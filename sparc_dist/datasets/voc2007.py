"""Pascal VOC 2007, in the layout of its development kit."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.kind import DatasetKind
from sparc_dist.datasets.official import existing_images, read_lines
from sparc_dist.errors import UserError, quoted

FILES = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike "
    "person pottedplant sheep sofa train tvmonitor"
).split()
_SPELLING = {
    "diningtable": "dining table",
    "pottedplant": "potted plant",
    "tvmonitor": "tv monitor",
}
CLASSES = tuple(_SPELLING.get(name, name) for name in FILES)


class Voc2007:
    """Reads ImageSets/Main/CLASS_SPLIT.txt and JPEGImages; difficult objects count as absent."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """Yields the test split."""
        rows = [(f"{name}.jpg", labels) for name, labels in self._split("test").items()]
        return existing_images(storage.join(self._root, "JPEGImages"), rows, self.notes)

    def labels(self) -> Iterator[list[list[int]]]:
        """Yields the labels of the training and validation splits."""
        yield list(self._split("trainval").values())

    def _split(self, split: str) -> dict[str, list[int]]:
        labels: dict[str, list[int]] = {}
        for index, name in enumerate(FILES):
            for line in read_lines(self._root, f"ImageSets/Main/{name}_{split}.txt"):
                image, _, sign = line.partition(" ")
                if sign.strip() not in ("-1", "0", "1"):
                    raise UserError(
                        f"{self._root}/ImageSets/Main/{name}_{split}.txt: the line {quoted(line)} "
                        "does not end in -1, 0 or 1; download the file again."
                    )
                present = labels.setdefault(image, [])
                if sign.strip() == "1":
                    present.append(index)
        return labels


KIND = DatasetKind(
    "Pascal VOC 2007 test: 4,952 images, 20 classes; difficult objects count as absent",
    "images: the folder VOC2007 with ImageSets/Main/*_test.txt and *_trainval.txt, JPEGImages/",
    "VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar of the Pascal VOC 2007 challenge",
    lambda images, classes: Voc2007(images),
    CLASSES,
    images=4952,
    paper_name="VOC",
)
