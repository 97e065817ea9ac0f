"""The kinds of data sets there are, with what each needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.config import DatasetConfig, check_classes
from sparc_dist.datasets import coco2014, nuswide, voc2007
from sparc_dist.datasets.folder import Folder
from sparc_dist.datasets.manifest import Manifest
from sparc_dist.datasets.webdataset import WebDataset
from sparc_dist.errors import UserError


class Source(Protocol):
    """Where images come from."""

    #: What was left out and why; complete when ``images`` is at its end.
    notes: list[str]

    def images(self) -> Iterator[pa.Table]:
        """The images in batches of the schema of images.parquet, in a fixed order."""
        ...


@runtime_checkable
class Labelled(Protocol):
    """A source that knows labels of other images than those to be scored."""

    notes: list[str]

    def labels(self) -> Iterator[list[list[int]]]:
        """The class indices of each training image, in batches."""
        ...


@dataclass(frozen=True)
class Kind:
    """What a user must know of a kind of data set."""

    summary: str
    needs: str
    origin: str
    classes: tuple[str, ...] = ()
    opens: Any = None

    @property
    def official(self) -> bool:
        """Whether the classes are the data set's own."""
        return bool(self.classes)


KINDS = {
    "voc2007": Kind(
        "Pascal VOC 2007 test: 4,952 images, 20 classes; difficult objects count as absent",
        "images: the folder VOC2007 with ImageSets/Main/*_test.txt and *_trainval.txt, JPEGImages/",
        "VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar of the Pascal VOC 2007 challenge",
        voc2007.CLASSES,
        voc2007.Voc2007,
    ),
    "coco2014": Kind(
        "COCO 2014 validation: 40,504 images, 80 classes; crowd annotations are left out",
        "images: a folder with annotations/instances_{train,val}2014.json and val2014/",
        "annotations_trainval2014.zip and val2014.zip of the COCO data set",
        coco2014.CLASSES,
        coco2014.Coco2014,
    ),
    "nuswide": Kind(
        "NUS-WIDE test: 107,859 images, 81 concepts",
        "images: a folder with ImageList/TestImagelist.txt, TrainTestLabels/Labels_*_{Train,Test}"
        ".txt (also below Groundtruth/) and Flickr/",
        "Groundtruth.zip and ImageList.zip of the NUS-WIDE data set; images from its authors",
        nuswide.CLASSES,
        nuswide.NusWide,
    ),
    "folder": Kind(
        "every image below a folder, without labels",
        "images: the folder; classes",
        "your own",
    ),
    "manifest": Kind(
        "a Parquet or CSV table with a row an image",
        "images: the table with uri, optionally image_id, and labels as names, indices or one "
        "0/1 column a class; classes",
        "your own",
    ),
    "webdataset": Kind(
        "tar files in the WebDataset layout",
        "images: a .tar file or a folder of them, labels in KEY.json or KEY.cls; classes",
        "your own",
    ),
}


def open_source(dataset: DatasetConfig, classes: Sequence[str]) -> Source:
    """The source of a data set's images."""
    source: Source
    if dataset.kind == "folder":
        source = Folder(dataset.images)
    elif dataset.kind == "manifest":
        source = Manifest(dataset.images, classes)
    elif dataset.kind == "webdataset":
        source = WebDataset(dataset.images, classes)
    else:
        source = KINDS[dataset.kind].opens(dataset.images)
    return source


def class_names(dataset: DatasetConfig) -> tuple[str, ...]:
    """The data set's class names: its own, those of the config, or those in a file."""
    if dataset.classes is None:
        return KINDS[dataset.kind].classes
    if not isinstance(dataset.classes, str):
        return dataset.classes
    names = tuple(name.strip() for name in storage.read_lines(dataset.classes) if name.strip())
    try:
        check_classes(names)
    except ValueError as error:
        raise UserError(f"{dataset.classes}: {error}.") from None
    return names
